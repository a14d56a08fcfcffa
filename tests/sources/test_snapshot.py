"""Reading allocator snapshots: real ones as pickle and JSON, and files that are something else or mean harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomdoctor.allocations import Frame
from oomdoctor.case import UserError
from oomdoctor.sources import plainpickle
from oomdoctor.sources.snapshot import parsed, read_snapshot
from oomdoctor.texts import render

ROOT = Path(__file__).parent.parent.parent
REAL = ROOT / "tests" / "data" / "allocator" / "snapshots" / "lm-forward-fp32-128.json.gz"


def content() -> Any:
    with gzip.open(REAL) as file:
        return json.load(file)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_of_any_binary_protocol_is_read_like_the_json(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "memory.pickle"
    path.write_bytes(pickle.dumps(content(), protocol))
    found = read_snapshot(str(path))
    assert found == read_snapshot(str(REAL))
    assert sum(segment.size for segment in found.devices[0].segments) == 582 * 2**20
    assert len(found.devices[0].entries) == 2043


def test_plain_and_gzipped_files_are_read_alike(tmp_path: Path) -> None:
    plain, packed = tmp_path / "memory.json", tmp_path / "memory.pickle.gz"
    plain.write_text(json.dumps(content()))
    packed.write_bytes(gzip.compress(pickle.dumps(content())))
    assert read_snapshot(str(plain)) == read_snapshot(str(packed)) == read_snapshot(str(REAL))


def test_stacks_are_typed_innermost_first() -> None:
    entry = read_snapshot(str(REAL)).devices[0].entries[0]
    assert entry.frames[0] == Frame("user/embedding.py", 14, "forward")
    assert entry.frames[-1].function == "<module>"


def test_old_snapshots_without_block_addresses_and_with_a_history_in_each_block_are_read() -> None:
    """torch 2.0: the address follows from the blocks before, the stack stands under `history`."""
    frames = [{"filename": "a.py", "line": 3, "name": "f"}]
    blocks = [
        {"size": 512, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 500, "frames": frames}]},
        {"size": 2096640, "state": "inactive"},
    ]
    old = [{"address": 4096, "total_size": 2097152, "stream": 0, "segment_type": "small", "blocks": blocks}]
    (segment,) = parsed(old).devices[0].segments
    assert [block.address for block in segment.blocks] == [4096, 4608]
    assert segment.blocks[0].frames == (Frame("a.py", 3, "f"),)


class Harmful:
    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch harm",)


def _global(name: bytes) -> bytes:
    return b"\x80\x04c" + name + b"\n(X\x00\x00\x00\x00tR."


HARMFUL = [
    pickle.dumps({"segments": [Harmful()]}),
    pickle.dumps({"segments": [Harmful()]}, 2),
    pickle.dumps({"segments": {1, 2}}),  # a set: no snapshot has one
    pickle.dumps({"segments": bytearray(9)}, 5),
    pickle.dumps(Path("x")),
    _global(b"os\nsystem"),
    b"\x80\x04P1\n.",  # a persistent id
    b"\x80\x04]r\xff\xff\xff\xff.",  # the memo would have to be 32 GiB long
    b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x0f",  # a bytearray of 2**60 bytes
    b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",  # a string longer than the file
    b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",  # a frame longer than the file
    b"\x80\x04" + b"]" * 200_000,  # cut off
    b"\x80\x04]Na.a",
    b"\x80\x04tttt.",
    b"\x80\x04h\x05.",
    b"\x80\x04K\x01K\x02s.",
    b"\x80\x04.",
    b"\x80\x04",
    b"\x80",
]


@pytest.mark.parametrize("data", HARMFUL, ids=range(len(HARMFUL)))
def test_a_pickle_that_is_no_snapshot_is_refused_and_nothing_of_it_is_run(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "memory.pickle"
    path.write_bytes(data)
    with pytest.raises(UserError) as refused:
        read_snapshot(str(path))
    assert refused.value.exit_code == 2
    for lang in ("en", "zh"):
        assert render(refused.value.message, lang)
    assert not (tmp_path / "harm").exists()


def test_a_harmful_pickle_would_have_done_harm_with_pickle_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(HARMFUL[0])
    assert (tmp_path / "harm").exists()


def test_the_reader_itself_knows_no_classes() -> None:
    """In case an instruction came through the check."""
    with pytest.raises(plainpickle.NotPlain):
        plainpickle._Reader(io.BytesIO(HARMFUL[0])).load()


def test_hostile_pickles_take_no_memory() -> None:
    """In a process that may have 1 GiB."""
    code = """
import ast, resource, sys
from oomdoctor.sources import plainpickle
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
for data in ast.literal_eval(sys.stdin.read()):
    try:
        plainpickle.load(data)
    except plainpickle.NotPlain:
        pass
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, input=repr(HARMFUL), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def _changed(**changes: Any) -> bytes:
    return json.dumps({**content(), **changes}).encode()


def _block(**changes: Any) -> bytes:
    whole = content()
    whole["segments"][3]["blocks"][0].update(changes)
    return json.dumps(whole).encode()


BAD: dict[str, bytes] = {
    "empty": b"",
    "text": b"CUDA out of memory",
    "cut off": _changed()[:-20],
    "a number": b"17",
    "nested": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "no segments": b'{"device_traces": []}',
    "segments are no list": _changed(segments=5),
    "a segment is no object": _changed(segments=[5]),
    "traces are no list": _changed(device_traces="x"),
    "a trace is no list": _changed(device_traces=[5]),
    "an entry is no object": _changed(device_traces=[[5]]),
    "an action is no text": _changed(device_traces=[[{"action": 5}]]),
    "a size is text": _block(size="512"),
    "a size is true": _block(size=True),
    "a size is negative": _block(size=-512),
    "a size is too large": _block(size=2**64),
    "a size is a fraction": _block(size=0.5),
    "blocks do not fill the segment": _block(size=512),
    "an empty block": _block(size=0),
    "frames are no list": _block(frames=7),
    "a frame is no object": _block(frames=[7]),
    "a path is no text": _block(frames=[{"filename": 5, "line": 5, "name": "f"}]),
    "segments overlap": _changed(segments=content()["segments"][:1] * 2),
    "broken gzip": gzip.compress(b"{}" * 1000)[:-9],
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_no_snapshot_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    path.write_bytes(BAD[name])
    with pytest.raises(UserError) as refused:
        read_snapshot(str(path))
    assert refused.value.exit_code == 2
    assert "\n" not in render(refused.value.message, "en")


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError):
            read_snapshot(str(path))


def test_a_list_that_is_pointed_at_a_million_times_is_not_walked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of a pickle can point at one list of blocks again and again."""
    monkeypatch.setattr("oomdoctor.sources.snapshot._MOST_PARTS", 100_000)
    frame = {"filename": "a.py", "line": 1, "name": "f"}
    block = {"size": 1, "state": "inactive", "frames": [frame]}
    segments = [{"address": 10_000 * n, "total_size": 10_000, "blocks": [block] * 10_000} for n in range(20)]
    assert len(parsed({"segments": segments[:5]}).devices[0].segments) == 5
    with pytest.raises(UserError):
        parsed({"segments": segments})
