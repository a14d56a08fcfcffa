"""What launchers, loggers, terminals and collectors put around a line is taken off; what they say of ranks is kept."""

from __future__ import annotations

import pytest

from oomdoctor.sources.log.clean import clean_lines
from oomdoctor.sources.log.lines import Line
from oomdoctor.sources.log.sieve import Region


def clean(text: str | bytes) -> list[Line]:
    return clean_lines([Region(1, text if isinstance(text, bytes) else text.encode())])


@pytest.mark.parametrize(
    ("raw", "text", "rank"),
    [
        ("[rank1]: Traceback", "Traceback", 1),
        ("[rank12]:   File x", "  File x", 12),
        ("[default4]:[rank4]: oops", "oops", 4),
        ("[1,3]<stderr>:oops", "oops", 3),
        ("0: Error: [rank0]: oops", "oops", 0),
        ("192.168.0.32: oops", "oops", None),
        ("(WorkerDict pid=44419) oops", "oops", None),
        ("\x1b[36m(WorkerDict pid=44419)\x1b[0m oops", "oops", None),
        ("(EngineCore_DP0 pid=6940) ERROR 04-30 10:20:36 [core.py:396] oops", "oops", None),
        ("(VllmWorker rank=1 pid=8812) ERROR 06-29 18:07:28 [multiproc_executor.py:487] oops", "oops", 1),
        ("ERROR 11-18 18:07:28 engine.py:366] oops", "oops", None),
        ("vllm-1  | oops", "oops", None),
        ("2024-10-01T10:00:01.123456789Z stderr F oops", "oops", None),
        ("2025-11-14T08:52:38.3746210Z oops", "oops", None),
        ("[80746] oops", "oops", None),
        ("[INFO|trainer.py:1712] 2023-10-19 09:44:55,247 >>   Num Epochs = 10", "  Num Epochs = 10", None),
        ("2024-08-21 22:56:04 | ERROR | module:func:120 - oops", "oops", None),
        ("2023-12-22 16:43:31 | ERROR | stderr |   File x", "  File x", None),
        ("ERROR    | 2024-08-21 22:56:04 | autotrain.trainers.common:wrapper:120 - oops", "oops", None),
        ("06/26/2024 03:12:40 - INFO - llamafactory.cli - oops", "oops", None),
        ("May 4, 2024, 5:02:29 PM\tWARNING\toops", "oops", None),
        ('{"log":"\\toops\\n","stream":"stderr","time":"2024-03-19T10:13:46.771Z"}', "\toops", None),
        ("│ /x/y.py:1 in f      │", "/x/y.py:1 in f", None),
        ("┃  indented ┃ two      ┃", " indented ┃ two", None),
        ("│ open", "│ open", None),
        ("│", "│", None),
        ("││", "", None),
        ("\x1b[1A\x1b[2K\x1b[31moops\x1b[0m", "oops", None),
        ("oops\x00\x00", "oops", None),
        ("RuntimeError: oops", "RuntimeError: oops", None),
        ("    return f(x)", "    return f(x)", None),
        ("{'loss': 1.2, 'epoch': 0.1}", "{'loss': 1.2, 'epoch': 0.1}", None),
    ],
)
def test_a_wrapper_is_taken_off(raw: str, text: str, rank: int | None) -> None:
    line = clean(raw)[-1]
    assert (line.text, line.rank) == (text, rank)


def test_the_process_of_a_ray_line_is_kept() -> None:
    assert clean("(WorkerDict pid=44419) oops")[0].writer == "pid=44419"


def test_a_traceback_glued_to_a_bar_becomes_a_line_of_its_own() -> None:
    lines = clean("  0%|          | 0/77 [00:00<?, ?it/s][rank1]: Traceback (most recent call last):\n")
    assert [line.text.strip() for line in lines] == [
        "0%|          | 0/77 [00:00<?, ?it/s]",
        "Traceback (most recent call last):",
    ]
    assert [line.rank for line in lines] == [None, 1]
    assert {line.number for line in lines} == {1}


def test_of_many_bars_on_one_line_the_last_is_kept() -> None:
    bars = "\r".join(f"{step}%|   | {step}/100 [00:01<00:01, 1.0it/s]" for step in range(100))
    lines = clean(f"{bars}\rRuntimeError: x\nend\n")
    assert [line.text for line in lines] == ["99%|   | 99/100 [00:01<00:01, 1.0it/s]", "RuntimeError: x", "end"]
    assert [line.number for line in lines] == [1, 1, 2]


def test_the_raw_byte_that_torch_2_3_prints_is_the_index_of_the_card() -> None:
    assert "GPU 3 has a total capacity" in clean(b"x GPU \x03 has a total capacity of 1 GiB")[0].text
    assert "GPU 0 has a total capacity" in clean(b"x GPU \x00 has a total capacity of 1 GiB")[0].text
    record = rb'{"log":"GPU \u0002 has a total capacity of 1 GiB\n","stream":"stderr"}'
    assert "GPU 2 has a total capacity" in clean(record)[0].text


def test_labels_of_srun_are_taken_off_only_where_most_lines_have_them() -> None:
    labelled = clean("0: a\n1: b\n0: c\n1: d\n")
    assert [(line.rank, line.text) for line in labelled] == [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    assert clean("1: first step\nthen\nmore\nand more\n")[0].text == "1: first step"


def test_chinese_encodings_are_read() -> None:
    text = "训练开始，显存不足，请减小批大小。\n"
    assert clean(text.encode("gbk"))[0].text == text.strip()


def test_broken_bytes_cost_only_themselves() -> None:
    assert clean(b"ok \xff\xfe still here\n")[0].text.startswith("ok ")


def test_line_numbers_count_from_the_region() -> None:
    lines = clean_lines([Region(1, b"a\nb\n"), Region(900, b"c\nd")])
    assert [(line.number, line.text) for line in lines] == [(1, "a"), (2, "b"), (900, "c"), (901, "d")]


def test_a_traceback_with_written_line_feeds_is_taken_apart() -> None:
    row = r'ErrorMessage "Traceback (most recent call last):\n  File \"/a.py\", line 1, in f\n    g()\nRuntimeError: x"'
    assert [line.text for line in clean(row)][1:3] == ['  File "/a.py", line 1, in f', "    g()"]
