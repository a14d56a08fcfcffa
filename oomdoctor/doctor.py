"""The one line: sources -> case -> diagnosis -> plan -> open questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oomdoctor import calibration, held, inference, machines, refusals, remarks
from oomdoctor.case import Architecture, Case, Crash, Fact, Facts, Machine, Run, Text, Value
from oomdoctor.deciding import Advice, open_questions
from oomdoctor.diagnosis import Diagnosis, Evidence, diagnose
from oomdoctor.doubts import with_doubts
from oomdoctor.filling_in import filled_in
from oomdoctor.ladder import make_plan, make_plans
from oomdoctor.memory.bill import Missing
from oomdoctor.memory.created import tensors_of
from oomdoctor.memory.lines import Bill
from oomdoctor.memory.tensors import Tensor, match
from oomdoctor.plan import PREFERENCES, SHARDED, Plan, Pricing, Settings
from oomdoctor.pricing import (
    is_priced,
    missing_keys,
    pricing_of,
    repriced,
    run_under,
)
from oomdoctor.questions import Question, with_proposals
from oomdoctor.remedies.rules import all_rules
from oomdoctor.steps import with_edits
from oomdoctor.suggestions.suggestion import Suggestion

if TYPE_CHECKING:
    from oomdoctor.preflight import Preflight
    from oomdoctor.remedies.rule import Rule
    from oomdoctor.sources.log import LogReading
    from oomdoctor.sources.log.watch import Watch


class Findings(NamedTuple):
    """All that is known at the end of the line; what the reports render and the wizard walks through.

    case: with the assumed facts filled in. bill: of the run as it is, None where it cannot be made (missing says
    which fact it lacks). usable_bytes: what one card offers to this run. suggested: what the requested size may be,
    where the model is not known.
    """

    case: Case
    diagnosis: Diagnosis | None = None
    bill: Bill | None = None
    missing: tuple[str, ...] = ()
    usable_bytes: int | None = None
    plan: Plan | None = None
    alternatives: tuple[Plan, ...] = ()
    questions: tuple[Question, ...] = ()
    notes: tuple[Text, ...] = ()
    suggested: tuple[Suggestion, ...] = ()
    warnings: tuple[Preflight, ...] = ()  # of a run that has not failed


def read_log(path: str, watch: Watch | None = None) -> Case:
    """The case that a crash log, a folder of rank logs or `-` (standard input) tells of. Raises UserError.

    watch: is called now and then with how far reading has come.
    """
    from oomdoctor.sources import log

    reading = log.read_log(path, watch)
    if reading.crash is None or reading.crash.kind == "not_oom":
        return Case(crash=reading.crash, origin=path)
    return _case_of(reading, path)


def read_logs(paths: Sequence[str], watch: Watch | None = None) -> Case:
    """The case of the last of several logs of one run, oldest first, with the others beside it. Raises UserError."""
    if len(paths) == 1:
        return read_log(paths[0], watch)
    from oomdoctor import comparison
    from oomdoctor.sources import log
    from oomdoctor.sources.log.watch import part_of

    watches = [part_of(watch, at, len(paths)) for at in range(len(paths))]
    # the settings of a run that went well count too
    cases = [_case_of(log.read_log(path, part), path) for path, part in zip(paths, watches, strict=True)]
    return comparison.beside(cases)


def _case_of(reading: LogReading, path: str) -> Case:
    from oomdoctor.sources.log.evidence import facts_of
    from oomdoctor.sources.log.overtime import facts_over_time

    crash = reading.crash
    case = Case(crash=crash, origin=path)
    if crash is None:
        return case.know(facts_of(reading.lines))
    said = [*facts_of(reading.lines, crash.line), *facts_over_time(reading.lines, crash)]
    outside = calibration.outside_of_torch(crash)
    proven = [*inference.evaluates(crash), *([outside] if outside else [])]
    case = case.know([*machines.facts_of_crash(crash), *said, *proven])
    return case.know(inference.loop_of_its_own(crash, case.facts.get("framework")))


def read_card(path: str) -> Case:
    """The case of a run card. Raises UserError."""
    from oomdoctor.sources.config.card import read_card as facts_of_card

    return Case(origin=path).know(facts_of_card(path))


def with_configs(case: Case, arguments: Sequence[str], stated: Sequence[Fact] = ()) -> Case:
    """The case with what configs of frameworks say of its run. stated: what wins over them. Raises UserError."""
    if not arguments:
        return case
    from oomdoctor.sources.config.reader import read_configs

    configs = read_configs(arguments, stated)
    said = (fact for fact in configs.facts if not inference.is_disproved(fact, case.crash))
    read = case.know(said)._replace(unread=configs.unread, configs=configs.files, given=tuple(arguments))
    return _with_checkpoint(read, stated)


def _with_checkpoint(case: Case, stated: Sequence[Fact]) -> Case:
    """The case with what the model's own files say, where they are on this machine. What configs say wins."""
    from oomdoctor.sources.checkpoint import checkpoint_facts
    from oomdoctor.sources.model import folder_of

    known = case.know(stated).facts.values()
    folder = folder_of(str(known["model"])) if "model" in known else None
    found = checkpoint_facts(folder, known) if folder is not None else []
    return case.know(fact for fact in found if fact.key not in case.facts.won)


def fetched(case: Case) -> Case:
    """The case with what the hub says of its model (`--hub`). Raises UserError where it cannot be fetched."""
    from oomdoctor.sources.hub import fetch
    from oomdoctor.sources.model import folder_of

    name = case.facts.get("model")
    if name is None or folder_of(str(name)) is not None:
        return case
    counted = fetch(str(name))
    return _with_checkpoint(case, ()).know(fact for fact in counted if fact.key not in case.facts.won)


def not_an_oom(case: Case) -> Text:
    """What to say of a log without a memory failure, or with something that only looks like one."""
    crash = case.crash
    if crash is None or crash.signature is None:
        return Text("texts/doctor.no_failure", {"origin": case.origin})
    what = Text(f"signatures/{crash.signature}/title")
    return Text("texts/doctor.look_alike", {"line": crash.line, "what": what})


def examine(case: Case, live: Machine | None = None, prefer: str = "ladder", with_plan: bool = True) -> Findings:
    """Work the case out, from its facts to the open questions. live: what NVML says now, if it was asked.

    Raises UserError where a model or a card is named that nobody knows.
    """
    out = set_out(case, live)
    case, settings, architecture, pricing, notes = out
    findings = Findings(
        case=case,
        diagnosis=diagnosis_of(out),
        bill=pricing.bill(settings),
        missing=missing_keys(settings, architecture) if is_priced(case) else (),
        usable_bytes=pricing.usable(settings),
        notes=(
            *notes,
            *held.notes(case, live, pricing.bill(settings), settings, pricing.usable),
            *remarks.of_the_model(case.facts, architecture),
            *remarks.not_understood(case),
        ),
        suggested=_suggested(case) if architecture is None and is_priced(case) else (),
        warnings=_warnings(case, {**pricing.circumstances, **settings}) if case.crash is None else (),
    )
    return _planned(findings, out, prefer) if with_plan else findings


def _usable_at_crash(settings: Settings, pricing: Pricing) -> int | None:
    """What the card offered then: what is left of the crashed run now was the run itself."""
    return pricing.usable({**settings, "machine.own_leftover_bytes": 0})


class SetOut(NamedTuple):
    """A case ready to be planned: what is known and assumed, flat, and how settings of it are judged."""

    case: Case
    settings: Settings
    architecture: Architecture | None
    pricing: Pricing
    notes: tuple[Text, ...]


def set_out(case: Case, live: Machine | None = None) -> SetOut:
    """The case with all that is assumed, and its prices. Raises UserError as `examine` does."""
    case, architecture, notes = filled_in(case, live)
    settings = {**case.facts.values(), **machines.settings_of(case)}
    return SetOut(case, settings, architecture, pricing_of(case, settings, architecture), notes)


def diagnosis_of(out: SetOut) -> Diagnosis:
    """What died, where and why, as far as the case tells."""
    bill, usable = out.pricing.bill(out.settings), _usable_at_crash(out.settings, out.pricing)
    return diagnose(_evidence(out.case, out.settings, out.architecture, bill, usable))


def planning(out: SetOut, diagnosis: Diagnosis | None) -> tuple[list[Rule], Pricing]:
    """What a plan is made of: the rules that were not tried yet, and prices that know the diagnosis."""
    rules = refusals.left(all_rules(), out.case)
    return rules, out.pricing._replace(circumstances={**out.pricing.circumstances, **_verdicts(diagnosis)})


def plan_alone(case: Case, prefer: str = "ladder") -> Findings:
    """The bill and one plan of a run without a crash, for who asks about many machines: no diagnosis, no questions, no
    edits. Where this order leads nowhere, another may serve. Raises UserError as `examine` does."""
    case, settings, architecture, pricing, _ = set_out(case)
    findings = Findings(
        case, None, pricing.bill(settings), missing_keys(settings, architecture), pricing.usable(settings)
    )
    rules = refusals.left(all_rules(), case)
    spread = _spread(rules, settings, pricing) if prefer == SHARDED else None
    if spread is not None:
        return findings._replace(plan=spread)
    for order in dict.fromkeys((prefer, *PREFERENCES)):
        if order not in PREFERENCES or prefer == "lossless" != order:
            continue
        plan = make_plan(rules, settings, pricing, order)
        if plan.fits or findings.plan is None:
            findings = findings._replace(plan=plan)
        if plan.fits:
            break
    return findings


def _warnings(case: Case, known: Settings) -> tuple[Preflight, ...]:
    from oomdoctor.preflight import warnings_of

    return warnings_of(known, case.facts)


def _suggested(case: Case) -> tuple[Suggestion, ...]:
    """What the size of the request says of the model that nobody names."""
    from oomdoctor.suggestions.search import suggested

    return suggested(case.crash, case.facts)


def _spread(rules: Iterable[Rule], settings: Settings, pricing: Pricing) -> Plan | None:
    """The plan that only splits the run over its cards; None for one card, which then does not load what makes it."""
    if settings.get("gpus.count", 1) == 1:
        return None
    from oomdoctor.sharded import sharded_plan

    return sharded_plan(rules, settings, pricing)


def _planned(findings: Findings, out: SetOut, prefer: str) -> Findings:
    rules, pricing = planning(out, findings.diagnosis)
    plans = make_plans(rules, out.settings, pricing)
    spread = _spread(rules, out.settings, pricing)
    if spread is not None:
        plans[SHARDED] = spread
    plan = plans.pop(prefer if prefer in plans else PREFERENCES[0])
    plan = with_edits(plan, {**pricing.circumstances, **out.settings})

    def reprice(settings: Settings, answered: str) -> Pricing:
        return repriced(pricing, out.case, out.settings, settings, answered)

    facts, unknown = findings.case.facts, findings.case.unknown_answers
    advice = Advice(facts, plan, out.settings, rules, pricing, reprice, findings.missing, unknown)
    return findings._replace(
        plan=refusals.listed(with_doubts(plan, advice), all_rules(), findings.case),
        alternatives=tuple(with_doubts(other, advice) for other in plans.values()),
        questions=with_proposals(open_questions(advice), findings.suggested),
    )


def _evidence(
    case: Case, settings: Settings, architecture: Architecture | None, bill: Bill | None, usable: int | None
) -> Evidence:
    evidence = Evidence(case.crash, case.machine, bill, usable_bytes=usable, growth=_growth(case.facts))
    crash, fits = case.crash, bill is not None and usable is not None and bill.device.likely <= usable
    if architecture is None or not is_priced(case) or (fits and crash is None):
        return evidence
    static = bill.static if bill is not None and not fits else ()  # it only tells what makes a run impossible
    if crash is None:
        return evidence._replace(static=static)
    try:
        tensors = _asked_for(crash, run_under(case.facts, settings), architecture)
    except Missing:
        return evidence
    return evidence._replace(static=static, tensors=tensors)


def _asked_for(crash: Crash, run: Run, architecture: Architecture) -> tuple[Tensor, ...]:
    """The tensors of the run that the request fits. Raises Missing."""
    if crash.requested_bytes is None:
        return ()
    return match(crash.requested_bytes, tensors_of(run, architecture, crash.phase), crash.kind)


def _growth(facts: Facts) -> tuple[int, int, int] | None:
    """First and last bytes and the number of the printed figures that grew; None where the log shows no growth."""
    first, last, figures = (facts.get(f"log.memory_{name}") for name in ("first_bytes", "last_bytes", "figures"))
    grows = facts.get("log.memory_grows") is True and None not in (first, last, figures)
    return (int(first), int(last), int(figures)) if grows else None


def _verdicts(diagnosis: Diagnosis | None) -> dict[str, Value]:
    """What the diagnosis adds to the circumstances."""
    if diagnosis is None:
        return {}
    likely = diagnosis.fragmentation is not None and diagnosis.fragmentation.likely
    return {
        "crash.cause": diagnosis.cause,
        "crash.fragmentation_likely": likely,
        "crash.impossible": bool(diagnosis.impossible),
    }
