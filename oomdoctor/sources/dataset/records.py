"""The records of a data file, one after the other: lines of JSON, a list in JSON, Parquet, lines of text."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from oomdoctor.case import Text, UserError
from oomdoctor.sources.log.reader import opened
from oomdoctor.sources.log.refusal import error_of
from oomdoctor.sources.log.unpack import Stream, read_some, unpacked
from oomdoctor.units import MIB

# Called with the share that is read (None where nobody knows) and the bytes so far.
Watch = Callable[[float | None, int], None]
Records = Iterator[tuple[Text, Any]]

_CHUNK = 1 << 20
_LARGEST = 64 * MIB  # of one record; more is no sample that anybody trains on
_PARQUET = b"PAR1"


def unseen(share: float | None, read: int) -> None:
    """The watch of someone who does not look."""


def records(path: str, watch: Watch = unseen) -> Records:
    """Each record with its place. Raises UserError for what cannot be read."""
    if os.path.isdir(path):
        raise UserError(path, Text("texts/lengths.folder"), Text("texts/lengths.folder_hint"))
    with opened(path) as file:
        yield from _of_file(file, path, watch)


def _of_file(file: BinaryIO, path: str, watch: Watch) -> Records:
    peek: Callable[[int], bytes] | None = getattr(file, "peek", None)
    if peek and peek(4)[:4] == _PARQUET:
        yield from _parquet(path, watch)
        return
    stream = unpacked(file, path)
    chunks = _chunks(stream or file, file, path, watch)
    first = next(chunks, "").lstrip()
    whole = _joined(first, chunks)
    if first.startswith("["):
        yield from _listed(whole, path)
    elif first.startswith("{"):
        yield from _lines_of_json(whole, path)
    else:
        for number, line in enumerate(_lines(whole, path), 1):
            yield Text("texts/lengths.line", {"number": number}), line.strip()


def _joined(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _chunks(stream: Stream, file: BinaryIO, path: str, watch: Watch) -> Iterator[str]:
    """The text in pieces, UTF-8 with or without a mark; what is no text stands as a replacement."""
    import codecs

    size = 0 if path == "-" else os.fstat(file.fileno()).st_size
    decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
    read = 0
    while piece := read_some(stream, _CHUNK):
        read += len(piece)
        watch(min(1.0, file.tell() / size) if size else None, read)
        yield decode(piece)
    yield decode(b"", True)


def _lines(chunks: Iterator[str], path: str) -> Iterator[str]:
    rest = io.StringIO()
    for chunk in chunks:
        *whole, last = chunk.split("\n")
        if whole:
            rest.write(whole[0])
            yield rest.getvalue()
            yield from whole[1:]
            rest = io.StringIO()
        rest.write(last)
        if rest.tell() > _LARGEST:
            raise _too_large(path)
    if rest.tell():
        yield rest.getvalue()


def _lines_of_json(chunks: Iterator[str], path: str) -> Records:
    """Empty lines are passed over, and so are broken ones: they count as records without text."""
    for number, line in enumerate(_lines(chunks, path), 1):
        if line.strip():
            yield Text("texts/lengths.line", {"number": number}), _json(line)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _listed(chunks: Iterator[str], path: str) -> Records:
    """The records of one list in JSON, taken off its front as soon as each is whole."""
    decode, waiting, number = json.JSONDecoder().raw_decode, "", 0
    for chunk in chunks:
        waiting += chunk if waiting or number else chunk[1:]
        at = 0
        while at < len(waiting):
            at = _past_comma(waiting, at)
            if waiting[at : at + 1] == "]":
                return
            try:
                record, at = decode(waiting, at)
            except (ValueError, RecursionError):
                break  # not whole yet, or broken
            number += 1
            yield Text("texts/lengths.record", {"number": number}), record
        waiting = waiting[at:]
        if len(waiting) > _LARGEST:
            raise _too_large(path)
    raise UserError(path, Text("texts/lengths.broken_list", {"number": number + 1}), Text("texts/lengths.broken_hint"))


def _past_comma(text: str, at: int) -> int:
    while at < len(text) and (text[at].isspace() or text[at] == ","):
        at += 1
    return at


def _too_large(path: str) -> UserError:
    return UserError(path, Text("texts/lengths.too_large", {"most": _LARGEST}), Text("texts/lengths.broken_hint"))


def _parquet(path: str, watch: Watch) -> Records:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise UserError(path, Text("texts/lengths.no_pyarrow"), Text("texts/lengths.no_pyarrow_hint")) from None
    number = 0
    try:
        file = parquet.ParquetFile(path)
        for batch in file.iter_batches(batch_size=256):
            for record in batch.to_pylist():
                number += 1
                yield Text("texts/lengths.record", {"number": number}), record
            watch(number / max(1, file.metadata.num_rows), 0)
    except (ArrowException, OSError) as error:
        why = str(error).partition("\n")[0][:200]
        raise error_of(path, "unreadable", why=why) from None
