"""Real tensors on a card that is not there: CPU tensors, whose storages take the memory of a card while they live.

A storage takes memory when an operator makes it, or when a script moves a tensor to its device; before the first move
everything is on the host, as it is where a model is loaded without a device map. `tensor.cpu()` gives a copy on the
host, which takes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.clinic.blank import blank
from benchmarks.clinic.card import Memory
from benchmarks.clinic.cuda_ways import PRODUCTS, Ways

_RESIZES = torch.ops.aten.resize_.default


class Storages(TorchDispatchMode):
    """Counts the storages that operators make. arrived: whether the script has come to the card. computes: whether
    operators on it do their arithmetic (`blank`)."""

    def __init__(self, memory: Memory, ways: Ways, arrived: bool = False, computes: bool = True) -> None:
        super().__init__()
        self.memory, self.arrived, self._ways, self._computes = memory, arrived, ways, computes
        self._inside_kernel = False
        self._watches: dict[int, _Watch] = {}
        self._without_workspace = {"forward", "backward"}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.arrived:
            return self._result(func, args, kwargs) if self._inside_kernel else func(*args, **kwargs)
        if func in PRODUCTS:
            self._take_workspace()
        out = self._result(func, args, kwargs)
        if func is _RESIZES:
            self._forget(out)
        if _makes_storages(func) or func is _RESIZES:
            self._take_all(out)
        inside = self._ways.inside.get(func)
        if inside is not None:
            self.memory.give(self.memory.take(inside(*args)))
        return out

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not self._computes:
            out = blank(func, args, kwargs)
            if out is not NotImplemented:
                return out
        return self._ways.stand_ins.get(func, func)(*args, **kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, so torch need not be kept from it at each operator."""
        return False

    def arrive(self, tensor: torch.Tensor) -> None:
        """A tensor is moved to the card."""
        self.arrived = True
        self._take(tensor)

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """What is made inside is on the host."""
        before, self.arrived = self.arrived, False
        try:
            yield
        finally:
            self.arrived = before

    @contextmanager
    def in_kernel(self) -> Iterator[None]:
        """What is made inside is in one kernel's own memory on CUDA."""
        self._inside_kernel = self.arrived
        with self.on_host():
            try:
                yield
            finally:
                self._inside_kernel = False

    def _take_all(self, out: Any) -> None:
        if isinstance(out, torch.Tensor):
            self._take(out)
        elif isinstance(out, (tuple, list)):
            for part in out:
                self._take_all(part)

    def _take(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu":
            return
        storage = tensor.untyped_storage()
        if storage._cdata not in self._watches:
            watch = _Watch(storage, self._gone)
            watch.key, watch.size = storage._cdata, self.memory.take(storage.nbytes())
            self._watches[watch.key] = watch

    def _gone(self, watch: _Watch) -> None:
        if self._watches.get(watch.key) is watch:
            del self._watches[watch.key]
            self.memory.give(watch.size)

    def _forget(self, tensor: torch.Tensor) -> None:
        """A storage that was resized is taken anew."""
        watch = self._watches.get(tensor.untyped_storage()._cdata)
        if watch is not None:
            self._gone(watch)

    def _take_workspace(self) -> None:
        """cuBLAS keeps a workspace for each thread; autograd's is another than the script's."""
        thread = "backward" if torch._C._current_graph_task_id() != -1 else "forward"
        if thread in self._without_workspace:
            self._without_workspace.remove(thread)
            self.memory.take(self._ways.cublas_bytes)


@contextmanager
def moves_seen(storages: Storages) -> Iterator[None]:
    """A script moves tensors to the card and back. Its device has the name of the CPU here.

    The methods are replaced, for a function mode would put its own frames into every traceback.
    """
    to_anywhere = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        out = to_anywhere(tensor, *args, **kwargs)
        if _names_device(args, kwargs):
            storages.arrive(out)
        return out

    def cpu(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        with storages.on_host():
            return tensor.clone()

    torch.Tensor.to, torch.Tensor.cpu = to, cpu  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del torch.Tensor.to, torch.Tensor.cpu


class _Watch(weakref.ref[torch.UntypedStorage]):
    """A weak reference to a storage that knows what it takes."""

    __slots__ = ("key", "size")
    key: int
    size: int


@cache
def _makes_storages(func: Any) -> bool:
    """Whether an operator's results are its own: those of views and of writes in place are its arguments'."""
    return any(result.alias_info is None for result in func._schema.returns)


def _names_device(args: Any, kwargs: Any) -> bool:
    named = [*args[:1], kwargs.get("device")]
    return any(isinstance(value, torch.device) and value.type == "cpu" for value in named)
