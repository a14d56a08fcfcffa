"""The report on the screen: what it says, in both languages, at every width, and what it never lets through."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from oomdoctor import knowledge
from oomdoctor.case import Case, Crash, Fact, Gpu, Holder, Machine, Text
from oomdoctor.doctor import Findings
from oomdoctor.plan import Plan, Skip
from oomdoctor.remedies.rule import Cost
from oomdoctor.report import terminal
from oomdoctor.report.page import Page
from oomdoctor.report.steps import cost_text
from oomdoctor.report.wrap import cells
from oomdoctor.units import GIB, MIB
from tests.report import samples

LANGS, WIDTHS = ("en", "zh"), (40, 60, 80, 120)
BOTH = (False, True)  # at a glance, and in full


def shown(findings: Findings, lang: str = "en", width: int = 80, full: bool = True) -> str:
    out = io.StringIO()
    terminal.show(findings, lang, terminal.console(file=out, width=width), full)
    return out.getvalue()


def flat(text: str) -> str:
    """The report as one line, so that a sentence is found wherever it was wrapped."""
    return " ".join(text.split())


def spaceless(text: str) -> str:
    return "".join(text.split())


# What samples.findings() must show. Likely: 12.55 + 11.2 + 3.0 + 0.6 = 27.35. Needed (see memory/room): torch's own
# likely 26.75, high 12.55 + 1.1 x 14.2 = 28.17, so 27.46 x 1.045 + 0.6 = 29.30; less 23.24, 6.05 are missing. After the
# step, likely 16.0 and high 12.55 + 1.1 x 3.45: 16.17 x 1.045 + 0.6 = 17.50.
@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_section_stands_in_the_report(lang: str, width: int) -> None:
    report = spaceless(shown(samples.findings(), lang, width))
    texts = knowledge.load("texts")
    for name in ("crash", "why", "bill", "facts", "notes", "skipped", "alternatives", "questions", "plan", "now"):
        assert spaceless(texts[f"report.heading_{name}"][lang]) in report
    for said in (
        "12.55GiB",
        "11.20GiB",
        "27.35GiB",
        "23.24GiB",
        "29.30GiB",
        "6.05GiB",
        "17.50GiB",
        "9.00GiB",
        "500.00MiB",
    ):
        assert said in report
    assert "per_device_train_batch_size4->1" in report
    assert "meta-llama/Llama-2-7b-hf" in report


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("full", BOTH)
def test_only_code_is_wider_than_the_screen(lang: str, width: int, full: bool) -> None:
    wide = [line for line in shown(samples.findings(), lang, width, full).splitlines() if cells(line) > width]
    assert wide == [line for line in wide if line.startswith("    gradient_accumulation_steps=4,  # [bold]not markup")]
    assert len(wide) == 1


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("full", BOTH)
def test_no_number_is_broken_and_no_unit_left_alone(lang: str, width: int, full: bool) -> None:
    report = shown(samples.findings(), lang, width, full)
    assert not re.search(r"\n\s*(GiB|MiB|%)", report)
    assert not re.search(r"\d[.,]?\n *[.,]?\d", report)


@pytest.mark.parametrize("lang", LANGS)
def test_what_to_do_stands_last(lang: str) -> None:
    report = shown(samples.findings(), lang)
    headings = [report.rindex(knowledge.load("texts")[f"report.heading_{name}"][lang]) for name in ("plan", "now")]
    assert headings == sorted(headings)
    assert "gradient_accumulation_steps" in report.rstrip().splitlines()[-1]


@pytest.mark.parametrize("full", BOTH)
def test_english_report_is_plain_ascii_when_it_is_piped(full: bool) -> None:
    assert shown(samples.findings(), full=full).isascii()


@pytest.mark.parametrize("full", BOTH)
def test_a_pipe_gets_no_escapes_and_a_terminal_gets_colours(full: bool) -> None:
    assert "\x1b" not in shown(samples.findings(), full=full)
    out = io.StringIO()
    colourful = Console(file=out, force_terminal=True, color_system="standard", width=80)
    terminal.show(samples.findings(), "en", colourful, full)
    assert "\x1b[" in out.getvalue()
    assert re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()) == shown(samples.findings(), full=full)


def test_plain_console_has_no_colours_even_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    terminal.show(samples.findings(), "en", terminal.console(plain=True, file=out, width=80))
    assert "\x1b[3" not in out.getvalue()


@pytest.mark.parametrize("full", BOTH)
def test_nothing_of_the_log_is_markup_or_reaches_the_terminal_as_an_escape(full: bool) -> None:
    evil = "CUDA out of memory [red]x[/red] [/] \x1b]0;title\x07 \x1b[2J \u202e [link=http://a]b[/link]"
    crash = samples.crash(text=evil, frames=("[bold]f.py:1 in \x1b[31mg",))
    report = shown(samples.findings(case=Case(facts=samples.facts(), crash=crash)), full=full)
    assert "[red]x[/red]" in report and ("[bold]f.py:1" in report or not full)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", report)


@pytest.mark.parametrize("full", BOTH)
def test_code_is_neither_wrapped_nor_marked_up(full: bool) -> None:
    after = samples.how().after.splitlines()[1]
    assert f"    {after}" in shown(samples.findings(), width=40, full=full).splitlines()


def test_assumed_facts_are_marked_and_found_ones_have_their_line() -> None:
    report = flat(shown(samples.findings()))
    assert "Assumed, because nothing was found; [?] can change the plan: [?] max_length = 2048" in report
    assert "2048 is taken for now: a guess." in report
    assert "model = meta-llama/Llama-2-7b-hf (line 3)" in report
    assert "the configuration train.yaml: lora.target_modules = q, v (line 7)" in report


def test_a_step_that_frees_what_others_hold_makes_room() -> None:
    """17.50 GiB needed and 16.00 GiB usable: 4 GiB more once the other process is gone."""
    freeing = samples.step(samples.bill(12.55, 2.7, 0.75, 0.6))._replace(
        change={"machine.foreign_bytes": 0},
        before={"machine.foreign_bytes": 4 * GIB},
    )
    report = flat(shown(samples.findings(plan=samples.plan(freeing), usable_bytes=16 * GIB)))
    assert "needs 17.50 GiB of 20.00 GiB" in report and "of 16.00 GiB" not in report
    assert "memory that other processes hold: 4.00 GiB -> 0 B" in report and "machine." not in report


def test_what_the_reader_of_logs_keeps_for_itself_is_not_shown() -> None:
    facts = samples.facts().add([Fact("log.shards", 81, "log:21"), Fact("architecture.hidden_size", 8192, "log:9")])
    report = shown(samples.findings(case=Case(facts=facts, crash=samples.crash())))
    assert "log.shards" not in report and "architecture" not in report


def test_rules_that_the_kind_of_failure_rules_out_are_not_listed() -> None:
    silent = Skip(samples.rule("flash", 5), Text("texts/plan.silent", {"key": "crash.kind", "value": "kv_cache"}))
    plan = samples.plan(samples.step())._replace(skipped=(silent,))
    assert "flash" not in shown(samples.findings(plan=plan))


def test_alternatives_without_a_price_are_no_choice() -> None:
    step = samples.step(None, fits=None, saves=None)
    findings = samples.findings(bill=None, plan=samples.plan(step, fits=None))
    assert "Other ways" not in shown(findings)


def test_a_fact_that_lost_is_named() -> None:
    assert "optim = adamw_bnb_8bit (the log, line 18) was set aside." in flat(shown(samples.findings()))


def test_what_others_hold_is_taken_off_the_card_and_named() -> None:
    report = flat(shown(samples.findings()))
    assert "23.57 GiB in all, less 335.00 MiB that others hold" in report
    assert "335.00 MiB by process 4242" in report


def test_an_unknown_card_is_said_and_never_counts_as_zero() -> None:
    step = samples.step(samples.bill(12.55, 2.7, 0.75, 0.6), fits=None)
    findings = samples.findings(usable_bytes=None, plan=samples.plan(step, fits=None))
    report = flat(shown(findings))
    assert "How much memory the card has is not known" in report
    assert "the card must be known: --set gpus.name=..." in report
    assert "0 B" not in report.replace(".00 B", "")


def test_an_unpriced_plan_says_what_is_missing() -> None:
    step = samples.step(None, fits=None, saves=None)
    findings = samples.findings(
        bill=None, missing=("model",), usable_bytes=None, plan=samples.plan(step, fits=None), alternatives=()
    )
    report = flat(shown(findings))
    assert "The bill cannot be added up: model is not known." in report
    assert "Buys: not worked out in bytes" in report
    assert "To say how much each saves, model must be known: --set model=..." in report


def test_a_plan_that_does_not_fit_says_so_at_the_end() -> None:
    step = samples.step(samples.bill(24.0, 2.7, 0.75, 0.6), fits=False)
    report = shown(samples.findings(plan=samples.plan(step, fits=False)))
    end = flat(report[report.rindex("What to do now") :])
    assert "[x] All of these together are not enough: needs 29.47 GiB of 23.24 GiB" in end


def test_likely_figures_that_fit_without_reserve_are_called_tight() -> None:
    """Likely 22.60 GiB. Needed: (22.0 + 2 + 1.1 x 20.0) / 2 x 1.045 + 0.6 = 24.64 GiB, more than the 23.24 on offer."""
    findings = samples.findings(bill=samples.bill(2.0, 18.0, 2.0, 0.6), plan=None)
    assert "[!] Likely figures fit" in shown(findings)


def test_a_failure_that_was_survived_is_no_alarm() -> None:
    findings = samples.findings(case=Case(facts=samples.facts(), crash=samples.crash(fatal=False)))
    report = flat(shown(findings))
    assert "[!] The GPU ran out of memory" in report
    assert "The run survived, so nothing has to be changed at once." in report


def test_host_memory_is_not_called_gpu_memory_and_gets_no_bill() -> None:
    crash = Crash("host_oom_killed", "dataloader", line=9, text="Killed")
    step = samples.step(None, fits=None, saves=None)
    findings = Findings(case=Case(crash=crash), plan=samples.plan(step, fits=None))
    report = flat(shown(findings))
    assert "for lack of host memory (RAM), not GPU memory" in report
    assert "A bill of GPU memory says nothing about this failure." in report


@pytest.mark.parametrize("lang", LANGS)
def test_a_log_without_failure_is_said_plainly(lang: str) -> None:
    report = shown(Findings(case=Case(origin="train.log")), lang)
    assert spaceless(knowledge.load("texts")["report.crash_none"][lang]) in spaceless(report)


def test_a_run_that_fits_needs_no_change() -> None:
    findings = samples.findings(bill=samples.bill(12.55, 2.7, 0.75, 0.6), plan=Plan(fits=True), alternatives=())
    assert "[ok] By the bill it fits as it is: needs 17.50 GiB of 23.24 GiB." in flat(shown(findings))


def test_alternatives_are_silent_where_they_are_the_same() -> None:
    same = samples.findings()
    same = same._replace(alternatives=same.alternatives[:1])
    assert "Other ways" not in shown(same)


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ((0.0, 0.0), "no extra time"),
        ((0.0, 0.15), "up to 15 % more time"),
        ((0.2, 0.35), "20 % to 35 % more time"),
        ((-0.3, -0.1), "10 % to 30 % less time"),
        ((-0.05, 0.0), "up to 5 % less time"),
        ((-0.1, 0.05), "from 10 % less to 5 % more time"),
        ((-0.4, -0.0), "up to 40 % less time"),
        ((-0.4, -0.004), "up to 40 % less time"),
        ((-0.004, 0.004), "no extra time"),
        ((0.004, 0.1), "up to 10 % more time"),
        ((0.2, 2.0), "1.2 to 3.0 times as long"),
    ],
)
def test_cost_of_time_in_words(time: tuple[float, float], words: str) -> None:
    page = Page(terminal.console(file=io.StringIO()), "en")
    assert cost_text(page, Cost(time=time)) == f"{words}; one setting to change"


@pytest.mark.parametrize("lang", LANGS)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_machine_with_its_processes(lang: str, width: int) -> None:
    holders = (Holder(812, 400 * MIB, "Xorg", "desktop"), Holder(4242, None, "python\x1b[31m", "other", "eve"))
    gpu = Gpu(0, "NVIDIA GeForce RTX 3090", 24 * GIB, 20 * GIB, 4 * GIB, 300 * MIB, 400 * MIB, holders=holders)
    machine = Machine((gpu, Gpu(1, "Tesla T4", 15 * GIB, visible=False)), "nvml", 64 * GIB, driver="550.54")
    out = io.StringIO()
    terminal.show_machine(machine, lang, terminal.console(file=out, width=width))
    report = spaceless(out.getvalue())
    assert "24.00GiB" in report and "20.00GiB" in report and "400.00MiB" in report and "550.54" in report
    assert "812" in report and "4242" in report and "eve" in report and "\x1b" not in report
    assert spaceless(knowledge.load("texts")["report.machine_hidden"][lang]) in report
    assert knowledge.load("texts")["report.unknown"][lang] in report


def machine_shown(*gpus: Gpu) -> str:
    out = io.StringIO()
    terminal.show_machine(Machine(gpus, "nvml"), "en", terminal.console(file=out, width=80))
    return flat(out.getvalue())


def test_a_lost_card_is_not_called_hidden() -> None:
    lost = Gpu(1, visible=False, trouble=Text("texts/gpu.lost", {"index": 1}))
    assert "CUDA_VISIBLE_DEVICES" not in machine_shown(lost)


def test_a_further_mig_slice_says_how_to_take_it() -> None:
    taken = Gpu(0, "A100", 10 * GIB, uuid="MIG-a", mig=True, cuda_index=0)
    further = Gpu(0, "A100", 10 * GIB, uuid="MIG-b", mig=True, visible=False)
    report = machine_shown(taken, further)
    assert report.count("CUDA_VISIBLE_DEVICES") == 1 and "only with CUDA_VISIBLE_DEVICES=MIG-b" in report
    assert "hidden by" not in report


def test_in_a_live_reading_the_program_itself_is_oomdoctor() -> None:
    gpu = Gpu(0, "RTX 3090", 24 * GIB, holders=(Holder(os.getpid(), GIB, "python", "self"),))
    report = machine_shown(gpu)
    assert "oomdoctor itself" in report and "crashed" not in report


def test_no_gpu_at_all() -> None:
    out = io.StringIO()
    terminal.show_machine(Machine(), "en", terminal.console(file=out, width=80))
    assert "[!] No NVIDIA GPU can be seen from here." in out.getvalue()


@pytest.mark.parametrize("lang", LANGS)
def test_rules_are_listed_and_shown(lang: str) -> None:
    out = io.StringIO()
    page = terminal.console(file=out, width=80)
    rule = samples.rule("smaller-batch", 1, Cost(time=(0.0, 0.15)), samples.words("a little", "一点"))
    terminal.show_rules([rule], lang, page)
    terminal.show_rule(rule, lang, page)
    assert out.getvalue().count("smaller-batch") >= 3


@pytest.mark.parametrize("name", sorted(knowledge.load("texts")))
def test_every_text_has_both_languages_and_the_same_placeholders(name: str) -> None:
    entry = knowledge.load("texts")[name]
    assert set(entry) == {"en", "zh"}
    places = [set(re.findall(r"{(\w+)", entry[lang])) for lang in LANGS]
    assert places[0] == places[1]


def test_a_terminal_without_chinese_gets_no_traceback() -> None:
    program = (
        "from oomdoctor import printing; from oomdoctor.report import terminal; from tests.report import samples\n"
        "printing.prepare_output()\n"
        "terminal.show(samples.findings(), 'zh', terminal.console())"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"17.50 GiB" in done.stdout
