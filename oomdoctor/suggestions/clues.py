"""What a log says that bears on a requested size, without anything that is only assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Crash, Facts, Value
from oomdoctor.diagnosis import GPU_KINDS
from oomdoctor.memory.request import tells_nothing
from oomdoctor.memory.sharding import SUB_GROUP
from oomdoctor.sources.architecture import family_of

LOADING = ("model_load", "to_device", "engine_init", "resume_load", "checkpoint_save")
_ZERO = ("zero1", "zero2", "zero3")
# Code of a model: of transformers or its remote code; of vLLM and SGLang.
_CODE = r"/modeling_([a-z0-9_]{1,40})\.py|/(?:model_executor|srt)/models/([a-z0-9_]{1,40})\.py"
_LAST = 4  # frames: from where a collective is called to where its buffer is made
_NO_MODEL = ("utils", "outputs")  # modeling_utils.py, modeling_attn_mask_utils.py, modeling_outputs.py


class Clues(NamedTuple):
    """facts: those that are stated. trace: the frames of the traceback, in lower case; inner: the innermost of them
    outside torch."""

    crash: Crash
    requested: int
    facts: Mapping[str, Value]
    trace: str
    inner: str

    @property
    def phase(self) -> str:
        return self.crash.phase

    @property
    def of_a_language_model(self) -> bool:
        """Whether the log shows one at work. A message without a traceback shows nothing to the contrary."""
        if self._has("other_models", self.trace):
            return False
        if not self.trace:
            return self.facts.get("framework") in knowledge.lookup("architecture/sizes/frameworks")
        return self._has("language_models", self.trace) or self.of_logits

    @property
    def of_logits(self) -> bool:
        """Whether the request was made where logits are worked on."""
        return self.phase == "loss" or self._has("logits", self.inner)

    @property
    def joins_batches(self) -> bool:
        """Whether what was asked for holds many batches, and so no round number of tokens."""
        return self._has("joined", self.trace)

    @property
    def splits_weights(self) -> bool:
        """Whether the weights are divided or fused in ways of an engine's own."""
        return self._has("splits_weights", self.trace)

    @property
    def of_weights(self) -> bool:
        """Whether the request can only have been made for weights, or for what has their shape."""
        if self.splits_weights or str(self.facts.get("quantization")).startswith("gptq"):
            return False
        unpacks = self.phase in ("forward", "backward") and self._has("unpacks", self.inner)
        return unpacks or self.phase in (*LOADING, "optimizer_step")

    @property
    def of_a_unit(self) -> bool:
        """Whether FSDP may have asked for a unit: where it flattens, gathers, shares out or saves weights."""
        if self.facts.get("parallelism") != "fsdp":
            return False
        return self.phase in (*LOADING, "optimizer_step") or any("fsdp" in frame for frame in self.innermost)

    @property
    def innermost(self) -> list[str]:
        """The last frames, those of torch included."""
        return self.trace.splitlines()[-_LAST:]

    @property
    def sharded(self) -> bool:
        return self.facts.get("parallelism") in (*_ZERO, "fsdp") or "log.sharded" in self.facts

    @property
    def whole_on_the_card(self) -> bool:
        """Whether all weights of the model are known to be on each card."""
        if self.sharded or self.facts.get("offload") not in (None, "none"):
            return False
        return self.facts.get("parallelism") in ("none", "dp", "ddp") or self.facts.get("gpus.count") == 1

    @property
    def under_zero(self) -> bool:
        return self.facts.get("parallelism") in _ZERO

    def zero_share(self, parameters: int) -> int | None:
        """One card's share of all states under ZeRO, as one flat tensor; None where it is unknown or in pieces."""
        if not self.under_zero or self.facts.get("method") == "lora":
            return None
        world = self.number("log.world_size") or self.crash.world_size or self.number("gpus.count")
        share = -(-parameters // world) if world and world > 1 else None
        in_pieces = self.facts.get("parallelism") == "zero3" and share is not None and share > SUB_GROUP
        return None if in_pieces else share

    def number(self, key: str) -> int | None:
        """A stated whole number; a log may print any other thing in its place."""
        value = self.facts.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    def families(self) -> frozenset[str] | None:
        """The families (rules/families) whose code stands in the traceback; None where it names none."""
        found = [one or other for one, other in re.findall(_CODE, self.trace)]
        found = [name for name in found if not name.endswith(_NO_MODEL)]
        known = (family_of({"model_type": name}) for name in found)
        return frozenset(family for family in known if family) if found else None

    def _has(self, what: str, text: str) -> bool:
        """Whether a text has one of the pieces of rules/architecture/sizes.yaml."""
        return any(piece in text for piece in knowledge.lookup(f"architecture/sizes/{what}"))


def clues_of(crash: Crash | None, facts: Facts) -> Clues | None:
    """The clues to a failure's requested size; None where it has none that could tell, or the model is named."""
    if (
        crash is None
        or crash.kind not in GPU_KINDS
        or not crash.requested_bytes
        or tells_nothing(crash.requested_bytes)
    ):
        return None
    stated = {key: fact.value for key, fact in facts.won.items() if not fact.assumed}
    if "model" in stated or any(key.startswith("architecture.") for key in stated):
        return None
    frames = [frame.lower().replace("\\", "/") for frame in crash.frames]
    inner = next((frame for frame in reversed(frames) if "/torch/" not in frame), "")
    return Clues(crash, crash.requested_bytes, stated, "\n".join(frames), inner)
