"""Counts live storages: a dispatch mode under which every tensor's memory is written on a tape.

A storage is alive from the first tensor on it that an operator gives back until torch drops it; what autograd saves
counts while it is saved. What a kernel takes inside itself no dispatch mode can see: `workspaces` says it.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from oomdoctor.trace.kernels import NO_WAYS, Ways
from oomdoctor.trace.tape import OUTSIDE, Storage, Tape

_ANY_BLOCK = 1  # but for the first and the last
_ASKS_A_VALUE = torch.ops.aten._local_scalar_dense.default
_PRODUCTS = frozenset(getattr(torch.ops.aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm"))
_CHOOSES = frozenset({torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default})
_RESIZES = frozenset({torch.ops.aten.resize_.default, torch.ops.aten.set_.source_Tensor})


_purposes = [""]  # of what is allocated now, innermost last; empty where nothing is known


@contextmanager
def purpose(kind: str) -> Iterator[None]:
    """All that is allocated inside counts to this line of the bill."""
    _purposes.append(kind)
    try:
        yield
    finally:
        _purposes.pop()


def lifted(args: Any) -> Any:
    """The arguments of an operator with all tensors on the meta device, where one of them is there."""
    leaves, shape = tree_flatten(args)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if len({tensor.device.type for tensor in tensors}) < 2:
        return args
    moved = [leaf.to("meta") if isinstance(leaf, torch.Tensor) and leaf.dim() else leaf for leaf in leaves]
    return tree_unflatten(moved, shape)


def _places(indices: list[torch.Tensor | None], count: int) -> list[torch.Tensor | None]:
    """Masks of truth values as so many places, which is what they become on a device with values."""
    found: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype == torch.bool and index.is_meta:
            places = torch.empty(count, dtype=torch.long, device=index.device)
            found += [places] * index.dim()
        else:
            found.append(index)
    return found


class _Watch(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that knows its number on the tape."""

    __slots__ = ("key", "number")
    key: int
    number: int


class Meter(TorchDispatchMode):
    """Writes the storages of one kind of device on its tape while it is the mode in force.

    device: `meta`, or `cpu` to count real tensors. padded: how to answer the question whether all tokens are real,
    which model code asks of tensors that have no values here. words: the size of the vocabulary, by which logits are
    known.
    """

    def __init__(self, device: str = "meta", ways: Ways = NO_WAYS, padded: bool = False) -> None:
        super().__init__()
        self.tape = Tape()
        self.device, self.words = device, 0
        self.chosen = 0  # how many tokens a mask of truth values chooses: those of images
        self.lifts = False  # sizes with values lie on the CPU; what they meet on the device counts as there
        self.unit = OUTSIDE
        self.phase, self.step, self.in_backward = "model_load", 0, False
        self.modules: list[str] = []  # the names of those at work, innermost last
        self._ways, self._padded = ways, padded
        self._no_cublas_yet = {"forward": ways.cublas_bytes, "backward": ways.cublas_bytes}
        self._watches: dict[int, _Watch] = {}
        self._stopped = False
        self._region = 0  # the first storage of the forward code that is running
        self.tape.mark(self.phase, self.step)

    # What happens -----------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        run = func
        if self.device == "meta":
            if func is _ASKS_A_VALUE:
                return self._answer(args[0])
            if func in self._ways.without_effect:
                return None
            run = self._ways.stand_ins.get(func, func)
            if self.lifts:
                args, kwargs = lifted(args), lifted(kwargs or {})
            if func in _CHOOSES and self.chosen:
                args = (args[0], _places(args[1], self.chosen), *args[2:])
        if func in _PRODUCTS:
            self._take_workspace()
        if self.phase == "optimizer_step":
            self._go_to(args)
        out = run(*args, **(kwargs or {}))
        self._look_at(func, args, out)
        if func in self._ways.workspaces:
            self.pass_through(self._ways.workspaces[func](args), func.name())
        return out

    def _take_workspace(self) -> None:
        thread = "backward" if self.phase == "backward" else "forward"
        size, self._no_cublas_yet[thread] = self._no_cublas_yet[thread], 0
        if size:
            self.tape.allocate(Storage(size, "workspaces", op="cublas"))

    def _answer(self, tensor: torch.Tensor) -> bool | int | float:
        """A value for a tensor without one. The only question that memory depends on: are there no padded tokens?"""
        if tensor.dtype == torch.bool:
            return not self._padded
        return 1.0 if tensor.dtype.is_floating_point else 1

    def _look_at(self, func: Any, args: Any, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            self._see(out, func, args)
            if func in _RESIZES:
                self._resized(out)
        elif isinstance(out, (tuple, list)):
            for place, item in enumerate(out):
                if isinstance(item, torch.Tensor):
                    self._see(item, func, args, place)

    def _see(self, tensor: torch.Tensor, func: Any = None, args: Any = (), place: int | None = None) -> None:
        if tensor.device.type != self.device:
            return
        storage = tensor.untyped_storage()
        if storage._cdata in self._watches:
            return
        new = Storage(
            bytes=storage.nbytes(),
            kind=_purposes[-1] or self._kind_by_shape(tensor),
            module=self.modules[-1] if self.modules else "",
            op=self._maker(func),
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            unit=self._unit_of_new(args, place),
            grows=self._growth(storage.nbytes(), args, place),
        )
        self._watch(storage, self.tape.allocate(new, self.unit))

    def _watch(self, storage: torch.UntypedStorage, number: int) -> None:
        watch = _Watch(storage, self._gone)
        watch.key, watch.number = storage._cdata, number
        self._watches[watch.key] = watch

    def _gone(self, watch: _Watch) -> None:
        self._watches.pop(watch.key, None)
        if not self._stopped:
            self.tape.free(watch.number, self.unit)

    def stop(self) -> None:
        """Write nothing down any more: what is dropped from now on was alive to the end."""
        self._stopped = True

    def _resized(self, tensor: torch.Tensor) -> None:
        """A storage that has grown or shrunk is freed and allocated anew."""
        storage = tensor.untyped_storage()
        watch = self._watches.get(storage._cdata)
        old = self.tape.storages[watch.number] if watch is not None else None
        if old is None or old.bytes == storage.nbytes():
            return
        del self._watches[storage._cdata]
        assert watch is not None
        self.tape.free(watch.number, self.unit)
        self._see(tensor)

    def _kind_by_shape(self, tensor: torch.Tensor) -> str:
        wide = self.words and tensor.dim() > 1 and tensor.shape[-1] == self.words
        return "logits" if wide and tensor.dtype.is_floating_point and self.phase != "optimizer_step" else ""

    def _maker(self, func: Any) -> str:
        if self.phase == "backward" and not self.modules:
            node = torch._C._current_autograd_node()
            if node is not None:
                return str(node.name())
        return func.name().partition(".")[0].removeprefix("aten::") if func is not None else ""

    def _go_to(self, args: Any) -> None:
        """The optimizer turns to the parameter of its first argument, or with a list to many at once."""
        unit = OUTSIDE if _are_many(args) else self._unit_of(args[0] if args else None)
        self.unit = self.unit if unit is None else unit

    def _unit_of(self, tensor: Any) -> int | None:
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != self.device:
            return None
        watch = self._watches.get(tensor.untyped_storage()._cdata)
        return None if watch is None else self.tape.storages[watch.number].unit

    def _unit_of_new(self, args: Any, place: int | None) -> int:
        """The block at work. Where the optimizer takes many parameters at once, that of the one in this place."""
        each = self.phase == "optimizer_step" and place is not None and _are_many(args) and place < len(args[0])
        found = self._unit_of(args[0][place]) if each else None
        return self.unit if found is None else found

    def _growth(self, size: int, args: Any, place: int | None) -> int:
        """What one more block adds to a result of many parameters, such as the list of all gradients' norms."""
        if self.phase != "optimizer_step" or place is not None or not _are_many(args):
            return 0
        return size * sum(self._unit_of(part) == _ANY_BLOCK for part in args[0]) // len(args[0])

    # What is known of it ----------------------------------------------------------------------------------------

    def hold(self, tensor: torch.Tensor, kind: str, module: str = "", unit: int = OUTSIDE) -> None:
        """Write down a tensor that was there before the mode was in force."""
        self._see(tensor)
        self.label(tensor, kind, module, unit)

    def label(self, tensor: torch.Tensor | None, kind: str, module: str = "", unit: int | None = None) -> None:
        """Say which line of the bill a tensor's memory counts to, whatever it was taken for before."""
        if tensor is None or tensor.device.type != self.device:
            return
        watch = self._watches.get(tensor.untyped_storage()._cdata)
        if watch is not None:
            storage = self.tape.storages[watch.number]
            storage.kind, storage.module = kind, pattern(module) if module else storage.module
            storage.unit = storage.unit if unit is None else unit

    def unlabelled(self, first: int) -> Iterator[Storage]:
        """Storages since the given one that are alive and of no known kind."""
        for watch in self._watches.values():
            if watch.number >= first and not self.tape.storages[watch.number].kind:
                yield self.tape.storages[watch.number]

    def pass_through(self, size: int, op: str, kind: str = "temporaries") -> None:
        """Memory that a kernel takes for itself and gives back."""
        if size:
            self.tape.free(self.stay(size, op, kind), self.unit)

    def stay(self, size: int, op: str, kind: str, unit: int | None = None) -> int:
        """Memory that a library takes and keeps. Gives its number on the tape."""
        module, unit = self.modules[-1] if self.modules else "", self.unit if unit is None else unit
        return self.tape.allocate(Storage(size, kind, module, op, unit=unit), self.unit)

    def outside(self) -> None:
        """No block is at work any more, and backward is done."""
        self.unit, self.in_backward = OUTSIDE, False

    # Where the run is -------------------------------------------------------------------------------------------

    def enter(self, phase: str, step: int | None = None) -> None:
        """The run enters a phase. The forward pass ends where backward begins: what is still alive was kept for it."""
        if phase == "backward":
            self.end_region()
        self.phase, self.step, self.in_backward = phase, self.step if step is None else step, phase == "backward"
        self.unit = OUTSIDE
        self.tape.mark(self.phase, self.step)
        if phase == "forward":
            self.begin_region()

    def begin_region(self) -> None:
        """Forward code begins: the forward pass, or a block that is run again in backward."""
        self._region = len(self.tape.storages)

    def end_region(self) -> None:
        """It ends. What it made and is still alive are activations; the rest were temporaries."""
        for storage in self.unlabelled(self._region):
            storage.kind = "activations"


def _are_many(args: Any) -> bool:
    """Whether an operator takes a list of tensors first, as the foreach ones do."""
    return bool(args and isinstance(args[0], (list, tuple)) and args[0] and isinstance(args[0][0], torch.Tensor))


def pattern(name: str) -> str:
    """A module's name with a star for each number, so that the same module of all blocks has one name."""
    return re.sub(r"(?<![A-Za-z0-9_])[0-9]+(?![A-Za-z0-9_])", "*", name)
