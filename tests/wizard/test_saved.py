"""What is saved comes back; what was damaged since is refused in one sentence, or read as a case like any other."""

from __future__ import annotations

import contextlib
import copy
import io
import json
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
