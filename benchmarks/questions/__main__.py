"""How few questions lead to the right next step: the interview held on crash logs with a person who knows what the
log's expert knew.

    python -m benchmarks.questions

After each interview, all that the expert knows beside is told too: the first step must stay. Prints the misses, and
exits 1 where more than one in twenty changed it or where half of the logs took more than three questions.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import yaml

from benchmarks.questions.interviews import Interview, hold, typed_answers
from oomdoctor import doctor

CORPUS = Path(__file__).parents[2] / "tests" / "corpus"
MOST_QUESTIONS, LEAST_KEPT = 3, 0.95


def interviews() -> dict[str, Interview]:
    """The interview about each log, by its name."""
    answers = yaml.safe_load((CORPUS / "answers.yaml").read_text(encoding="utf-8"))
    return {
        name: hold(doctor.read_log(str(CORPUS / f"{name}.log")), typed_answers(known))
        for name, known in answers.items()
    }


def main() -> int:
    held = interviews()
    for name, each in held.items():
        print(f"{name:48} {each.step} {', '.join(each.asked) or '-'}  {max(each.waited):.2f} s")
    missed = {name: each for name, each in held.items() if each.step != each.step_of_all}
    for name, each in missed.items():
        print(f"changed: {name}: {each.step} -> {each.step_of_all}, asked {', '.join(each.asked) or 'nothing'}")
    counts = [len(each.asked) for each in held.values()]
    kept = 1 - len(missed) / len(held)
    waits = sorted(wait for each in held.values() for wait in each.waited)
    print(f"{len(held)} logs: {statistics.median(counts):g} questions (median), {max(counts)} at most")
    print(f"first step kept where all else was told: {kept:.1%}")
    print(f"wait before a question or the plan: {statistics.median(waits):.2f} s (median), {waits[-1]:.2f} s at most")
    return int(statistics.median(counts) > MOST_QUESTIONS or kept < LEAST_KEPT)


if __name__ == "__main__":
    sys.exit(main())
