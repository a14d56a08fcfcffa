"""Stands for CUDA: gives addresses, and counts what is left of the card."""

from __future__ import annotations

_FIRST = 0x7F00_0000_0000  # where the made-up addresses begin; any would do


class Driver:
    """room: bytes of the card that torch can have, None = without end. used: bytes that it has."""

    def __init__(self, room: int | None = None) -> None:
        self.room, self.used = room, 0
        self._next = _FIRST

    def malloc(self, size: int) -> int | None:
        """cudaMalloc: an address, or None where the card has not so much left."""
        address = self.reserve(size)
        return address if self.map(address, size) else None

    def free(self, address: int, size: int) -> None:
        """cudaFree."""
        self.unmap(address, size)

    def reserve(self, size: int) -> int:
        """cuMemAddressReserve: addresses alone, no memory."""
        address = self._next
        self._next += size
        return address

    def map(self, address: int, size: int) -> bool:
        """cuMemCreate and cuMemMap: memory for reserved addresses. False where the card has not so much left."""
        if self.room is not None and self.used + size > self.room:
            return False
        self.used += size
        return True

    def unmap(self, address: int, size: int) -> None:
        """cuMemUnmap and cuMemRelease."""
        self.used -= size
