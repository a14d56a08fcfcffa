"""The report as a file: nothing private, nothing that a log could smuggle in, and pictures that add up."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oomdoctor import commands, doctor
from oomdoctor.case import Text
from oomdoctor.memory.lines import Line, Range, with_line
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.html import HtmlPage
from oomdoctor.report.markdown import MarkdownPage
from oomdoctor.report.picture import Picture, draw, picture_of
from oomdoctor.report.private import redacted
from oomdoctor.report.written import as_html, as_markdown
from oomdoctor.units import GIB

LOG = Path(__file__).parents[2] / "examples" / "llama2-7b-lora-3090.log"


@pytest.fixture(scope="module")
def findings() -> doctor.Findings:
    return doctor.examine(doctor.read_log(str(LOG)))


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("/home/alice/run/train.py", "/home/USER/run/train.py"),
        (r"C:\Users\Bob\train.py", r"C:\Users\USER\train.py"),
        ("/Users/carol/x", "/Users/USER/x"),
        ("hf_" + "a1" * 17, "KEY"),
        ("WANDB_API_KEY=" + "0" * 12, "WANDB_API_KEY=KEY"),
        ("token: abcdefgh", "token: KEY"),
        ("mail me at a.b@example.co.uk", "mail me at MAIL"),
        ("master 10.12.0.7:29500", "master ADDRESS:29500"),
        ("127.0.0.1:29500", "127.0.0.1:29500"),
        ("torch 2.6.0 and driver 535.104.05 stay", "torch 2.6.0 and driver 535.104.05 stay"),
        ("12.58 GiB of weights, tokenizer: fast", "12.58 GiB of weights, tokenizer: fast"),
    ],
)
def test_private_details_are_replaced_and_figures_are_not(said: str, left: str) -> None:
    assert redacted(said) == left


def test_this_persons_and_machines_names_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    from oomdoctor.report import private

    private._compiled.cache_clear()
    monkeypatch.setenv("LOGNAME", "wanglei")
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-node-17")
    try:
        assert redacted("wanglei on gpu-node-17 ran wanglei2") == "USER on HOST ran wanglei2"
    finally:
        private._compiled.cache_clear()


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("write", [as_markdown, as_html])
def test_paths_of_the_log_are_private_unless_they_are_wanted(write: object, private: bool, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG.read_text().replace("Tried to allocate", "at /home/alice Tried to allocate"))
    text = write(doctor.examine(doctor.read_log(str(log))), "en", private)  # type: ignore[operator]
    assert ("alice" in text) is not private


class _Elements(HTMLParser):
    """Collects the tags and the links of a document."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_html_needs_nothing_else_and_has_both_pictures(findings: doctor.Findings) -> None:
    found = _Elements()
    found.feed(as_html(findings, "en"))
    assert found.links == [] and found.tags.count("svg") == 2
    assert not {"script", "img", "link", "iframe"} & set(found.tags)


def test_a_log_cannot_put_markup_into_a_report() -> None:
    text = "<script>alert(1)</script> **bold** [x](http://evil) @everyone \x1b[31m | `code"
    html, markdown = HtmlPage(None, "en"), MarkdownPage(None, "en")  # type: ignore[arg-type]
    for page in (html, markdown):
        page.paragraph(text)
        page.table([("a", "1", text)])
        page.code("```\n<b>\n" + text)
    assert "<script" not in html.document("t") and "<b>" not in html.document("t") and "\x1b" not in html.document("t")
    written = markdown.text
    outside = written[: written.index("````")]
    assert "<script" not in outside.replace(r"\<script", "") and "@everyone" not in outside and "\x1b" not in written
    assert r"\*\*bold" in outside and r"\[x\](" in outside and r"\|" in outside
    assert written.count("````\n") == 2  # a fence longer than the one inside


def _pictures(findings: doctor.Findings) -> tuple[Picture, Picture]:
    page, signs = MarkdownPage(None, "en"), dict[str, str]()  # type: ignore[arg-type]
    assert findings.bill and findings.usable_bytes and findings.plan
    total = 24136 * 2**20  # as the log says
    last = findings.plan.steps[-1]
    assert last.bill_after and last.usable
    return (
        picture_of(page, findings.bill, findings.usable_bytes, total, signs),
        picture_of(page, last.bill_after, last.usable, total, signs),
    )


def test_a_picture_is_over_the_edge_by_what_is_missing(findings: doctor.Findings) -> None:
    before, after = _pictures(findings)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    missing = re.search(r"does not fit: ([\d.]+) GiB are missing", readme)
    assert missing and before.over / 2**30 == pytest.approx(float(missing[1]), abs=0.01) and before.free == 0
    assert after.over == 0 and after.free > 0
    for picture in (before, after):
        assert sum(part.size for part in picture.parts) + picture.free == picture.total + picture.over


def test_a_line_has_the_same_letter_in_both_pictures(findings: doctor.Findings) -> None:
    before, after = ({part.name: part.sign for part in picture.parts} for picture in _pictures(findings))
    shared = before.keys() & after.keys()
    assert len(shared) >= 3 and all(before[name] == after[name] for name in shared)


def test_a_drawn_picture_is_as_wide_as_the_page_allows(findings: doctor.Findings) -> None:
    for picture in _pictures(findings):
        page = MarkdownPage(None, "en")  # type: ignore[arg-type]
        draw(page, picture)
        drawn = next(line for line in page.lines if "|" in line)
        left, right = drawn.split("|")
        assert 60 <= len(left) + len(right) <= 80
        assert bool(right) == bool(picture.over)


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", ["--md", "--html"])
def test_the_command_writes_it(kind: str, lang: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["report", kind, "--from-log", str(LOG), "--lang", lang]) == 0
    text = capsys.readouterr().out
    assert "per_device_train_batch_size" in text and not re.search(r"\{\w+(:\w+)?\}", text)


def test_without_an_open_case_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert commands.run(["report"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_can_give_way_does_so_in_the_picture(findings: doctor.Findings) -> None:
    """Slack beyond what is needed, and paged states, are not drawn over the edge of a card that the run fits."""
    assert findings.bill is not None
    lines = [line for line in findings.bill.lines if line.key not in ("allocator_slack", "paged_states")]
    size = Range(0, 40 * GIB, 40 * GIB)
    wide = with_line(findings.bill, Line("paged_states", size, findings.bill.lines[0].formula, Text("x")))
    page = MarkdownPage(None, "en")  # type: ignore[arg-type]
    usable = needed_bytes(wide)
    picture = picture_of(page, wide, usable, usable, {})
    assert (picture.over, picture.free) == (0, 0)
    assert sum(part.size for part in picture.parts) == usable
    assert all(
        any(page.name("line", line.key) == part.name for part in picture.parts)
        for line in lines
        if line.size.likely > usable / 20
    )
