"""What is saved comes back; what was damaged since is refused in one sentence, or read as a case like any other."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import stat
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomdoctor import cli, doctor
from oomdoctor.case import Case, Fact, Machine, Refusal, Text, Unread, UserError
from oomdoctor.report.document import schema
from oomdoctor.wizard import saved
from oomdoctor.wizard.casefile import as_text
from tests.report import samples

LOG = Path(__file__).parents[2] / "examples" / "llama2-7b-lora-3090.log"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "oomdoctor" / "cases").mkdir(parents=True)
    return tmp_path / "oomdoctor" / "cases"


def a_case() -> Case:
    reason = Text("texts/doctor.kept", {"size": 5})
    told = [Fact("machine.foreign_bytes", 2 * 10**9, "log"), Fact("log.unexplained_bytes", 5, "log", reason)]
    said = [Fact("max_length", 4096, "answer"), Fact("max_length", 512, "answer"), Fact("optim", "sgd", "set")]
    case = doctor.read_log(str(LOG)).know([*told, *said]).refuse([Refusal("adamw-8bit", "not_installed")])
    return case._replace(tried=("smaller-batch",), unknown_answers=("padding",))


def kept_path(case: Case) -> str:
    return saved.save(case, saved.new_path()).path


ODD_NAMES = Case(
    facts=samples.facts(),
    crash=samples.crash(),
    origin="a\udcff\x1b[31m: {x}",
    configs=(("train: #1.yaml", "trl"),),
    given=("trl:train: #1.yaml",),
    unread=(Unread("*&!", "config:train: #1.yaml:3", Text("texts/configs.not_there")),),
)


@pytest.mark.parametrize("case", [a_case(), Case(), ODD_NAMES])
def test_what_is_saved_comes_back(case: Case) -> None:
    back = saved.load(kept_path(case))
    assert back == case._replace(facts=back.facts, machine=Machine())
    kept = {key: fact for key, fact in case.facts.won.items() if not fact.assumed}
    assert dict(back.facts.won) == kept
    assert set(back.facts.lost) == set(case.facts.lost)


@pytest.mark.parametrize(
    "name",
    ["052-phi3-small-triton-shared-memory", "109-k8s-describe-oomkilled", "048-docker-shm-bus-error-second-epoch"],
)
def test_what_a_log_says_of_other_memory_than_a_cards_comes_back(name: str) -> None:
    case = doctor.read_log(str(Path(__file__).parents[1] / "corpus" / f"{name}.log"))
    back = saved.load(kept_path(case))
    assert back.facts.won == case.facts.won and back.crash == case.crash


def test_a_person_can_read_it_and_no_one_else(folder: Path) -> None:
    path = kept_path(a_case())
    text = Path(path).read_text(encoding="utf-8")
    assert "oomdoctor resume" in text.splitlines()[0]
    content = yaml.safe_load(text)
    assert content["answered"] == {"max_length": 512} and content["unknown_answers"] == ["padding"]
    assert content["tried"] == ["smaller-batch"] and content["refused"][0]["rule"] == "adamw-8bit"
    assert content["crash"]["kind"] == "cuda_oom"
    assert "requested_bytes: 90177536  # 86.00 MiB" in text  # what the log's last line says
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_an_answer_mended_by_hand_counts() -> None:
    path = Path(kept_path(a_case()))
    path.write_text(path.read_text().replace("  max_length: 512\n", "  max_length: 1024\n"))
    assert saved.load(str(path)).facts.get("max_length") == 1024


def _old(folder: Path, case: Case) -> Path:
    """The case as the version before YAML wrote it."""
    facts = [fact for fact in (*case.facts.lost, *case.facts.won.values()) if not fact.assumed]
    said = [fact._replace(reason=None if isinstance(fact.reason, Text) else fact.reason)._asdict() for fact in facts]
    crash = case.crash and {**case.crash._asdict(), "proof": dict(case.crash.proof), "other_processes": []}
    content = {"facts": said, "crash": crash, "origin": case.origin, "tried": case.tried, "unknown_answers": []}
    place = folder.parents[1] / "state" / "oomdoctor"
    place.mkdir(parents=True, exist_ok=True)
    path = place / "case-20260101-101010-7.json"
    path.write_text(json.dumps(content, indent=1))
    return path


def test_a_case_of_the_version_before_is_found_and_becomes_yaml_once_it_is_saved(folder: Path) -> None:
    old = _old(folder, a_case())
    before = old.read_bytes()
    assert saved.last_path() == str(old) and saved.path_of("20260101") == str(old)
    case = saved.load(str(old))
    assert case.crash == a_case().crash and case.facts.get("max_length") == 512 and case.tried == ("smaller-batch",)
    done = saved.save(case, str(old), saved.stamp_of(str(old)))
    assert done.path == str(folder / "case-20260101-101010-7.yaml") and not done.apart
    assert [each.path for each in saved.kept()] == [done.path]
    assert saved.load(done.path).facts.won == case.facts.won
    assert old.with_name(f"{old.name}.old").read_bytes() == before and not old.exists()


def test_an_old_case_that_is_closed_keeps_its_file_under_another_name(folder: Path) -> None:
    old = _old(folder, Case())
    saved.forget(str(old))
    assert saved.kept() == [] and old.with_name(f"{old.name}.old").exists()


def resume(content: str, folder: Path) -> tuple[int, str]:
    for old in folder.glob("case-*"):
        old.unlink()
    (folder / "case-1.yaml").write_text(content)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["resume", "--no-input", "--no-gpu", "--json", "--lang", "en"])
    json.loads(out.getvalue(), parse_constant=pytest.fail)
    return code, err.getvalue()


BOMB = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}, *a]\n" for n in range(40))

DATED = "{key: log.x, value: 1, source: log, reason: {path: texts/doctor.kept, values: {size: 2026-01-01}}}"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "cut off"),
        ("facts: []\ncrash: null\n", "cut off"),
        ("{\n...\n", "not valid YAML"),
        ("a: b: c\n...\n", "line 1 is not valid YAML"),
        ("[]\n...\n", "not a case"),
        ("7\n...\n", "not a case"),
        ("{}\n...\n", "facts"),
        ("facts: []\n...\n", "crash"),
        ("facts: null\ncrash: null\n...\n", "facts"),
        ("[" * 5000 + "\n...\n", "cannot be read"),
        (BOMB + "...\n", "not a case"),
        ("a: !!python/object/apply:os.system [touch hacked]\n...\n", "not valid YAML"),
        ("answered: {max_length: long}\nfacts: []\ncrash: null\n...\n", "answered"),
        ("answered: {\x00}\n...\n", "not a case"),
        ("a: 2026-99-99\n...\n", "not a case"),
        (f"facts: [{DATED}]\ncrash: null\n...\n", "facts"),
    ],
)
def test_what_is_no_case_is_refused_in_one_sentence(content: str, why: str, folder: Path) -> None:
    code, said = resume(content, folder)
    assert code == 2 and len(said.splitlines()) == 1 and why in said
    assert not Path("hacked").exists()


def test_a_pipe_and_a_file_without_end_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "case-1.yaml")
    with pytest.raises(UserError):
        saved.load(str(folder / "case-1.yaml"))
    (folder / "case-2.yaml").write_bytes(b"#" * (saved._LARGEST + 1))
    with pytest.raises(UserError):
        saved.load(str(folder / "case-2.yaml"))


ODD = st.sampled_from(
    [None, True, -1, 0, 2**70, 10**400, 1.5, float("inf"), float("nan"), "", "x", "7", [], ["x"], [None], {}, {"a": 1},
     "texts/doctor.kept", {"path": "x", "values": {}}, {"path": "texts/doctor.kept", "values": {"size": "x"}}]
)  # fmt: skip


def places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [here, *(place for key, part in inner for place in places(part, (*here, key)))][0 if here else 1 :]


@cache
def saved_case() -> str:
    case = a_case()._replace(configs=ODD_NAMES.configs, given=ODD_NAMES.given, unread=ODD_NAMES.unread)
    return json.dumps(yaml.safe_load(as_text(case, "1", {})), default=str)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_a_damaged_case_is_refused_or_read(data: st.DataObject, folder: Path) -> None:
    content = json.loads(saved_case())
    for _ in range(data.draw(st.integers(1, 3))):
        *way, key = data.draw(st.sampled_from(places(content)))
        part = content
        for step in way:
            part = part[step]
        if data.draw(st.booleans()):
            part[key] = copy.deepcopy(data.draw(ODD))  # a later round may change it
        else:
            del part[key]
    code, said = resume(json.dumps(content) + "\n...\n", folder)
    notes = [line for line in said.splitlines() if "no longer there" not in line]
    assert code in (0, 2, 3, 4, 10), said
    assert len(notes) == (code in (2, 4))


def test_where_nothing_can_be_saved_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError):
        saved.save(Case(), saved.new_path())


def test_a_write_that_fails_leaves_the_case_as_it_was(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    first = saved.save(a_case(), saved.new_path())

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError):
        saved.save(Case(), first.path, first.stamp)
    assert saved.load(first.path).tried == ("smaller-batch",)
    assert [path.name for path in folder.glob("case-*")] == [os.path.basename(first.path)]


def test_where_cases_lie_on_each_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")  # the standard says to ignore it
    for platform, place in (
        ("linux", "/home/u/.local/share/oomdoctor/cases"),
        ("darwin", "/home/u/Library/Application Support/oomdoctor/cases"),
    ):
        monkeypatch.setattr("sys.platform", platform)
        assert saved.data_folder() == place
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/c/Local")
    assert saved.data_folder() == "/c/Local/oomdoctor/cases"


def _older(path: str, seconds: int) -> None:
    then = os.path.getmtime(path) - seconds
    os.utime(path, (then, then))


def test_a_case_is_taken_up_by_its_id_and_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = str(folder / "case-20260101-101010-7.yaml"), str(folder / "case-20260202-101010-7.yaml")
    for path, case in ((first, a_case()), (second, Case(origin="other.log"))):
        saved.save(case, path)
    _older(second, 60)  # begun later, but the first was saved last
    (folder / "case-damaged.yaml").write_text("{")
    _older(str(folder / "case-damaged.yaml"), 120)
    assert saved.last_path() == first
    assert saved.path_of("20260202") == second
    assert cli.main(["resume", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schema())
    listed = found["cases"]
    assert [case["id"] for case in listed] == ["20260101-101010-7", "20260202-101010-7", "damaged"]
    assert [case["readable"] for case in listed] == [True, True, False]
    assert listed[0]["kind"] == "cuda_oom" and listed[0]["tried"] == ["smaller-batch"]
    assert listed[0]["answered"] == 2  # one answer, one "I don't know"
    assert cli.main(["resume", "list", "--lang", "en"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "in the forward pass" in shown and "Take a smaller batch" in shown and "cut off" in shown
    assert cli.main(["resume", "20260101", "--json", "--no-gpu"]) in (0, 10)
    assert json.loads(capsys.readouterr().out)["crash"]["kind"] == "cuda_oom"


@pytest.mark.parametrize("name", ["2026", "1999"])
def test_an_id_that_is_none_or_several_names_those_there_are(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for begun in ("20260101-101010-7", "20260202-101010-7"):
        saved.save(Case(), str(folder / f"case-{begun}.yaml"))
    assert cli.main(["resume", name, "--lang", "en"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "20260101-101010-7" in said and "20260202-101010-7" in said


def test_two_terminals_do_not_mix_their_writing() -> None:
    path = saved.new_path()
    Path(f"{path}.999999.new").write_text("{ half")  # what another process is writing at this moment
    saved.save(a_case(), path)
    assert saved.load(path).tried == ("smaller-batch",)
    assert Path(f"{path}.999999.new").read_text() == "{ half"


def test_the_last_twenty_are_kept(folder: Path) -> None:
    for number in range(22):
        path = str(folder / f"case-{number:02}.yaml")
        saved.save(Case(), path)
        _older(path, 100 - number)
    saved.save(Case(), str(folder / "case-new.yaml"))
    assert len(saved.kept()) == 20 and saved.kept()[0].id == "new" and saved.kept()[-1].id == "03"
