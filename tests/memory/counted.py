"""Counts the bytes of all tensors that are alive while real code runs, on the CPU or on the meta device."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

torch.set_num_threads(1)  # the tensors are tiny: handing them to other threads takes longer than the work


class Counted(TorchDispatchMode):
    """Bytes of the storages that are alive, and the most there were since `phase()` was last called.

    resting: tensors that were there before (weights, states); they are counted and then taken off again.
    """

    def __init__(self, resting: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: dict[int, int] = {}
        for tensor in resting:
            self._hold(tensor)
        self.resting = self.now

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._known:
            self._known[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self.now -= self._known.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].device.type == "meta":
            return True  # "are all tokens real and of one sequence?"
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._hold(leaf)
        return out

    def phase(self) -> int:
        """The most bytes beside the resting ones since the last call."""
        most, self.most = self.most, self.now
        return most - self.resting
