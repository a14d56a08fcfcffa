"""`oomdoctor dry-run` as people call it: against a real card, against real tensors, against sums done by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from oomdoctor import commands, dryrun
from oomdoctor.case import UserError
from oomdoctor.trace import launch
from oomdoctor.trace.peaks import PhasePeak
from oomdoctor.trace.result import Simulated
from oomdoctor.trace.spec import Spec
from oomdoctor.units import GIB, MIB
from tests.program import ROOT, document, oomdoctor

PATIENT = 600  # seconds: torch's import alone takes many on a busy machine

# can-i-finetune, RTX 4080, torch 2.6: 4.0413 GiB allocated, 4.3574 GiB reserved.
MEASURED = {
    "model": "Qwen/Qwen2.5-1.5B",
    "framework": "pytorch",
    "versions": {"torch": "2.6.0"},
    "method": "lora",
    "lora": {"r": 16, "target_modules": ["q", "k", "v", "o"]},
    "torch_dtype": "bfloat16",
    "mixed_precision": "no",
    "quantization": "nf4-double",
    "kbit_prepare": True,
    "optim": "paged_adamw_8bit",
    "per_device_train_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "max_length": 1024,
    "padding": "max_length",
    "gradient_checkpointing": "full",
    "attn_implementation": "sdpa",
    "gpus": {"count": 1, "name": "RTX 4080"},
}


def card(folder: Path, **changed: Any) -> Path:
    path = folder / "card.yaml"
    path.write_text(json.dumps({**MEASURED, **changed}))  # JSON is YAML
    return path


def test_a_run_that_was_measured_on_a_real_card_is_met(tmp_path: Path) -> None:
    found = document("dry-run", card(tmp_path), timeout=PATIENT)
    run = found["dry_run"]
    assert run["kind"] == "simulated"
    assert run["peak"]["allocated_bytes"] / GIB == pytest.approx(4.0413, rel=0.01)
    assert run["peak"]["reserved_bytes"] / GIB == pytest.approx(4.3574, rel=0.03)
    assert (run["traced_layers"], run["layers"]) == (4, 28)
    assert sum(line["bytes"] for line in run["lines"]) == run["peak"]["allocated_bytes"]
    assert [phase["phase"] for phase in run["phases"]] == [
        "model_load", "forward", "loss", "backward", "optimizer_step",
    ]  # fmt: skip
    fullest = max(run["phases"], key=lambda phase: phase["allocated_bytes"])
    assert fullest["phase"] == run["phase"]
    assert all(sum(line["bytes"] for line in phase["lines"]) == phase["allocated_bytes"] for phase in run["phases"])
    # fp32, for each token and word: the logits that the loop keeps, their log-softmax, and a gradient of each
    assert {line["key"]: line["bytes"] for line in run["lines"]}["logits"] == 4 * 4 * 1024 * 151936
    # the embedding, made fp32, is the largest single thing, and the output layer is tied to it
    assert (run["holders"][0]["name"], run["holders"][0]["bytes"]) == ("model.embed_tokens.weight", 4 * 151936 * 1536)
    assert run["on_card"]["fits"] is True
    assert found["bill"]["peak"]["allocated"]["likely"] / GIB == pytest.approx(4.0413, rel=0.03)


STEP = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(1024, 1024, bias=False).to(device)
optimizer = torch.optim.AdamW(model.parameters())
def step():
    x = torch.randn(256, 1024, device=device)
    loss = model(x).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
def broken():
    return model(torch.randn(256, 512))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(STEP)
    return path


def test_a_step_of_ones_own_is_counted(script: Path) -> None:
    """fp32: weights 4 MiB, two AdamW states 8 MiB, input and output 1 MiB each; cuBLAS 8.125 MiB a thread."""
    done = oomdoctor("dry-run", f"{script}:step", "--json", timeout=PATIENT)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stderr  # what the script prints is not in the way of the document
    phases = {phase["phase"]: phase for phase in json.loads(done.stdout)["dry_run"]["phases"]}
    cublas = 2 * 8.125

    def mib(phase: str, **lines: float) -> None:
        found = {line["key"]: line["bytes"] / MIB for line in phases[phase]["lines"]}
        for key, size in lines.items():
            assert found[key] == pytest.approx(size, abs=0.01), (phase, key)

    # the square keeps the output, the product its input; the squares are summed and go
    mib("forward", weights=4, optimizer_states=8, activations=2, temporaries=1, workspaces=cublas)
    # the output is gone again when its gradient, which passes through, meets the input
    mib("backward", weights=4, optimizer_states=8, activations=1, temporaries=1, gradients=4, workspaces=cublas)
    # foreach AdamW holds the root of the second average
    mib("optimizer_step", weights=4, optimizer_states=8, gradients=4, temporaries=4, workspaces=cublas)


def test_what_is_wrong_with_a_step_is_said_in_one_sentence(script: Path) -> None:
    done = oomdoctor("dry-run", f"{script}:broken", timeout=PATIENT)
    assert done.returncode == 2
    assert "its code failed at train.py:14: RuntimeError" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_script_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    done = oomdoctor("dry-run", f"{tmp_path}/nothing.py:step")
    assert (done.returncode, "no such file" in done.stderr) == (2, True)


# A job that was started in the background has Ctrl-C ignored, and so do its children.
HEEDING_CTRL_C = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from oomdoctor.cli import main; sys.exit(main())"
)


def test_ctrl_c_ends_it_and_its_child(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", HEEDING_CTRL_C, "dry-run", card(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )
    deadline = time.monotonic() + PATIENT
    while not (children := _children(started.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    out, complaints = started.communicate(timeout=PATIENT)
    assert (started.returncode, out) == (130, "")
    assert complaints.strip() == "oomdoctor: Interrupted."
    assert children
    assert not any(os.path.exists(f"/proc/{child}") for child in children)


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def test_without_torch_one_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert commands.run(["dry-run", str(card(tmp_path)), "--lang", "en"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "torch, transformers, peft" in said and "pip install 'oomdoctor[torch]'" in said


def test_sharded_training_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    done = oomdoctor("dry-run", card(tmp_path, parallelism="zero3", gpus={"count": 8, "name": "A100 80GB"}), "--json")
    assert done.returncode == 2
    assert "parallelism: zero3" in json.loads(done.stdout)["error"]["message"]


def test_a_card_without_a_model_lacks_it(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text("method: full\nper_device_train_batch_size: 1\n")
    done = oomdoctor("dry-run", path, "--json")
    assert done.returncode == 4
    assert "model" in json.loads(done.stdout)["error"]["message"]


FOUND = Simulated((), PhasePeak("forward", 1, 0, {}), (), (512,), (0,), ((0, "forward"),), {"torch": "2.13.0"})


def asked_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """The step that a card asks for, without running it."""
    asked: list[Spec] = []
    monkeypatch.setattr(launch, "simulate_step", lambda spec, reference, progress: (asked.append(spec), FOUND)[1])
    dryrun.of_card(str(path), (), lambda what: None)
    return asked[0]


def test_short_names_of_modules_become_those_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_of(card(tmp_path), monkeypatch).lora.target_modules == ("q_proj", "k_proj", "v_proj", "o_proj")


def test_an_encoder_decoder_of_no_known_family_is_simulated_though_no_formula_describes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsmt = {"model_type": "fsmt", "is_encoder_decoder": True, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(fsmt))
    spec = asked_of(card(tmp_path, model="config.json", quantization="none"), monkeypatch)
    assert spec.config["d_model"] == 64


def test_a_model_that_nobody_knows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError):
        asked_of(card(tmp_path, model="no-such-model-at-all"), monkeypatch)


def test_other_versions_than_the_runs_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "simulate_step", lambda *asked: FOUND)
    found = dryrun.of_card(str(card(tmp_path)), (), lambda what: None)
    (note,) = [note for note in found.notes if note.path == "texts/trace.note_versions"]
    assert note.values["other"] == ["torch 2.6.0"]
