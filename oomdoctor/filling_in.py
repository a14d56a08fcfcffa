"""Fills in what nobody said of a run: the card, what is assumed, and what the crash proves or disproves of that."""

from __future__ import annotations

import sys

from oomdoctor import held, inference, machines
from oomdoctor.assumptions import assumptions
from oomdoctor.case import SOURCES, Architecture, Case, Fact, Facts, Machine, Text, UserError
from oomdoctor.inferred_length import inferred_length
from oomdoctor.memory.lines import Bill
from oomdoctor.plan import Settings
from oomdoctor.pricing import bill_under, circumstances_of, counts_under, weights_under
from oomdoctor.sources.model import architecture_for
from oomdoctor.trained_count import adapter_by_count, method_by_count, targets_of_the_model


def filled_in(case: Case, live: Machine | None) -> tuple[Case, Architecture | None, tuple[Text, ...]]:
    """The case with its machine settled and with what is assumed where nothing is known, and the shape of its model."""
    case, notes = machines.settled(case.know(inference.model_by_size(case.facts)), live)
    case = case._replace(machine=held.with_ranks(case))
    case = case.know([*_versions(case), *inference.capability(case.facts, case.crash)])
    circumstances = circumstances_of(case)
    facts = assumptions(case.facts, circumstances)
    architecture = architecture_of(facts)

    def price(tried: Settings) -> Bill | None:
        return bill_under(case, tried, architecture)

    numbers = counts_under(case, architecture)
    method = method_by_count(facts, architecture, numbers)
    if method:  # what else was assumed may have rested on it, as below
        case = case.know(method)
        facts = assumptions(case.facts, circumstances)
    disproved = inference.lighter_weights(facts, case.crash, weights_under(facts, architecture))
    disproved = disproved or inference.heavier_weights(facts, case.crash, architecture)
    if disproved is not None:
        facts = assumptions(case.facts.add([disproved]), circumstances)
    unpacked = inference.unpacked_in_fp32(facts, case.crash, architecture)
    facts = facts.add([unpacked] if unpacked else [])
    facts = facts.add(targets_of_the_model(facts, architecture))
    facts = facts.add(adapter_by_count(facts, architecture, numbers))
    length = inferred_length(facts, case.crash, architecture, price)
    return case._replace(facts=facts.add([length] if length else [])), architecture, notes


def _versions(case: Case) -> list[Fact]:
    """The versions of oomdoctor's own environment, where it is plausibly that of the run: the traceback's packages lie
    in its folder, or nothing has crashed yet and the card is this machine's."""
    frames = case.crash.frames if case.crash is not None else ()
    planned_here = case.crash is None and case.machine.source == "nvml" and case.facts.get("framework") is not None
    if not planned_here and not any("-packages/" in frame for frame in frames):
        return []
    from oomdoctor.sources import environment

    folder = environment.folder_of(frames, sys.path)
    if folder is None and not planned_here:
        return []
    name = "same_card" if folder is None else "same_folder"
    return environment.versions_here(Text(f"texts/environment.{name}", {"folder": folder}), case.facts.values())


def architecture_of(facts: Facts) -> Architecture | None:
    """The shape of the case's model, None where nothing names one.

    Raises UserError for a model that a person named and nobody knows; what only the log has is then of no use.
    """
    try:
        return architecture_for(facts.values())
    except UserError:
        named = [fact for key, fact in facts.won.items() if key == "model" or key.startswith("architecture.")]
        if any(fact.rank < SOURCES.index("log") for fact in named):
            raise
        return None
