"""From a log whose printed memory grows to a plan that mends the leak first."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from oomdoctor import doctor
from oomdoctor.case import Text
from oomdoctor.report.now import now_section
from oomdoctor.report.page import Page
from oomdoctor.texts import render

COMMAND = "$ python train.py --model_name_or_path huggyllama/llama-7b --use_lora --bf16 --per_device_train_batch_size 2"
CRASH = """Traceback (most recent call last):
  File "train.py", line 71, in <module>
    outputs = model(**batch)
  File "/opt/env/lib/python3.10/site-packages/torch/nn/modules/module.py", line 1501, in _call_impl
    return forward_call(*args, **kwargs)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 23.57 GiB of \
which 42.06 MiB is free. Including non-PyTorch memory, this process has 23.02 GiB memory in use. Of the allocated \
memory 22.38 GiB is allocated by PyTorch, and 204.50 MiB is reserved by PyTorch but unallocated.
"""


def _findings(tmp_path: Path, sizes: list[float], model: str = "") -> doctor.Findings:
    log = tmp_path / "train.log"
    steps = [f"step {20 * n}: loss 1.9, memory allocated {size:.2f} GiB" for n, size in enumerate(sizes, 1)]
    log.write_text("\n".join([model, *steps, CRASH]))
    return doctor.examine(doctor.read_log(str(log)))


def test_a_leak_is_the_cause_and_the_first_step_which_says_what_the_others_are_worth(tmp_path: Path) -> None:
    found = _findings(tmp_path, [14.1, 15.4, 16.6, 17.9, 19.1, 20.4])
    assert found.diagnosis is not None and found.plan is not None
    assert (found.diagnosis.cause, found.diagnosis.confidence) == ("leak", "medium")
    assert found.plan.steps[0].rule.id == "leak"
    assert [note.path for note in found.plan.steps[0].notes] == ["fixes/leak/notes/postponed"]
    assert "long-sample" not in found.plan.rules


def test_with_a_bill_the_leak_still_comes_first_and_the_bill_is_not_held_against_many_good_steps(
    tmp_path: Path,
) -> None:
    found = _findings(tmp_path, [14.1, 15.4, 16.6, 17.9, 19.1, 20.4], COMMAND)
    assert found.diagnosis is not None and found.plan is not None
    assert found.bill is not None
    assert found.diagnosis.cause == "leak" and found.plan.steps[0].rule.id == "leak"
    assert not any(isinstance(text, Text) and text.path.endswith("on_the_way") for text in found.diagnosis.because)


def test_a_shown_line_that_keeps_tensors_is_named_where_memory_grows(tmp_path: Path) -> None:
    shown = CRASH.replace("outputs = model(**batch)", "total_loss += outputs.loss")
    growing, steady = [14.1, 15.4, 16.6, 17.9, 19.1, 20.4], [14.1, 14.2, 14.1, 14.1, 14.2, 14.1]
    for sizes, named in ((growing, True), (steady, False)):
        log = tmp_path / "train.log"
        steps = [f"step {20 * n}: loss 1.9, memory allocated {size:.2f} GiB" for n, size in enumerate(sizes, 1)]
        log.write_text("\n".join([*steps, shown]))
        plan = doctor.examine(doctor.read_log(str(log))).plan
        assert plan is not None
        notes = [render(note, "en") for step in plan.steps for note in step.notes]
        assert any("total_loss += outputs.loss" in note for note in notes) is named


def test_steady_memory_and_a_late_death_lead_to_the_longest_samples(tmp_path: Path) -> None:
    found = _findings(tmp_path, [14.1, 14.2, 14.1, 14.1, 14.2, 14.1])
    assert found.diagnosis is not None and found.plan is not None
    assert found.diagnosis.cause != "leak"
    assert "long-sample" in found.plan.rules and "leak" not in found.plan.rules


def test_the_last_word_on_a_leak_does_not_promise_that_it_fits(tmp_path: Path) -> None:
    found = _findings(tmp_path, [14.1, 15.4, 16.6, 17.9, 19.1, 20.4], COMMAND)
    assert found.plan is not None and found.plan.fits
    stream = StringIO()
    now_section(Page(Console(file=stream, width=80), "en"), found)
    assert "Stop the growth first" in stream.getvalue() and "then it fits" not in stream.getvalue()
