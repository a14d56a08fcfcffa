"""The figures: how many run in the end, in how many steps, at what loss, and whether what was said was so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.clinic.baselines import Attempt
from benchmarks.clinic.loop import Course
from benchmarks.clinic.patient import Patient
from benchmarks.clinic.truth import Truth
from benchmarks.clinic.ways import lost, rung_of


@dataclass(frozen=True)
class Finding:
    """All that is known of one patient in the end. seconds: by what took them."""

    course: Course
    truth: Truth
    baselines: Mapping[str, Attempt]
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def patient(self) -> Patient:
        return self.course.patient

    @property
    def cured(self) -> bool:
        return self.course.end == "cured"

    @property
    def curable(self) -> bool:
        """A cure that was found counts, should the search have missed it."""
        return self.truth.curable or self.cured or any(attempt.cured for attempt in self.baselines.values())

    @property
    def false_alarm(self) -> bool:
        return self.course.end == "impossible" and self.curable

    @property
    def first_plan_right(self) -> bool:
        """The first plan cured at once, or said rightly that nothing will."""
        plan = self.course.first_plan
        if not self.curable:
            return self.course.end == "impossible" and not self.course.visits
        return plan is not None and plan.ended == "ran"

    @property
    def lost(self) -> frozenset[str]:
        return lost(self.patient, self.course.after)

    @property
    def needless(self) -> bool:
        """The cure gives something up although a way that gives up nothing fits."""
        return self.cured and bool(self.lost) and self.truth.lossless

    @property
    def dearer(self) -> bool:
        """The cure stands on a dearer rung than needed."""
        rung = self.truth.rung
        return self.cured and rung is not None and rung_of(self.patient, self.course.after) > max(1.0, rung)


@dataclass(frozen=True)
class Row:
    """One way of treating: shares of patients, steps of those cured, and losses among those cured."""

    name: str
    curable: int
    cured: float
    steps: float
    lossy: float
    needless: float


def row(name: str, attempts: Sequence[tuple[Finding, bool, int, Patient]]) -> Row:
    """A line of the table, of (finding, cured, steps, patient afterwards)."""
    among = [each for each in attempts if each[0].curable]
    cured = [each for each in among if each[1]]
    lossy = [each for each in cured if lost(each[0].patient, each[3])]
    return Row(
        name,
        len(among),
        share(len(cured), len(among)),
        share(sum(each[2] for each in cured), len(cured)),
        share(len(lossy), len(cured)),
        share(sum(each[0].truth.lossless for each in lossy), len(cured)),
    )


def rows(findings: Sequence[Finding]) -> Iterator[Row]:
    yield row("oomdoctor", [(each, each.cured, len(each.course.visits), each.course.after) for each in findings])
    for name in findings[0].baselines if findings else ():
        tried = [(each, each.baselines[name]) for each in findings]
        yield row(name, [(each, attempt.cured, attempt.steps, attempt.after) for each, attempt in tried])


def share(part: float, whole: float) -> float:
    """A share, 0 of nothing."""
    return part / whole if whole else 0.0


def misses(finding: Finding) -> Iterator[str]:
    """What went wrong with a patient, by kind."""
    course = finding.course
    if finding.false_alarm:
        yield "false alarm"
    elif finding.curable and not finding.cured:
        yield f"not cured ({course.end})"
    if course.false_hope:
        yield "false hope"
    if not finding.first_plan_right and finding.curable:
        yield "first plan wrong"
    if not finding.curable and course.end != "impossible":
        yield "impossible, not said"
    if finding.needless:
        yield "needless loss"
    if finding.dearer:
        yield "dearer than needed"


def summary(findings: Sequence[Finding]) -> str:
    """The table, as text."""
    count = len(findings)
    curable = [each for each in findings if each.curable]
    hopes = sum(each.course.false_hope for each in findings)
    alarms = sum(each.false_alarm for each in findings)
    first = sum(each.first_plan_right for each in findings)
    dearer = sum(each.dearer for each in curable)
    lines = [f"{count} patients, {len(curable)} of them curable", ""]
    lines.append(f"{'':18} {'cured':>7} {'steps':>7} {'lossy':>7} {'needlessly':>11}")
    for each in rows(findings):
        lines.append(f"{each.name:18} {each.cured:7.0%} {each.steps:7.2f} {each.lossy:7.0%} {each.needless:11.0%}")
    lines += [
        "",
        f"first plan right  {share(first, count):6.1%}  ({first} of {count}; of the impossible ones: said at once)",
        f"false hopes       {share(hopes, count):6.1%}  ({hopes})",
        f"false alarms      {share(alarms, count):6.1%}  ({alarms})",
        f"dearer than needed {share(dearer, len(curable)):5.1%}  ({dearer})",
    ]
    return "\n".join(lines)
