"""What CPU tensors must do as CUDA does: kernels that the CPU has not, memory that kernels take, autocast's lists.

Which attention kernel CUDA takes, and which operators autocast casts, is `oomdoctor.trace`'s knowledge of torch; what
is counted is not. Source of the workspaces: CublasHandlePool.cpp.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from benchmarks.clinic import attention
from benchmarks.clinic.autocast import Autocast
from benchmarks.clinic.card import KIB, MIB
from oomdoctor.trace import kernels

aten = torch.ops.aten

PRODUCTS = frozenset((*(getattr(aten, name).default for name in ("mm", "addmm", "bmm", "baddbmm")), aten.mm.out))
_HOPPER = 9.0


class Ways(NamedTuple):
    """stand_ins: what to run in the place of an operator; inside: bytes that a kernel takes and gives back;
    cublas_bytes: of one cuBLAS workspace."""

    stand_ins: Mapping[Any, Callable[..., Any]]
    inside: Mapping[Any, Callable[..., int]]
    cublas_bytes: int


def ways_of(capability: float, computes: bool = True) -> Ways:
    """The ways of a card of this compute capability. computes: whether attention does its arithmetic."""
    cublas = 8 * 4 * MIB if capability >= _HOPPER else 2 * 4 * MIB + 8 * 16 * KIB
    products = {product: _quick(product.overloadpacket) for product in PRODUCTS}
    attends = attention.STAND_INS if computes else attention.BLANKS
    return Ways({**products, **_unpacking(), **attends}, attention.INSIDE, cublas)


def _unpacking() -> dict[Any, Callable[..., Any]]:
    """bitsandbytes' product with 4-bit weights."""
    import bitsandbytes  # noqa: F401  # it registers its operators

    product = torch.ops.bitsandbytes.gemm_4bit
    return {product.default: _quick(product.default)}


@contextmanager
def as_on_cuda(capability: float) -> Iterator[None]:
    """CPU tensors go CUDA's ways in this process while this is in force."""
    major, minor = torch.__version__.split(".")[:2]
    card = kernels.Card(capability, (int(major), int(minor)))
    warnings.filterwarnings("ignore", "Warning only once for all operators")
    library = torch.library.Library("aten", "IMPL")
    library.impl("scaled_dot_product_attention", _attention_of(card), "AutogradCPU")
    library.impl("dropout", kernels._dropout, "AutogradCPU")
    casts = Autocast(library)
    _take_many_tensors_at_once()
    _have_bf16(capability)
    leave, torch.autocast.__exit__ = torch.autocast.__exit__, casts.leaving(torch.autocast.__exit__)  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.autocast.__exit__ = leave  # type: ignore[method-assign]
        library._destroy()


def _attention_of(card: kernels.Card) -> Callable[..., torch.Tensor]:
    return lambda *args, **kwargs: kernels._attend(card, kernels.Attention(*args, **kwargs))


def _take_many_tensors_at_once() -> None:
    """torch's optimizers and gradient clipping choose their foreach and fused kernels as on CUDA."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for module in (_foreach_utils, optimizer):
        for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
            if hasattr(module, name):
                setattr(module, name, lambda: ["cpu", "cuda"])


def _have_bf16(capability: float) -> None:
    """TrainingArguments asks whether the GPU has bfloat16."""
    from transformers import training_args

    training_args.is_torch_bf16_gpu_available = lambda: capability >= 8.0


def _quick(product: Any) -> Callable[..., torch.Tensor]:
    """A product of 16-bit numbers, computed in 32 bits."""

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        out, dtype = kwargs.pop("out", None), args[0].dtype
        found: torch.Tensor = product(*map(attention.in_fp32, args), **kwargs)
        return found.to(dtype) if out is None else out.copy_(found)

    return run
