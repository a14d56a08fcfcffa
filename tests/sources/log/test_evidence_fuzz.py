"""No log makes the reader of evidence fail, and whatever it finds is a value of its key."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor import fields, knowledge
from oomdoctor.sources.log.evidence import facts_of
from oomdoctor.sources.log.lines import Line

ENTRIES = knowledge.load("evidence").values()
SAMPLES = [sample["line"] for entry in ENTRIES if "pattern" in entry for sample in entry["samples"]]
SAMPLES += [line for e in ENTRIES if "settings" in e for s in e.get("samples", ()) for line in s["text"].splitlines()]
WORDS = sorted({word for line in SAMPLES for word in re.split(r"(\W+)", line) if word})

LINES = st.one_of(
    st.sampled_from(SAMPLES),
    st.lists(st.sampled_from(WORDS), max_size=25).map("".join),
    st.text(max_size=60),
)


@settings(max_examples=250, deadline=None)
@given(st.lists(LINES, max_size=30), st.one_of(st.none(), st.integers(0, 30)))
def test_any_mixture_of_lines_gives_only_values_that_their_keys_take(texts: list[str], crash_line: int | None) -> None:
    for fact in facts_of([Line(number, text) for number, text in enumerate(texts, 1)], crash_line):
        assert fact.value is not None and fact.source.startswith("log:") and fact.reason
        field = fields.FIELDS.get(fact.key)
        if field is None:
            assert fact.key.startswith(("log.", "versions.", "architecture."))
        elif field.kind == "choice":
            assert fact.value in field.choices
        elif field.kind in ("count", "number", "flag"):
            assert fields.parse(fact.key, str(fact.value)) == fact.value
