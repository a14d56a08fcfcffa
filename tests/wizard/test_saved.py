"""What is saved comes back; what was damaged since is refused in one sentence, or read as a case like any other."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomdoctor import cli, doctor
from oomdoctor.case import Case, Fact, Machine, Text, UserError
from oomdoctor.wizard import saved
from tests.report import samples

LOG = Path(__file__).parents[2] / "examples" / "llama2-7b-lora-3090.log"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "oomdoctor").mkdir()
    return tmp_path / "oomdoctor"


def a_case() -> Case:
    reason = Text("texts/doctor.kept", {"size": 5})
    told = [Fact("machine.foreign_bytes", 2 * 10**9, "log"), Fact("log.unexplained_bytes", 5, "log", reason)]
    return doctor.read_log(str(LOG)).know(told)._replace(tried=("smaller-batch",), unknown_answers=("padding",))


@pytest.mark.parametrize(
    "case", [a_case(), Case(), Case(facts=samples.facts(), crash=samples.crash(), origin="a\udcff")]
)
def test_what_is_saved_comes_back(case: Case) -> None:
    assert saved.load(saved.save(case, saved.new_path())) == case._replace(
        facts=saved.load(saved.last_path()).facts, machine=Machine()
    )
    kept = {key: fact for key, fact in case.facts.won.items() if not fact.assumed}
    assert dict(saved.load(saved.last_path()).facts.won) == kept


def test_a_reason_in_words_that_are_no_more_is_dropped(folder: Path) -> None:
    content = json.loads(Path(saved.save(a_case(), saved.new_path())).read_text())
    content["facts"] = [{"key": "max_length", "value": 512, "source": "answer", "reason": reason} for reason in (
        {"path": "texts/doctor.gone", "values": {}}, {"path": "texts/doctor.kept", "values": {}}, 7
    )]  # fmt: skip
    path = folder / "case-1.json"
    path.write_text(json.dumps(content))
    fact = saved.load(str(path)).facts.won["max_length"]
    assert (fact.value, fact.reason) == (512, None)


def resume(content: str, folder: Path) -> tuple[int, str]:
    for old in folder.iterdir():
        old.unlink()
    (folder / "case-1.json").write_text(content)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["resume", "--no-input", "--no-gpu", "--json"])
    json.loads(out.getvalue(), parse_constant=pytest.fail)
    return code, err.getvalue()


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "7", '"x"', "{}", '{"facts": []}', "[" * 5000, '{"facts": null, "crash": null}'],
)
def test_what_is_no_case_is_refused_in_one_sentence(content: str, folder: Path) -> None:
    code, said = resume(content, folder)
    assert code == 2 and len(said.splitlines()) == 1


ODD = st.sampled_from(
    [None, True, -1, 0, 2**70, 10**400, 1.5, float("inf"), float("nan"), "", "x", "7", [], ["x"], [None], {}, {"a": 1},
     "texts/doctor.kept", {"path": "x", "values": {}}, {"path": "texts/doctor.kept", "values": {"size": "x"}}]
)  # fmt: skip


def places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [here, *(place for key, part in inner for place in places(part, (*here, key)))][0 if here else 1 :]


@cache
def saved_case() -> str:
    return json.dumps(saved._as_json(a_case()))


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
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
    code, said = resume(json.dumps(content), folder)
    assert code in (0, 2, 3, 4, 10), said
    assert len(said.splitlines()) == (code in (2, 4))


def test_where_nothing_can_be_saved_a_sentence_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "file"))
    with pytest.raises(UserError):
        saved.save(Case(), saved.new_path())


def _older(path: str, seconds: int) -> None:
    then = os.path.getmtime(path) - seconds
    os.utime(path, (then, then))


def test_a_case_is_taken_up_by_its_id_and_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = str(folder / "case-20260101-101010-7.json"), str(folder / "case-20260202-101010-7.json")
    for path, case in ((first, a_case()), (second, Case(origin="other.log"))):
        saved.save(case, path)
    _older(second, 60)  # begun later, but the first was saved last
    (folder / "case-damaged.json").write_text("{")
    _older(str(folder / "case-damaged.json"), 120)
    assert saved.last_path() == first
    assert saved.path_of("20260202") == second
    assert cli.main(["resume", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["cases"]
    assert [case["id"] for case in listed] == ["20260101-101010-7", "20260202-101010-7", "damaged"]
    assert [case["readable"] for case in listed] == [True, True, False]
    assert listed[0]["kind"] == "cuda_oom" and listed[0]["tried"] == ["smaller-batch"]
    assert cli.main(["resume", "list", "--lang", "en"]) == 0
    assert "1 steps taken" in capsys.readouterr().out
    assert cli.main(["resume", "20260101", "--json", "--no-gpu"]) in (0, 10)
    assert json.loads(capsys.readouterr().out)["crash"]["kind"] == "cuda_oom"


@pytest.mark.parametrize("name", ["2026", "1999"])
def test_an_id_that_is_none_or_several_names_those_there_are(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for begun in ("20260101-101010-7", "20260202-101010-7"):
        saved.save(Case(), str(folder / f"case-{begun}.json"))
    assert cli.main(["resume", name, "--lang", "en"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "20260101-101010-7" in said and "20260202-101010-7" in said


def test_two_terminals_do_not_mix_their_writing(folder: Path) -> None:
    path = saved.new_path()
    Path(f"{path}.999999.new").write_text("{ half")  # what another process is writing at this moment
    saved.save(a_case(), path)
    assert saved.load(path).tried == ("smaller-batch",)
    assert Path(f"{path}.999999.new").read_text() == "{ half"
