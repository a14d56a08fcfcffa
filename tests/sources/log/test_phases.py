"""Where a crash happened: the innermost frame that decides, with the traps of real tracebacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomdoctor.knowledge import read_yaml
from oomdoctor.sources.log.frames import Frame, frame_at, traceback_of
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.phases import phase_of_frames, phase_of_words

CASES = read_yaml(str(Path(__file__).parents[2] / "corpus" / "phases.yaml"))
SITE = "/env/lib/python3.11/site-packages/"


def frames(*calls: str) -> list[Frame]:
    """Frames of `path in function`, outermost first."""
    return [Frame(SITE + path, 1, function) for path, function in (call.split(" in ") for call in calls)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['phase']}-{case['frames'][-1].split()[-1]}")
def test_the_innermost_frame_that_decides_wins(case: dict[str, Any]) -> None:
    assert phase_of_frames(frames(*case["frames"]))[0] == case["phase"]


@pytest.mark.parametrize(
    ("text", "path", "function", "line"),
    [
        ('  File "/a/b.py", line 12, in f', "/a/b.py", "f", 12),
        ("> File 'C:\\x\\b.py', line 12, in f", "C:\\x\\b.py", "f", 12),
        ("File ~/x/trainer.py:1633, in Trainer.train(self, resume)", "~/x/trainer.py", "Trainer.train", 1633),
        ("[/usr/lib/x.py](https://localhost:8080/#) in _convert(tensor)", "/usr/lib/x.py", "_convert", 0),
        ("/usr/lib/x.py in forward(self, x)", "/usr/lib/x.py", "forward", 0),
        ("<ipython-input-7-3d62> in <module>()", "<ipython-input-7-3d62>", "<module>", 0),
        ("/work/train.py:873 in train", "/work/train.py", "train", 873),
        ('  File "<frozen runpy>", line 88, in _run_code', "<frozen runpy>", "_run_code", 88),
    ],
)
def test_every_form_of_a_frame_is_read(text: str, path: str, function: str, line: int) -> None:
    frame = frame_at([Line(1, text)], 0)
    assert frame is not None
    assert (frame.path, frame.function, frame.line) == (path, function, line)


@pytest.mark.parametrize("text", ["saved in 3 s", "File not found", "INFO in the middle", "step 3 in epoch 2", ""])
def test_other_lines_are_no_frames(text: str) -> None:
    assert frame_at([Line(1, text)], 0) is None


def test_a_traceback_ends_at_its_header_and_belongs_to_its_rank() -> None:
    lines = [
        Line(1, '  File "/old.py", line 1, in old'),
        Line(2, "ValueError: old"),
        Line(3, "Traceback (most recent call last):", 1),
        Line(4, '  File "/a.py", line 1, in main', 1),
        Line(5, '  File "/other.py", line 9, in other', 2),
        Line(6, '  File "/b.py", line 2, in inner', 1),
        Line(7, "    return g(x)", 1),
        Line(8, "RuntimeError: x", 1),
    ]
    traceback = traceback_of(lines, 7)
    assert [frame.function for frame in traceback.frames] == ["main", "inner"]
    assert traceback.frames[-1].code == "return g(x)"


@pytest.mark.parametrize(
    ("before", "phase"),
    [
        ("Loading checkpoint shards:  57% 4/7 [00:40<00:29,  9.96s/it]", "model_load"),
        ("Loading checkpoint shards: 100%|███| 7/7 [00:40<00:00,  9.96s/it]", "unknown"),
        ("Tokenizing dataset (num_proc=32):  71%|███| 11/16 [04:11<01:33, 51.2 examples/s]", "data_preprocessing"),
        ("***** Running Evaluation *****", "eval"),
        ("Saving model checkpoint to out/checkpoint-500", "checkpoint_save"),
        (" 12%|█▏  | 120/1000 [20:11<2:28:01, 10.09s/it]", "unknown"),
        ("Loading weights:  41%|████ | 120/291 [00:01<00:02, Materializing param=model.norm.weight]", "model_load"),
        ("[INFO] [utils.py:781:see_memory_usage] Before initializing optimizer states", "engine_init"),
        ("Capturing CUDA graph shapes:  34%|███▍ | 12/35 [00:08<00:16,  1.41it/s]", "engine_init"),
        ("caching latents.", "data_preprocessing"),
    ],
)
def test_without_frames_the_last_words_tell(before: str, phase: str) -> None:
    assert phase_of_words([Line(1, before), Line(2, "Killed")], 1)[0] == phase
