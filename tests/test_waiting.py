"""Waiting until memory comes free: on a clock of its own, in the real command, and in the dialogue."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from oomdoctor import cli, doctor
from oomdoctor.case import Case, Fact, Gpu, Holder, Machine
from oomdoctor.doctor import Findings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.document import schema
from oomdoctor.sources import gpu_wait
from oomdoctor.sources.gpu_wait import Waited, first_card, freest_card, wait_for
from oomdoctor.units import GIB, MIB
from oomdoctor.wizard.waiting import Wait, worth_waiting
from oomdoctor.wizard.walk import Interrupted
from tests.wizard.test_walk import Doctor, Script, steady, talk

ROOT = Path(__file__).parents[1]
CARD = ROOT / "examples" / "llama2-7b-qlora-3090.yaml"
Fake = Callable[..., Mapping[str, str]]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def waited(
    free: list[int | None], needed: int = 18, timeout: float | None = None, cards: str = ""
) -> tuple[Waited, int]:
    """What comes of looks that show so many GiB free, the last again and again; how many there were."""
    clock, shown = Clock(), []

    def looks() -> Iterator[Gpu | None]:
        for number in range(1000):
            size = free[min(number, len(free) - 1)]
            uuid = cards[min(number, len(cards) - 1)] if cards else None
            yield None if size is None else Gpu(0, free_bytes=size * GIB, uuid=uuid)

    coming = looks()
    done = wait_for(needed * GIB, lambda: next(coming), shown.append, timeout, clock=clock, sleep=clock.sleep)
    assert shown[-1] == done
    return done, len(shown)


@pytest.mark.parametrize(
    ("free", "timeout", "enough", "looks"),
    [
        ([20], None, True, 2),  # two in a row also at the start
        ([3, 3, 20], None, True, 4),
        ([20, 3, 20], None, True, 4),  # free for a moment between two runs of somebody else's
        ([20, None, 20], None, True, 4),  # once the card could not be read
        ([18], None, True, 2),
        ([17], 7, False, 5),  # looks after 0, 2, 4, 6 and 7 s
        ([3, 3, 3, 20], 7, True, 5),
        ([3, 3, 3, 3, 20], 7, False, 5),  # one look is not enough
        ([20], 0, True, 1),
        ([3], 0, False, 1),
    ],
)
def test_it_ends_after_two_looks_in_a_row_or_when_the_time_is_up(
    free: list[int | None], timeout: float | None, enough: bool, looks: int
) -> None:
    done, count = waited(free, timeout=timeout)
    assert (done.enough, count) == (enough, looks)
    assert done.seconds == (timeout if timeout is not None and not enough else 2.0 * (looks - 1) if looks < 5 else 7.0)


def test_two_looks_at_two_cards_are_not_two_in_a_row() -> None:
    assert waited([20, 20, 20], cards="abb") == (Waited(Gpu(0, free_bytes=20 * GIB, uuid="b"), True, 4.0), 3)


def test_which_card_is_waited_for() -> None:
    gpus = [
        Gpu(0, free_bytes=1, cuda_index=1),
        Gpu(1, free_bytes=9, cuda_index=None),
        Gpu(2, free_bytes=5, cuda_index=0),
    ]
    assert first_card(gpus) == gpus[2] == freest_card(gpus)
    assert freest_card([gpus[0], gpus[2]._replace(free_bytes=1)]) == gpus[2]._replace(free_bytes=1)
    assert first_card([]) is None and freest_card(gpus[1:2]) is None


def command(environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oomdoctor", "gpu", "--lang", "en", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=dict(environment),
    )  # fmt: skip


def test_the_command_waits_for_a_card_that_comes_free_and_names_it(fake_nvml: Fake, tmp_path: Path) -> None:
    full = "gpu name=A uuid=GPU-{0} total=24576 used=23000 reserved=430 cc=8.6\n"
    scenario = tmp_path / "scenario.txt"
    scenario.write_text(full.format(0) + full.format(1))
    running = command(
        {**fake_nvml("healthy"), "FAKE_NVML": str(scenario)}, "--wait", "18GiB", "--any", "--timeout", "30"
    )
    assert running.stderr is not None and "free now 1.12 GiB" in running.stderr.readline()  # 24576 - 23000 - 430 MiB
    fresh = tmp_path / "fresh.txt"
    fresh.write_text(full.format(0) + full.format(1).replace("23000", "2"))
    os.replace(fresh, scenario)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (0, "1\n")
    assert "Card 1 has 23.58 GiB free" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--wait", "23GiB", "--timeout", "0"), 0, "Card 0 has 23.58 GiB free"),
        (("--wait", "23.9 GiB", "--timeout", "0"), 2, "will never be free"),  # 24576 - 430 MiB are 23.58 GiB
    ],
)
def test_what_is_free_already_and_what_can_never_be(
    arguments: tuple[str, ...], code: int, said: str, fake_nvml: Fake
) -> None:
    running = command(fake_nvml("healthy"), *arguments)
    out, err = running.communicate(timeout=30)
    assert running.returncode == code and said in err and out == "" and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--wait", "18", "--timeout", "0"), "such as 18GiB"),
        (("--wait", "-3GiB"), "--wait"),
        (("--wait", "nan GiB"), "such as 18GiB"),
        (("--wait", "9" * 400 + "GiB"), "such as 18GiB"),
        (("--wait", "3GiB", "--timeout", "nan"), "--timeout nan"),
        (("--wait", "3GiB", "--no-gpu"), "--no-gpu"),
        (("--any",), "--wait"),
        (("--timeout", ""), "--wait"),
    ],
)
def test_odd_requests_are_refused_in_one_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["gpu", "--lang", "en", *arguments]) == 2
    out, err = capsys.readouterr()
    assert said in err and out == "" and len(err.splitlines()) == 1


def test_when_the_time_is_up_the_exit_code_says_so_and_no_card_is_an_error(fake_nvml: Fake) -> None:
    full = command(fake_nvml("crowded"), "--wait", "18GiB", "--timeout", "0", "--json")
    out, _ = full.communicate(timeout=30)
    assert full.returncode == 5 and '"enough": false' in out
    jsonschema.validate(json.loads(out), schema())
    absent = command(fake_nvml("absent"), "--wait", "1GiB")
    _, err = absent.communicate(timeout=30)
    assert absent.returncode == 2 and "no card to wait for" in err and "libnvidia-ml" in err


def test_the_wizard_waits_in_a_terminal_until_the_card_is_free(fake_nvml: Fake, tmp_path: Path) -> None:
    """Ctrl-C leads back to the choices; then somebody else's run ends, and the dialogue goes on."""
    pexpect = pytest.importorskip("pexpect")
    card = 'gpu name="RTX 3090" uuid=GPU-0 total=24576 used=20000 reserved=430 cc=8.6\n'
    full = card + "proc pid=7001 mem=19900 type=C name=python\n"
    scenario, fresh = tmp_path / "scenario.txt", tmp_path / "fresh.txt"
    scenario.write_text(full)
    env = {**fake_nvml("healthy"), "FAKE_NVML": str(scenario), "XDG_DATA_HOME": str(tmp_path), "TERM": "xterm"}
    arguments = ["-m", "oomdoctor", "--plain", "--lang", "en", "--run", str(CARD), "--set", "max_length=512"]
    child = pexpect.spawn(
        sys.executable, arguments, env=env, encoding="utf-8", timeout=30, dimensions=(50, 100), cwd=ROOT
    )
    child.expect("Wait until enough comes free")
    child.expect("Number")
    child.sendline("1")
    child.expect("free now 4.05 GiB")  # 24576 - 20000 - 430 MiB
    child.sendcontrol("c")
    child.expect("The waiting was ended")
    child.expect("Number")
    child.sendline("1")
    child.expect("free now 4.05 GiB")
    fresh.write_text(full.replace("used=20000", "used=3").replace("mem=19900", "mem=1"))
    os.replace(fresh, scenario)
    child.expect("23.58 GiB are free now, which is enough")
    child.expect("it fits as it is")
    child.close(force=True)


def test_ctrl_c_ends_the_command_with_130(fake_nvml: Fake) -> None:
    running = command(fake_nvml("crowded"), "--wait", "18GiB")
    assert running.stderr is not None and running.stderr.readline()
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 130 and "Traceback" not in err


def card(others: int, own: int = 0, free: int | None = None) -> Gpu:
    """A 3090 on which others hold so many bytes."""
    holders = (Holder(7, others, "python", "other"), Holder(8, own, "python", "own"))
    total, reserved = 24576 * MIB, 430 * MIB
    left = total - reserved - others - own if free is None else free
    return Gpu(
        0,
        "NVIDIA GeForce RTX 3090",
        total,
        left,
        others + own,
        reserved,
        0,
        8.6,
        "GPU-1",
        holders=holders,
        cuda_index=0,
    )


def planned(gpu: Gpu) -> Findings:
    facts = [Fact("max_length", 512, "set"), Fact("gpus.name", "RTX 3090", "set")]
    return doctor.examine(doctor.read_card(str(CARD)).know(facts), Machine((gpu,), source="nvml"))


def test_it_is_worth_waiting_where_others_hold_what_the_run_needs() -> None:
    alone = planned(card(0))
    assert alone.bill is not None and worth_waiting(alone) is None
    needed = needed_bytes(alone.bill)
    crowd = 24576 * MIB - 430 * MIB - needed + GIB  # one GiB too much
    found = worth_waiting(planned(card(crowd - 4 * GIB, 4 * GIB)))
    assert found == Wait(card(crowd - 4 * GIB, 4 * GIB), needed, crowd)
    assert worth_waiting(planned(card(crowd - 2 * GIB))) is None  # enough is free beside them
    screen = card(crowd, free=0)._replace(holders=(Holder(5, crowd, "Xorg", "desktop"),), desktop_bytes=crowd)
    assert worth_waiting(planned(screen)) is None  # a desktop does not end by itself
    nobody = worth_waiting(planned(card(crowd)._replace(holders=())))  # as in Docker, where nobody is listed
    assert nobody is not None and nobody.held == crowd


class Cards:
    """What the machine shows at each look; an exception is raised."""

    def __init__(self, *looks: Gpu | BaseException) -> None:
        self.looks = list(looks)

    def __call__(self) -> Machine:
        now = self.looks.pop(0)
        if isinstance(now, BaseException):
            raise now
        return Machine((now,), source="nvml")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_wait, "PAUSE", 0)


def in_dialogue(answers: list[Any], look: Cards) -> tuple[Script, Doctor, list[Case]]:
    gpu = card(20 * GIB)
    crowded = steady().findings(Case())

    def findings(case: Case) -> Findings:
        return crowded._replace(case=case._replace(machine=Machine((gpu,), source="nvml")))

    script, seen, saved = Script(answers), Doctor(findings), []
    talk(script, seen, look=look, saved=saved)
    return script, seen, saved


@pytest.mark.usefixtures("at_once")
def test_the_dialogue_waits_and_goes_on_by_itself() -> None:
    full, free = card(20 * GIB), card(0)
    script, seen, _ = in_dialogue([True, "stop"], Cards(full, free, free))
    assert script.asked[0][1] == [True, False] and "Wait until enough comes free" in script.asked[0][0]
    assert "are free now, which is enough" in script.printed
    assert seen.seen[-1].facts.get("machine.foreign_bytes") == 0  # whatever others held at the crash
    assert "stop" in script.asked[1][1]  # the plan's first step comes next


@pytest.mark.usefixtures("at_once")
def test_ctrl_c_ends_the_waiting_and_not_the_dialogue() -> None:
    script, _, saved = in_dialogue(
        [True, True, False, "stop"], Cards(card(20 * GIB), KeyboardInterrupt(), KeyboardInterrupt())
    )
    assert [values for _, values in script.asked[:3]] == [[True, False]] * 3
    assert script.printed.count("The waiting was ended") == 2
    assert re.search(r"oomdoctor gpu --wait \d+MiB && ", script.printed)
    assert saved[-1].crash is not None and saved[-1].facts.get("machine.foreign_bytes") is None


@pytest.mark.usefixtures("at_once")
def test_a_request_to_end_ends_the_dialogue_too() -> None:
    def asked_to_end() -> Machine:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)
        raise AssertionError("the signal was not taken")

    with pytest.raises(Interrupted):
        in_dialogue([True], asked_to_end)  # type: ignore[arg-type]


def test_nobody_is_asked_to_wait_where_the_card_cannot_be_read() -> None:
    script = Script(["stop"])
    talk(script, steady())
    assert "Wait until" not in script.asked[0][0]
