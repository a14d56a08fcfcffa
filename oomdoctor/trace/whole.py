"""A card's step from end to end, in the child process: all blocks, or a few and the rest drawn out if that is exact."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

from oomdoctor.trace import autocast, flashattention, kernels, models, steps
from oomdoctor.trace.depth import TRACED, drawn_out
from oomdoctor.trace.result import Simulated, told
from oomdoctor.trace.spec import Spec
from oomdoctor.trace.tape import Tape

_LIBRARIES = ("torch", "transformers", "peft")
_OLDEST = 5  # major version of transformers


class Simulator:
    """Simulates steps, one after the other. It changes torch and transformers for the rest of the process.

    Raises NotSimulated where transformers is too old.
    """

    def __init__(self) -> None:
        self.versions = {name: importlib.metadata.version(name) for name in _LIBRARIES}
        if int(self.versions["transformers"].partition(".")[0]) < _OLDEST:
            raise models.NotSimulated("old_transformers", version=self.versions["transformers"])
        os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"  # it compares values, of which there are none
        self._autocast = autocast.Autocast()
        autocast.stand_in(self._autocast)
        autocast.stand_in_for_transformers()
        flashattention.stand_in()

    def simulate(self, spec: Spec, progress: steps.Progress = lambda what: None) -> Simulated:
        """The step of a spec. Raises NotSimulated."""
        card = kernels.Card(spec.capability, spec.torch or _version(self.versions["torch"]))
        library = kernels.install(card)
        try:
            return self._traced(spec, kernels.ways_of(card), progress)
        finally:
            del library

    def _traced(self, spec: Spec, ways: kernels.Ways, progress: steps.Progress) -> Simulated:
        config = models.config_of(spec)
        layers = getattr(config.get_text_config(), "num_hidden_layers", 0)

        def tape_of(config: Any) -> Tape:
            return steps.trace(spec, config, ways, self._autocast, progress)

        few = _few(spec, config, layers)
        if few:
            drawn = drawn_out(tape_of(models.config_of(spec, few)), TRACED * layers // few)
            if drawn is not None:
                return told(drawn, self.versions, few, layers)
        return told(tape_of(config), self.versions, layers or None, layers or None)


def _few(spec: Spec, config: Any, layers: int) -> int:
    """How many blocks stand for all of them, 0 where all must be run."""
    if getattr(config.get_text_config(), "first_k_dense_replace", None) not in (None, 0, 1):
        return 0  # the blocks that would be drawn out are not those that make up the model
    period = models.period_of(config)
    few = TRACED * period
    if spec.whole or layers <= few + period or layers % period:
        return 0
    shapes = [models.outside_of_blocks(spec, models.config_of(spec, number)) for number in (few, few + period)]
    return few if shapes[0] == shapes[1] else 0


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
