"""The program as scripts and people call it: exit codes, documents, refusals. Each call is a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from oomdoctor import cli, commands, options
from oomdoctor.report import document as report_document
from tests.program import QUIET, ROOT, document, oomdoctor

EXAMPLES = ROOT / "examples"
LOG = EXAMPLES / "llama2-7b-lora-3090.log"
NAMELESS = ROOT / "tests" / "corpus" / "logs" / "pdsh-addresses.log"


def test_a_crash_log_gives_a_plan_that_fits() -> None:
    done = oomdoctor("--from-log", LOG, "--json", *QUIET)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    crash = found["crash"]
    assert (crash["kind"], crash["phase"], crash["fatal"]) == ("cuda_oom", "forward", True)
    assert crash["requested_bytes"] == 86 * 1024**2
    assert found["plan"]["fits"] is True
    assert found["plan"]["steps"][0]["rule"] == "smaller-batch"


def test_the_request_of_86_mib_is_named() -> None:
    """4 x 1024 tokens x 11008 x 2 B = 86 MiB: an activation of the MLP. A weight of it is as large, 11008 x 4096 x 2 B,
    but a frozen 16-bit weight is not made in the forward pass."""
    (tensor,) = document("--from-log", LOG, *QUIET)["crash"]["tensor"]
    assert (tensor["key"], tensor["shape"]) == ("mlp_activation", [4, 1024, 11008])


def test_a_size_without_a_model_is_explained_by_models_that_have_it() -> None:
    """172 MiB while loading: 11008 x 4096 x 4 B."""
    found = document("--from-log", NAMELESS, *QUIET)
    (suggested,) = found["crash"]["suggested"]
    assert (suggested["shape"], suggested["dtype"], suggested["bytes"]) == ([11008, 4096], "float32", 11008 * 4096 * 4)
    assert "meta-llama/Llama-2-7b-hf" in suggested["models"] and found["crash"]["tensor"] == []
    (question,) = found["questions_open"]
    assert question["key"] == "model" and set(question["proposed"]) <= set(suggested["models"])


@pytest.mark.parametrize(("lang", "words"), [("en", "172.00 MiB could be"), ("zh", "172.00 MiB 可能是")])
def test_the_report_says_what_the_size_may_be(lang: str, words: str) -> None:
    for detail in ((), ("--full",)):
        shown = " ".join(oomdoctor("--from-log", NAMELESS, "--lang", lang, *detail, *QUIET).stdout.split())
        assert words in shown and "11008 x 4096" in shown and "Llama-2-7b-hf" in shown


def test_a_model_that_is_named_is_not_guessed() -> None:
    found = document("--from-log", NAMELESS, "--set", "model=mistralai/Mistral-7B-v0.1", *QUIET)
    assert found["crash"]["suggested"] == []


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir() if path.suffix != ".py"))
def test_every_example_gives_a_valid_document_in_both_languages(example: str, lang: str) -> None:
    source = ("--from-log", EXAMPLES / example) if example.endswith(".log") else ("plan", EXAMPLES / example)
    assert document(*source, "--lang", lang, *QUIET)["lang"] == lang


def test_lines_of_the_bill_sum_to_the_peak_of_the_device() -> None:
    bill = document("bill", EXAMPLES / "llama2-7b-lora-3090.yaml")["bill"]
    assert sum(line["likely"] for line in bill["lines"]) == bill["peak"]["device"]["likely"]
    assert any(phase["phase"] == bill["phase"] for phase in bill["phases"])


def test_what_a_step_saves_is_the_difference_of_two_bills() -> None:
    found = document("--from-log", LOG, *QUIET)
    before = found["bill"]["needed_bytes"]
    for step in found["plan"]["steps"]:
        after = step["bill_after"]["needed_bytes"]
        assert step["saves_bytes"] == before - after
        before = after


def test_ids_and_keys_are_never_translated() -> None:
    def bones(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bones(part) for key, part in value.items() if key not in ("reason", "formula")}
        return len(value) if isinstance(value, list) else value if not isinstance(value, str) else None

    english, chinese = (document("--from-log", LOG, "--lang", lang, *QUIET) for lang in ("en", "zh"))
    assert bones(english) == bones(chinese)
    for found in (english, chinese):
        assert [step["rule"] for step in found["plan"]["steps"]] == [step["rule"] for step in english["plan"]["steps"]]
    assert english["diagnosis"]["title"] != chinese["diagnosis"]["title"]


def test_many_cards_give_one_document_a_line_and_a_bad_card_its_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("model: meta-llama/Llama-2-7b-hf\nmax_lenght: 5\nmethod: lara\n")
    good = EXAMPLES / "llama2-7b-lora-3090.yaml"
    done = oomdoctor("bill", good, bad, good, "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 2
    assert [("error" in line) for line in lines] == [False, True, False]
    message = lines[1]["error"]["message"]
    assert "max_lenght" in message and "lara" in message  # all problems at once
    assert "Traceback" not in done.stderr


def test_a_card_without_a_model_ends_with_4_and_names_what_it_lacks(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("method: lora\nmax_length: 1024\n")
    done = oomdoctor("bill", card, "--json", "--no-input")
    assert done.returncode == 4
    assert "model" in json.loads(done.stdout)["error"]["message"]


def test_an_unknown_model_names_its_neighbours(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("model: meta-llama/Lama-2-7b-hf\n")
    done = oomdoctor("bill", card)
    assert done.returncode == 2
    assert "Llama-2-7b" in done.stderr


def test_an_unknown_card_names_its_neighbours() -> None:
    done = oomdoctor("plan", EXAMPLES / "llama2-7b-lora-3090.yaml", "--set", "gpus.name=RTX 3900", *QUIET)
    assert done.returncode == 2
    assert "RTX 3090" in done.stderr


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", 3),
        (b"Epoch 1: loss 0.3\nEpoch 2: loss 0.2\nsaved model to out/\n", 3),
        (bytes(range(256)) * 64, 2),
    ],
    ids=["empty", "healthy", "binary"],
)
def test_a_log_without_a_failure_ends_with_3_and_what_is_no_log_with_2(
    tmp_path: Path, content: bytes, code: int
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(content)
    done = oomdoctor("--from-log", log, *QUIET)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [("--from-log", "no/such/file.log"), ("bill", "no/such/card.yaml"), ("--bogus",), ("bill",)]
)
def test_bad_usage_is_one_sentence_and_exit_code_2(arguments: tuple[str, ...]) -> None:
    for lang in ("en", "zh"):
        done = oomdoctor(*arguments, "--lang", lang, "--no-input")
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
        assert "Traceback" not in done.stderr
    error = json.loads(oomdoctor(*arguments, "--json", "--no-input").stdout)
    assert set(error) == {"schema", "error"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lenghts", "data.jsonl"], "oomdoctor: lenghts: there is no such command. Close to it: lengths."),
        (["--form-log=x"], "oomdoctor: --form-log: there is no such option here. Close to it: --from-log."),
        (["gpu", "--wiat", "3GiB"], "oomdoctor: --wiat: there is no such option here. Close to it: --wait."),
        (["report", "--html", "x.html"], "oomdoctor: x.html: the command report takes no such word here."),
        (["README.md"], "A log is read with: oomdoctor --from-log README.md"),
        (["lengths"], "oomdoctor: lengths: the command line cannot be read"),
        (["--lang"], "oomdoctor: the command line cannot be read"),
    ],
)
def test_a_mistyped_word_is_told_with_what_looks_like_it(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert commands.run(arguments) == 2
    assert words in capsys.readouterr().err


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    assert oomdoctor("--from-log", tmp_path, *QUIET).returncode == 2


def test_a_log_can_come_from_standard_input() -> None:
    done = oomdoctor("--from-log", "-", "--json", *QUIET, stdin=LOG.read_text(errors="replace"))
    assert json.loads(done.stdout)["crash"]["requested_bytes"] == 86 * 1024**2


def test_killed_for_host_memory_gets_advice_without_a_price() -> None:
    found = document("--from-log", EXAMPLES / "killed-while-loading.log", *QUIET)
    assert found["crash"]["kind"] == "host_oom_killed"
    assert found["plan"]["steps"]
    assert all(step["saves_bytes"] is None for step in found["plan"]["steps"])


def test_nothing_fits_a_card_that_is_far_too_small(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("model: meta-llama/Llama-2-70b-hf\nmethod: lora\ngpus: {name: GTX 1050 Ti, count: 1}\n")
    assert oomdoctor("plan", card, *QUIET).returncode in (2, 10)
    card.write_text(
        "model: meta-llama/Llama-2-70b-hf\nmethod: lora\ngpus: {memory_mib: 4000, compute_capability: 7.5}\n"
    )
    assert oomdoctor("plan", card, *QUIET).returncode == 10


def test_a_plan_without_a_card_says_that_it_needs_one(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text("model: meta-llama/Llama-2-7b-hf\nmethod: lora\n")
    done = oomdoctor("plan", card, *QUIET)
    assert done.returncode == 4
    assert "gpus.name" in done.stderr


def test_what_the_person_states_beats_the_log() -> None:
    found = document("--from-log", LOG, "--set", "max_length=512", *QUIET)
    (fact,) = [fact for fact in found["facts"] if fact["key"] == "max_length"]
    assert (fact["value"], fact["source"]) == (512, "set")


def test_chinese_is_chosen_by_the_locale() -> None:
    assert "显存" in oomdoctor("--from-log", LOG, *QUIET, LC_ALL="zh_CN.UTF-8").stdout


def test_nothing_is_saved_under_no_input(tmp_path: Path) -> None:
    oomdoctor("--from-log", LOG, *QUIET, XDG_DATA_HOME=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_nothing_is_asked() -> None:
    assert oomdoctor("--from-log", LOG, "--no-gpu").returncode == 0
    assert oomdoctor("--no-gpu").returncode == 2


def test_resume_without_a_saved_case_says_so(tmp_path: Path) -> None:
    done = oomdoctor("resume", *QUIET, XDG_DATA_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_heavy_packages_are_not_imported_on_the_hot_path() -> None:
    code = (
        "import sys; from oomdoctor.cli import main;"
        f"main(['--from-log', {str(LOG)!r}, '--json', '--no-input', '--no-gpu']);"
        "print(sorted({'torch', 'transformers', 'questionary', 'prompt_toolkit', 'rich', 'pynvml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_rules_are_listed_shown_and_checked() -> None:
    assert "gradient-checkpointing" in oomdoctor("rules", "list").stdout
    assert (
        json.loads(oomdoctor("rules", "show", "smaller-batch", "--json").stdout)["rules"][0]["rule"] == "smaller-batch"
    )
    assert "smaller-batch" in oomdoctor("rules", "show", "smaler-batch").stderr
    assert oomdoctor("rules", "lint").returncode == 0


CARD = EXAMPLES / "llama2-7b-lora-3090.yaml"
OWN = ROOT / "tests" / "data" / "own-rules"
LONG = ("--set", "max_length=4096", "--set", "per_device_train_batch_size=1", "--set", "gradient_checkpointing=none")


def test_a_rule_of_ones_own_takes_part_in_the_plan_and_says_where_it_comes_from() -> None:
    found = document("plan", CARD, *LONG, *QUIET, "--rules", OWN)
    steps = {step["rule"]: step["origin"] for step in found["plan"]["steps"]}
    assert steps["our-long-samples"] == str(OWN / "our-long-samples.yaml")
    assert {origin for name, origin in steps.items() if name != "our-long-samples"} <= {None}
    assert "our-long-samples" not in {step["rule"] for step in document("plan", CARD, *LONG, *QUIET)["plan"]["steps"]}
    shown = oomdoctor("plan", CARD, *LONG, *QUIET, "--rules", OWN, "--lang", "en")
    assert "A rule of your own:" in shown.stdout
    assert str(OWN) in shown.stderr


def test_a_folder_of_rules_in_the_current_directory_is_taken_up(tmp_path: Path) -> None:
    shutil.copytree(OWN, tmp_path / "oomdoctor-rules")
    listed = json.loads(oomdoctor("rules", "list", "--json", cwd=tmp_path).stdout)["rules"]
    (mine,) = [rule for rule in listed if rule["origin"]]
    assert mine["rule"] == "our-long-samples"


@pytest.mark.parametrize("broken", ["rung: [", "id: other", "- 1", ""])
def test_a_broken_rule_of_ones_own_is_one_sentence(tmp_path: Path, broken: str) -> None:
    (tmp_path / "mine.yaml").write_text(broken)
    done = oomdoctor("plan", CARD, *QUIET, "--rules", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"{tmp_path}/mine.yaml:" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert oomdoctor("plan", CARD, *QUIET, "--rules", tmp_path / "nowhere").returncode == 2


def test_the_reference_is_written_in_both_languages(tmp_path: Path) -> None:
    done = oomdoctor("rules", "docs", "--out", tmp_path / "docs", "--rules", OWN)
    assert done.returncode == 0
    english, chinese = (
        (tmp_path / "docs" / f"remedies.{lang}.md").read_text(encoding="utf-8") for lang in ("en", "zh")
    )
    assert "`our-long-samples`" in english
    assert "`our-long-samples`" in chinese
    assert oomdoctor("rules", "docs", "--lang", "en").stdout.startswith("# The remedies of oomdoctor")
    assert oomdoctor("rules", "docs", "--out", CARD).returncode == 2
    assert oomdoctor("rules", "docs", "--json").stdout == oomdoctor("rules", "list", "--json").stdout
    assert oomdoctor("rules", "list", "--out", tmp_path).returncode == 2


EVERY_COMMAND = {
    "bill": ("bill", CARD),
    "plan": ("plan", CARD),
    "dry-run": ("dry-run", f"{EXAMPLES / 'cnn-step.py'}:step"),
    "gpu": ("gpu",),
    "snapshot": ("snapshot", ROOT / "tests" / "data" / "allocator" / "snapshots" / "lm-forward-fp32-128.json.gz"),
    "resume": ("resume",),
    "schema": ("schema",),
    "rules": ("rules", "list"),
    "claims": ("claims", "empty_cache"),
    "cards": ("cards", CARD),
    "lengths": ("lengths", ROOT / "README.md"),
    "learn": ("learn", "1"),
    "completion": ("completion", "bash"),
    "report": ("report", "--from-log", EXAMPLES / "llama2-7b-lora-3090.log"),
}
COMMON = (
    "--rules",
    "tests/data/own-rules",
    "--json",
    "--no-input",
    "--lang",
    "en",
    "--no-gpu",
    "--prefer",
    "ladder",
    "--without",
    "lora",
    "--run",
    CARD,
    "--set",
    "packing=no",
    "--config",
    CARD,
    "--gpus",
    "RTX 3090",
    "--nodes",
    "1",
)


def refusal(arguments: tuple[object, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of a refusal, in this process: of so many, starting Python would take nearly all of the time."""
    assert cli.main([*map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    return err


def test_every_command_is_held_to_its_options() -> None:
    assert set(EVERY_COMMAND) == set(options.COMMANDS)


@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_every_command_takes_the_common_options_and_says_which_it_has_no_use_for(name: str, tmp_path: Path) -> None:
    done = oomdoctor(*EVERY_COMMAND[name], *COMMON, "--full", XDG_DATA_HOME=str(tmp_path))
    json.loads(done.stdout)
    unused = options.WITHOUT_EFFECT[name]
    assert done.returncode == (2 if name == "resume" else 0)  # nothing is saved there to resume
    if name != "resume":
        assert len(done.stderr.splitlines()) == bool(unused)
    assert all(f"--{option}" in done.stderr for option in unused)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("bad", [("--run", "/no/such"), ("--set", "no_such_key=1"), ("--set", "max_length=long")])
@pytest.mark.parametrize("name", EVERY_COMMAND)
def test_a_bad_card_or_setting_is_refused_by_every_command(
    name: str, bad: tuple[str, str], before: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*bad, *EVERY_COMMAND[name]) if before else (*EVERY_COMMAND[name], *bad)
    assert bad[1] in refusal(arguments, capsys)


@pytest.mark.parametrize("name", ["bill", "plan"])
def test_a_run_card_beside_a_card_is_laid_over_it(name: str, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("max_length: 512\n")
    for arguments in ((name, CARD, "--run", other), ("--run", other, name, CARD)):
        facts = {fact["key"]: fact["value"] for fact in document(*arguments, *QUIET)["facts"]}
        assert (facts["max_length"], facts["method"]) == (512, "lora")


def test_settings_before_and_after_the_command_all_count() -> None:
    found = document("--set", "max_length=512", "bill", CARD, "--set", "per_device_train_batch_size=2")
    facts = {fact["key"]: fact["value"] for fact in found["facts"]}
    assert (facts["max_length"], facts["per_device_train_batch_size"]) == (512, 2)


def test_resume_takes_a_run_card_and_settings(tmp_path: Path) -> None:
    folder = tmp_path / "oomdoctor" / "cases"
    folder.mkdir(parents=True)
    case = "answered: {method: lora}\nfacts: []\ncrash: null\norigin: null\ntried: []\nunknown_answers: []\n...\n"
    (folder / "case-1.yaml").write_text(case)
    more = ("--run", CARD, "--set", "max_length=512")
    facts = document("resume", *more, *QUIET, XDG_DATA_HOME=str(tmp_path))["facts"]
    values = {fact["key"]: (fact["value"], fact["source"].partition(":")[0]) for fact in facts}
    assert values["method"] == ("lora", "answer")
    assert values["model"] == ("meta-llama/Llama-2-7b-hf", "run")
    assert values["max_length"] == (512, "set")


@pytest.mark.parametrize("name", [name for name in EVERY_COMMAND if name not in options.TAKES_LOG])
def test_a_log_beside_a_command_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (("--from-log", LOG, *EVERY_COMMAND[name]), (*EVERY_COMMAND[name], "--from-log", LOG)):
        said = refusal(arguments, capsys)
        assert "--from-log" in said and name in said


def test_what_can_be_given_once_is_not_lost_when_given_twice() -> None:
    done = oomdoctor("--run", "a", "--run=b", *QUIET)
    assert done.returncode == 2 and "--run" in done.stderr


def test_a_log_may_be_called_like_a_command(tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(LOG.read_bytes())
    command = [sys.executable, "-m", "oomdoctor", "--from-log", "plan", *QUIET]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("json_too", [(), ("--json",)])
def test_no_gpu_holds_for_the_command_gpu_as_well(json_too: tuple[str, ...]) -> None:
    done = oomdoctor("gpu", "--no-gpu", *json_too)
    assert done.returncode == 0
    assert "--no-gpu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("rules", "list", "smaller-batch"), "show"),
        (("rules", "show"), "id"),
        (("rules", "show", "zzzzzz"), "rules list"),
        (("rules", "show", "smaller-batch/title"), "no such rule"),
        (("rules", "lint", "rules/signatures"), "signatures"),
        (("rules", "lint", "rules/gpus/"), "gpus"),
        (("gpu", "--set", "max_length"), "KEY=VALUE"),
        (("gpu", "--set", "zzzzzz=1"), "looks like"),
    ],
)
def test_what_cannot_be_done_gets_a_sentence_of_its_own(arguments: tuple[str, ...], word: str) -> None:
    done = oomdoctor(*arguments)
    assert done.returncode == 2
    assert word in done.stderr and len(done.stderr.splitlines()) == 1


def test_problems_of_a_folder_of_rules_come_as_lines_or_as_one_document(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("id: mine\nrung: high\n")
    done = oomdoctor("rules", "lint", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path}/mine.yaml:2: " in done.stdout
    found = json.loads(oomdoctor("rules", "lint", tmp_path, "--json").stdout)
    assert set(found) == {"schema", "error"}
    assert {(problem["line"]) for problem in found["error"]["problems"]} == {1, 2}
    assert json.loads(oomdoctor("rules", "lint", "--json").stdout)["problems"] == []


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("rules", "list"), "rules"),
        (("rules", "show", "smaller-batch"), "rules"),
        (("rules", "lint", "tests/data/own-rules"), "problems"),
        (("rules", "lint", "tests/data"), "error"),
        (("learn", "1"), "lessons"),
        (("learn", "logits"), "glossary"),
        (("lengths", ROOT / "README.md"), "lengths"),
        (("completion", "fish"), "script"),
    ],
)
def test_documents_of_the_smaller_commands_keep_to_the_schema(
    arguments: tuple[object, ...], key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    commands.run([*map(str, arguments), "--json", "--no-input", "--no-gpu"])
    found = json.loads(capsys.readouterr().out)
    assert found[key] or key == "problems"
    schema = jsonschema.Draft202012Validator(report_document.schema())
    assert not list(schema.iter_errors(found))
    assert list(schema.iter_errors({name: value for name, value in found.items() if name != key}))


def test_the_help_of_a_command_shows_only_what_changes_something_in_it() -> None:
    for name, unused in options.WITHOUT_EFFECT.items():
        text = oomdoctor(name, "--help").stdout
        shown = {option for option in ("full", "prefer", "without", "rules", "run", "set") if f"--{option}" in text}
        assert shown == {"full", "prefer", "without", "rules", "run", "set"} - set(unused)


COMMAND = f"{sys.executable} -m oomdoctor"
UNIX = pytest.mark.skipif(os.name != "posix", reason="needs a Unix shell")
REPORT = f"--from-log {LOG} --no-input --no-gpu"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    settings = {**os.environ, "LC_ALL": "C.UTF-8", **environment}
    return subprocess.run(["bash", "-c", line], capture_output=True, env=settings, cwd=ROOT, timeout=60, check=False)


@UNIX
@pytest.mark.parametrize("command", [REPORT, f"{REPORT} --full", f"{REPORT} --json", "rules list", "schema", "--help"])
def test_who_reads_only_the_beginning_sees_no_failure(command: str) -> None:
    done = shell(f"{COMMAND} {command} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}")
    assert (done.stdout, done.stderr) in ((b"0\n", b""), (b"141\n", b""))


@UNIX
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no /dev/full")
@pytest.mark.parametrize("command", ["--version", "--help", REPORT, f"{REPORT} --json", "--from-log no --json"])
def test_a_full_disk_gives_one_sentence(command: str) -> None:
    done = shell(f"{COMMAND} {command} >/dev/full")
    assert done.returncode in (0, 1)
    assert len(done.stderr.splitlines()) <= 1 + ("no --json" in command)
    assert b"Traceback" not in done.stderr and b"itself" not in done.stderr
    assert shell(f"{COMMAND} --from-log no 2>/dev/full").returncode == 2


@UNIX
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--from-log - --no-input <&-", 2),
        ("<&-", 2),
        ("--version >&-", 0),
        (f"{REPORT} >&-", 0),
        ("--from-log no 2>&-", 2),
    ],
)
def test_closed_streams_give_a_sentence_at_most(command: str, code: int) -> None:
    done = shell(f"{COMMAND} {command}")
    assert done.returncode == code
    assert len(done.stderr.splitlines()) <= 1 and b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("--from-log", LOG, *QUIET), ("--help",), ("rules", "lint"), ("rules", "list")])
def test_a_terminal_without_chinese_is_no_trouble(arguments: tuple[object, ...]) -> None:
    done = oomdoctor(*arguments, "--lang", "zh", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    refused = oomdoctor("--from-log", "no", "--lang", "zh", PYTHONIOENCODING="ascii")
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1


@UNIX
def test_ctrl_c_at_any_moment_ends_with_130_and_no_traceback() -> None:
    code = (
        "import os, signal, sys, builtins\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background job starts with it ignored
        "from oomdoctor import cli\n"
        "real, left = builtins.__import__, int(sys.argv[1])\n"
        "def slow(name, *rest, **more):\n"
        "    global left\n"
        "    left -= name.startswith('oomdoctor')\n"
        "    if left == 0:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest, **more)\n"
        "builtins.__import__ = slow\n"
        f"sys.exit(cli.main(['--from-log', {str(LOG)!r}, '--no-input', '--no-gpu']))"
    )
    for moment in (1, 2, 20, 60):
        done = subprocess.run([sys.executable, "-c", code, str(moment)], capture_output=True, cwd=ROOT, check=False)
        assert done.returncode == 130
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("columns", ["0", "1", "5"])
def test_a_width_that_no_screen_has_is_taken_for_80(columns: str) -> None:
    assert oomdoctor("--from-log", LOG, *QUIET, COLUMNS=columns).stdout == (
        oomdoctor("--from-log", LOG, *QUIET, COLUMNS="80").stdout
    )


EVIL = "\x1b[31mred\u202e\n"


def test_no_name_reaches_the_terminal_with_its_control_characters(tmp_path: Path) -> None:
    card = tmp_path / "card.yaml"
    card.write_text('model: "\\e[31mred\\u202e\\n"\n')
    for arguments in (("bill", card), ("--from-log", EVIL), ("--set", f"{EVIL}=1"), ("--set", f"method={EVIL}"),
                      ("bill", EVIL), (f"--{EVIL}",), ("rules", "show", EVIL), ("rules", "lint", EVIL)):  # fmt: skip
        done = oomdoctor(*arguments, "--no-input")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert not {"\x1b", "\u202e"} & set(done.stderr + done.stdout)


@UNIX
def test_a_file_name_that_is_no_text_is_valid_json() -> None:
    done = subprocess.run(
        [*COMMAND.split(), "bill", b"/no/\xff.yaml", "--json"], capture_output=True, cwd=ROOT, check=False
    )
    reference = json.loads(done.stdout)["error"]["reference"]
    assert done.returncode == 2 and reference.encode() == b"/no/?.yaml"


def test_what_others_hold_of_the_card_can_be_stated() -> None:
    usable = [
        document("--from-log", LOG, *QUIET, *more)["machine"]["usable_bytes"]
        for more in ((), ("--set", "machine.foreign_bytes=2e9"), ("--set", "machine.own_leftover_bytes=1000000"))
    ]
    assert (usable[0] - usable[1], usable[0] - usable[2]) == (2 * 10**9, 10**6)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("machine.foreign_bytes=abc", "number"),
        ("machine.foreign_bytes=-1e11", "2e9"),
        ("machine.foreign_bytes=1.5", "2e9"),
        ("machine.foreign_byts=1", "machine.foreign_bytes"),
        ("machine.x=5", "no key"),
        ("=", "KEY=VALUE"),
        ("versions.=1", "no key"),
    ],
)
def test_a_setting_that_is_none_is_refused(setting: str, word: str) -> None:
    done = oomdoctor("--from-log", LOG, "--set", setting, *QUIET)
    assert done.returncode == 2 and word in done.stderr


def test_qlora_is_lora_on_four_bits_wherever_it_is_said(tmp_path: Path) -> None:
    def quantization(*arguments: object) -> tuple[str, str]:
        facts = {fact["key"]: fact["value"] for fact in document("bill", CARD, *arguments)["facts"]}
        return facts["method"], facts["quantization"]

    assert quantization("--set", "method=qlora") == ("lora", "nf4")
    assert quantization("--set", "method=qlora", "--set", "quantization=int8") == ("lora", "int8")
    assert quantization("--set", "method=lora") == ("lora", "none")


def test_each_step_says_what_the_card_offers_after_it() -> None:
    found = document("--from-log", LOG, "--set", "machine.own_leftover_bytes=3e9", *QUIET)
    usable = found["machine"]["usable_bytes"]
    needed = found["bill"]["needed_bytes"]
    for step in found["plan"]["steps"]:
        after = step["bill_after"]["needed_bytes"]
        assert step["fits"] is (after <= step["usable_bytes"])
        assert step["saves_bytes"] == needed - after + step["usable_bytes"] - usable
        needed, usable = after, step["usable_bytes"]
    assert usable - found["machine"]["usable_bytes"] in (0, 3 * 10**9)
