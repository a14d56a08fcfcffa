"""`%oomdoctor` in a real IPython shell."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

MESSAGE = (
    "CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 23.57 GiB of which 41.69 MiB is "
    "free. Including non-PyTorch memory, this process has 23.02 GiB memory in use. Of the allocated memory 22.38 GiB "
    "is allocated by PyTorch, and 203.57 MiB is reserved by PyTorch but unallocated."
)
SETTINGS = """
from transformers import AutoModelForCausalLM, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-hf", torch_dtype="bfloat16")
arguments = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2, bf16=True)
"""
FAILING = f"""
class Tensor:
    pass
class OutOfMemoryError(RuntimeError):
    pass
OutOfMemoryError.__module__ = "torch"
def step():
    held = Tensor()
    watch(held)
    raise OutOfMemoryError({MESSAGE!r})
step()
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    sys.last_value = sys.last_traceback = sys.last_type = None
    yield InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    InteractiveShell.clear_instance()


def test_a_failed_cell_is_read_and_its_tensors_come_free(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    held: list[weakref.ref[Any]] = []
    shell.user_ns["watch"] = lambda tensor: held.append(weakref.ref(tensor))
    # The cell is not run, so that no transformers is needed, but it stands in the history as one that was.
    shell.history_manager.input_hist_parsed.append(SETTINGS)
    shell.run_cell("%load_ext oomdoctor")
    shell.run_cell(FAILING, store_history=True)
    gc.collect()
    assert held[0]() is not None  # the traceback holds it
    capsys.readouterr()
    shell.run_line_magic("oomdoctor", "--no-input --no-gpu --lang en")
    said = capsys.readouterr().out
    assert "The GPU ran out of memory" in said and "asked for 86.00 MiB" in said
    assert "per_device_train_batch_size = 4" in said and "Llama-2-7b" in said
    assert held[0]() is None


def test_without_a_failed_cell_it_says_what_it_needs(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("%load_ext oomdoctor")
    capsys.readouterr()
    shell.run_line_magic("oomdoctor", "--no-input --lang en")
    assert "--from-log" in capsys.readouterr().err
