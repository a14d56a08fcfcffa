"""A patient: a training script as data. Whatever a person could change in it stands where they would change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Place = Mapping[str, Any]


@dataclass(frozen=True)
class Card:
    """A GPU. Sizes in MiB.

    total_mib: what torch calls total. context_mib: CUDA's context, outside of torch. others: (pid, MiB) of other
    processes on the card. capability: compute capability.
    """

    total_mib: int
    context_mib: int = 420
    others: tuple[tuple[int, int], ...] = ()
    capability: float = 8.6


@dataclass(frozen=True)
class Data:
    """The samples: lengths in tokens (before any truncation), in the order in which they come.

    eval_lengths: of the evaluation set; empty where there is none.
    """

    lengths: tuple[int, ...]
    eval_lengths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Patient:
    """One training setup.

    script: which kind of script runs: `trainer` (transformers.Trainer), `sft` (TRL's SFTTrainer), `dpo` (TRL's
    DPOTrainer), `loop` (a loop of one's own). task: sft | classification | dpo.
    model: the keys of config.json, model_type included. checkpoint_dtype: of the weights on disk.
    places: where a setting stands -> its keys and values, just as the library takes them: `TrainingArguments` (or
    `SFTConfig`, `DPOConfig`), `from_pretrained`, `BitsAndBytesConfig`, `LoraConfig`, `tokenizer`, `environment`, and
    for a loop of one's own `loop` (run-card keys); `Trainer` (`preprocess_logits_for_metrics`: true) and
    `prepare_model_for_kbit_training`, its arguments. A place that is absent is not in the script.
    faults: what is wrong with the script: `keeps_outputs` (all of the training's, logits included), `keeps_eval_logits`
    (a metric of all predictions), `keeps_losses` (a loop's evaluation adds up losses with their graphs).
    says: how much its log tells: `all` (config, arguments, banner), `some` (arguments and banner), `little` (nothing of
    its own).
    """

    id: str
    script: str
    task: str
    model: Mapping[str, Any]
    card: Card
    data: Data
    places: Mapping[str, Place] = field(default_factory=dict)
    checkpoint_dtype: str = "bfloat16"
    faults: frozenset[str] = frozenset()
    says: str = "all"

    def with_settings(self, place: str, settings: Place) -> Patient:
        """The patient with settings of one place put over those that stand there."""
        changed = {**self.places.get(place, {}), **settings}
        return replace(self, places={**self.places, place: changed})


@dataclass(frozen=True)
class Outcome:
    """What came of a run. ended: `ran` | `out_of_memory` | `failed` (another error, or too long).

    peak_bytes: the most live bytes of tensors (rounded as torch's allocator rounds), workspaces included, the context
    not; of a run that died, up to its death. log: what it wrote to standard error and output. error: the last line of
    another error.
    """

    ended: str
    peak_bytes: int
    log: str
    seconds: float
    error: str = ""
