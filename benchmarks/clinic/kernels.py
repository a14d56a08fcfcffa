"""What libraries do on a card outside of torch's memory, or in one kernel of their own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from benchmarks.clinic.storages import Storages

_SMALLEST_PAGED = 100_000  # numbers, in bitsandbytes


def stand_in(storages: Storages) -> None:
    """The libraries' kernels for CPU tensors take the memory that those for CUDA take, for the rest of this process."""
    _page_states(storages)
    _fold_tiles(storages)


def _page_states(storages: Storages) -> None:
    """bitsandbytes' paged states lie in memory that the driver moves between host and card."""
    from bitsandbytes.optim.optimizer import Optimizer8bit

    usual = Optimizer8bit.get_state_buffer

    def get_state_buffer(self: Any, p: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        paged = self.is_paged and p.numel() >= _SMALLEST_PAGED
        with storages.on_host() if paged else nullcontext():
            return usual(self, p, dtype)  # type: ignore[no-any-return]

    Optimizer8bit.get_state_buffer = get_state_buffer


def _fold_tiles(storages: Storages) -> None:
    """TRL's output layer works on one tile of logits; on CUDA, Triton and cuBLAS need nothing beside it."""
    try:
        from trl.kernels import chunked_logprob
    except ImportError:  # another version
        return
    for name in ("_forward_tile", "_backward_tile", "_addmm_fp32"):
        setattr(chunked_logprob, name, _uncounted(storages, getattr(chunked_logprob, name)))


def _uncounted(storages: Storages, function: Callable[..., Any]) -> Callable[..., Any]:
    def inside(*args: Any, **kwargs: Any) -> Any:
        with storages.in_kernel():
            return function(*args, **kwargs)

    return inside
