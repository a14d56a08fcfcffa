"""What a run is taken to be given beside its text, where nobody says: images, the text that an encoder reads."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoctor.case import Architecture, Facts, Stack, Text
from oomdoctor.fields import run_of


def notes(facts: Facts, arch: Architecture) -> Iterator[Text]:
    """What is assumed, in words, for each stack that runs before the model's own."""
    for stack in arch.stacks:
        if stack.role == "encoder" and "max_source_length" not in facts.won:
            yield Text("texts/model.source_assumed")
        elif stack.role == "vision":
            yield from _of_images(facts, arch, stack)


def _of_images(facts: Facts, arch: Architecture, stack: Stack) -> Iterator[Text]:
    run = run_of(facts.values())
    if "images_per_sample" not in facts.won:
        yield Text("texts/model.images_assumed", {"count": run.images(arch)})
    if run.images(arch) and not stack.arch.tokens and "max_pixels" not in facts.won:
        yield Text("texts/model.pixels_assumed", {"pixels": run.pixels})
