"""Crash and bill together: what died, where, why, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

from oomdoctor.case import Text
from oomdoctor.memory.tensors import Tensor


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """cause: an id such as foreign_process, fragmentation, states_too_big, activations, logits, host_ram.

    because: the sentences that lead to it, each with its numbers. explained_bytes: what the bill accounts for of the
    memory in use at the crash; used_bytes: that memory. Both None where either is unknown.
    """

    cause: str
    title: Text
    because: tuple[Text, ...] = ()
    confidence: str = "medium"
    fragmentation_likely: bool = False
    fragmentation_why: Text | None = None
    tensors: tuple[Tensor, ...] = ()
    used_bytes: int | None = None
    explained_bytes: int | None = None
    impossible: tuple[Text, ...] = ()  # arithmetic that no smaller batch can change
