"""From a requested size alone: the models of the catalogue that have a tensor of that size, where nobody names one.

A suggestion is never a fact: it is shown, and offered where the model is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable

from oomdoctor.case import Crash, Facts, Text
from oomdoctor.memory.tensors import Tensor
from oomdoctor.suggestions.candidates import candidates, with_the_adapter
from oomdoctor.suggestions.clues import Clues, clues_of
from oomdoctor.suggestions.fitting import ATTENTION, EITHER, MLP, fits, reading_of
from oomdoctor.suggestions.suggestion import Suggestion

_MOST = 4  # more different tensors than this fit by chance, and say nothing
_MANY_TOKENS = 2**14
_GROWN = 0.25  # weight of a table with tokens added, beside 1 for one as it was published: most people add none


def suggested(crash: Crash | None, facts: Facts) -> tuple[Suggestion, ...]:
    """What the requested size may be, the likelier first; nothing where the model is known or the size says too little.

    Costs some milliseconds where it searches at all.
    """
    clues = clues_of(crash, facts)
    if clues is None or not clues.of_a_language_model:
        return ()
    found = _with_the_adapter(clues, _groups(clues))
    return tuple(sorted(found, key=_place)) if len(found) <= _MOST else ()


def _place(suggestion: Suggestion) -> tuple[bool, float]:
    """A batch of many tokens is rare, and so is a table with tokens added; a tensor of many models is common."""
    weight = _GROWN if suggestion.tensor.key == "grown_table" else 1.0
    return (suggestion.tokens or 0) > _MANY_TOKENS, -weight * len(suggestion.models)


def _with_the_adapter(clues: Clues, found: list[Suggestion]) -> list[Suggestion]:
    names = [name for suggestion in found for name in suggestion.models]
    kept = set(with_the_adapter(clues, names))
    cut = (each._replace(models=tuple(name for name in each.models if name in kept)) for each in found)
    return [each for each in cut if each.models]


def _groups(clues: Clues) -> list[Suggestion]:
    """All that fits, models that share a tensor together."""
    tensors: dict[Hashable, list[Tensor]] = {}
    models: dict[Hashable, list[str]] = {}
    reading = reading_of(clues)
    for name, entry in candidates(clues) if reading.anything else ():
        for group, made in fits(reading, name, entry):
            tensors.setdefault(group, []).append(made)
            names = models.setdefault(group, [])
            if name not in names:
                names.append(name)
    return [_suggestion(made, models[group]) for group, made in tensors.items()]


def _suggestion(tensors: list[Tensor], names: list[str]) -> Suggestion:
    first = tensors[0]
    if {ATTENTION, MLP} <= {made.key for made in tensors}:
        first = first._replace(key=EITHER, name=Text(f"texts/tensor.{EITHER}"))
    tokens = first.shape[0] if first.key == "any_logits" else None
    return Suggestion(first, tuple(names), len({made.bytes for made in tensors}) == 1, tokens)
