"""What is to be said of a case beside its diagnosis: of its model, and of settings that nobody understood."""

from __future__ import annotations

from oomdoctor.case import Architecture, Case, Facts, Text
from oomdoctor.memory.weights import parameters
from oomdoctor.sources.model import family_note

# Share by which the count of a checkpoint's weights may differ from that of its shape: buffers and tied copies that are
# stored as well.
_SAME_COUNT = 0.02
_UNREAD_MOST = 20  # settings that are named one by one


def of_the_model(facts: Facts, architecture: Architecture | None) -> tuple[Text, ...]:
    """That it is unknown, priced by another family, counted otherwise, or what was taken of its inputs."""
    if architecture is None and facts.get("model") is not None:
        return (Text("texts/doctor.model_unknown", {"name": facts.get("model")}),)
    note = family_note(facts.values()) if architecture is not None else None
    counted = _counted_otherwise(facts, architecture)
    found = tuple(each for each in (note, counted) if each is not None)
    if architecture is None or not architecture.stacks:
        return found
    from oomdoctor import inputs

    return (*found, *inputs.notes(facts, architecture))


def _counted_otherwise(facts: Facts, architecture: Architecture | None) -> Text | None:
    """That the files of the model hold another number of weights than its shape has."""
    stored = facts.get("config.parameters")
    if architecture is None or stored is None:
        return None
    counted = parameters(architecture)
    if abs(stored - counted) <= _SAME_COUNT * stored:
        return None
    return Text("texts/configs.counted_otherwise", {"stored": stored, "counted": counted})


def not_understood(case: Case) -> tuple[Text, ...]:
    """What the configs hold and nobody understood, each with its place."""
    shown = tuple(
        Text("texts/configs.not_understood", {"key": each.key, "where": each.source.partition(":")[2], "why": each.why})
        for each in case.unread[:_UNREAD_MOST]
    )
    more = len(case.unread) - _UNREAD_MOST
    return (*shown, Text("texts/configs.not_understood_more", {"count": more})) if more > 0 else shown
