"""A packed log as the stream of its text. What it is packed with is told by its first bytes, whatever its name is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import BinaryIO, Protocol

from oomdoctor.sources.log.refusal import error_of
from oomdoctor.units import MIB

# `xz -9` needs 65 MiB to unpack; a file may ask for 4 GiB.
_XZ_MEMORY = 128 * MIB
_READ = 64 * 1024  # packed bytes at a time
_FOREIGN = (b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"Rar!", b"\x1f\x9d", b"LZIP", b"\x04\x22\x4d\x18")
# Where the errors of damaged archives come from: they have no base of their own, and to load all costs time.
_MODULES = ("zlib", "lzma", "_lzma", "zstd", "_zstd", "zstandard", "compression")


class Stream(Protocol):
    """What a log is read from."""

    def read(self, size: int, /) -> bytes: ...


def unpacked(file: BinaryIO, path: str) -> Stream | None:
    """The text of a packed log; None where it is not packed. Raises UserError for what cannot be unpacked here."""
    peek: Callable[[int], bytes] | None = getattr(file, "peek", None)
    magic = peek(6)[:6] if peek else b""
    if magic.startswith(b"\x1f\x8b"):
        import gzip

        return gzip.GzipFile(fileobj=file)
    if magic.startswith(b"\xfd7zXZ"):
        return _Xz(file)
    if magic.startswith(b"BZh"):
        import bz2

        return bz2.BZ2File(file)
    if magic.startswith(b"\x28\xb5\x2f\xfd") or (magic[1:4] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5):
        return _zstd(file, path)
    if magic.startswith(_FOREIGN):
        raise error_of(path, "packed")
    return None


def read_some(stream: Stream, size: int) -> bytes:
    """Up to SIZE bytes. Raises OSError for a broken archive, whatever its library calls that."""
    try:
        return stream.read(size)
    except (OSError, EOFError, ValueError):
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] in _MODULES:
            raise OSError(str(error)) from None
        raise


class _Xz:
    """An .xz file: `lzma.LZMAFile` takes no limit for the memory that a file asks for."""

    def __init__(self, file: BinaryIO) -> None:
        import lzma

        self.file = file
        self.new = partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY)
        self.decoder = self.new()

    def read(self, size: int, /) -> bytes:
        """Up to SIZE bytes; none at the end. Raises EOFError where the file ends too early."""
        while True:
            if self.decoder.eof:
                rest = self.decoder.unused_data.lstrip(b"\0") or self.file.read(_READ)
                if not rest.lstrip(b"\0"):  # streams may follow each other, padded with zeros
                    return b""
                self.decoder = self.new()
            else:
                rest = self.file.read(_READ) if self.decoder.needs_input else b""
                if not rest and self.decoder.needs_input:
                    raise EOFError
            if text := self.decoder.decompress(rest, size):
                return text


def _zstd(file: BinaryIO, path: str) -> Stream:
    """A .zst file, by Python's own library (3.14) or the package zstandard. Raises UserError where neither is there."""
    from importlib import import_module

    stream: Stream
    try:
        stream = import_module("compression.zstd").ZstdFile(file)
    except ImportError:
        try:
            decoder = import_module("zstandard").ZstdDecompressor()
        except ImportError:
            raise error_of(path, "zstd") from None
        stream = decoder.stream_reader(file, read_across_frames=True)
    return stream
