"""What people say about memory, judged (rules/claims), with the bills of two runs that show it.

The two runs are the person's own with a few settings laid over it, or an example's (rules/runs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from oomdoctor import fields, knowledge
from oomdoctor.case import Case, Text, UserError, Value
from oomdoctor.memory.lines import Bill
from oomdoctor.runs import bill_with, settings_of
from oomdoctor.units import MIB

VERDICTS = ("right", "conditional", "wrong", "outdated", "opinion")
_EVIDENCE = ("ran", "read", "derived")  # kinds of evidence that stand for a sentence
_ENOUGH = 0.6  # share of a question's pieces that a claim must have to be an answer
_TOLD_APART = MIB  # bytes below which a line of two bills is called the same


class Claim(NamedTuple):
    """One entry of rules/claims. verdict: one of VERDICTS. compare: `{both, before, after, lines}`, or None."""

    id: str
    topic: str
    verdict: str
    claim: Text
    truth: Text
    evidence: tuple[Text | str, ...] = ()
    compare: Mapping[str, Any] | None = None


class Row(NamedTuple):
    """One line of the two bills, in bytes where each is largest. formula: of the second run, or of the first where
    the second has no such line."""

    key: str
    before: int
    after: int
    formula: Text


class Compared(NamedTuple):
    """Two runs side by side. both: settings laid over the run in both; before, after: those that differ."""

    both: Mapping[str, Value]
    before: Mapping[str, Value]
    after: Mapping[str, Value]
    bills: tuple[Bill, Bill]
    rows: tuple[Row, ...]


@cache
def all_claims() -> tuple[Claim, ...]:
    """All claims, in the order of their files."""
    return tuple(_claim(name, entry) for name, entry in knowledge.load("claims").items())


def _claim(name: str, entry: Mapping[str, Any]) -> Claim:
    return Claim(
        id=name,
        topic=entry["topic"],
        verdict=entry["verdict"],
        claim=Text(f"claims/{name}/claim"),
        truth=Text(f"claims/{name}/truth"),
        evidence=tuple(
            Text(f"texts/claims.evidence_{kind}") if kind in _EVIDENCE else kind for kind in entry["evidence"]
        ),
        compare=entry.get("compare"),
    )


def find(words: Sequence[str]) -> tuple[Claim, ...]:
    """The claim of an id, or those that speak of these words, the nearest first. Raises UserError where none does."""
    question = " ".join(words)
    exact = tuple(claim for claim in all_claims() if claim.id == question)
    pieces = _pieces(question)
    scores = {claim.id: _score(claim, pieces) for claim in all_claims()}
    found = [claim for claim in all_claims() if scores[claim.id] >= _ENOUGH]
    if exact or found:
        return exact or tuple(sorted(found, key=lambda claim: -scores[claim.id]))
    near = fields.nearest(question, [claim.id for claim in all_claims()])
    hint = Text("texts/cli.near", {"near": near}) if near else Text("texts/claims.list_hint")
    raise UserError(f"claims {question}", Text("texts/claims.none_found"), hint)


def _pieces(text: str) -> frozenset[str]:
    """Latin words and figures, and pairs of Chinese characters, which stand for its words."""
    text = text.lower()
    chinese = re.findall("[\u4e00-\u9fff]+", text)
    pairs = (run[at : at + 2] for run in chinese for at in range(max(1, len(run) - 1)))
    return frozenset([*re.findall(r"[a-z0-9]+(?:[._][a-z0-9]+)*", text), *pairs])


def _score(claim: Claim, pieces: frozenset[str]) -> float:
    """The share of the pieces that the claim has; a little more where what people say or its words have them."""
    said, all_of_it = _letters(claim.id)
    hits = sum(piece in all_of_it for piece in pieces)
    closer = sum(piece in said for piece in pieces)
    return (hits + closer / 10) / len(pieces) if pieces else 0.0


@cache
def _letters(name: str) -> tuple[str, str]:
    """What people say and the claim's words, and all its texts, in small letters."""
    entry = knowledge.load("claims")[name]
    said = " ".join([*entry["claim"].values(), *map(str, entry.get("words", ()))]).lower()
    return said, f"{name} {said} {' '.join(entry['truth'].values()).lower()}"


def compared(claim: Claim, run: Case) -> Compared | None:
    """The two runs of a claim, priced. run: what as_a_run or example gave. None: the claim is not about memory.

    Raises UserError for a run without which there is no bill.
    """
    if claim.compare is None:
        return None
    both, before, after = (settings_of(claim.compare.get(side, {})) for side in ("both", "before", "after"))
    bills = (bill_with(run, {**both, **before}), bill_with(run, {**both, **after}))
    rows = tuple(_rows(claim.compare.get("lines", ()), bills))
    return Compared(both, before, after, bills, rows)


def _rows(lines: Sequence[str], bills: tuple[Bill, Bill]) -> list[Row]:
    """The lines that a claim names, else all that differ, the largest first."""
    largest = [_largest(bill) for bill in bills]
    keys = list(lines) or sorted({*largest[0], *largest[1]}, key=lambda key: -max(_size(each, key) for each in largest))
    rows = []
    for key in keys:
        before, after = (_size(each, key) for each in largest)
        if key in {*largest[0], *largest[1]} and (lines or abs(after - before) >= _TOLD_APART):
            rows.append(Row(key, before, after, (largest[1].get(key) or largest[0][key])[1]))
    return rows


def _largest(bill: Bill) -> dict[str, tuple[int, Text]]:
    """Each line's likely bytes and formula, in the phase where it is largest."""
    found: dict[str, tuple[int, Text]] = {}
    for phase in bill.phases:
        for line in phase.lines:
            if line.key not in found or line.size.likely > found[line.key][0]:
                found[line.key] = (line.size.likely, line.formula)
    return found


def _size(largest: Mapping[str, tuple[int, Text]], key: str) -> int:
    return largest[key][0] if key in largest else 0
