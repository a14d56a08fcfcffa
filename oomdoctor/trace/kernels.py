"""CUDA's ways on the meta device: which attention kernel runs, what dropout and softmax keep, what kernels take inside.

Each operator is overridden above autograd, so that C++ code which calls it is caught as well. Sources: torch's
sdp_utils.cpp (which kernel), attention.cpp (masks, padding), Dropout.cpp, SoftMax.cpp; flash_api.cpp (mha_bwd) and
attention_backward.cu for workspaces; CublasHandlePool.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from oomdoctor.case import EMPTY
from oomdoctor.units import KIB, MIB

aten = torch.ops.aten

_WIDEST_HEAD = 256
_ALIGNED = 8  # flash pads heads to a multiple of it, the memory-efficient kernel wants masks and heads aligned to it
_AMPERE, _HOPPER = 8.0, 9.0
_GQA_IN_EFFICIENT = (2, 14)  # torch: the memory-efficient kernel takes fewer key heads than query heads
_HALF = (torch.float16, torch.bfloat16)

# In-place updates of the fused optimizers: they have no meta kernels, and allocate nothing.
_FUSED_UPDATES = frozenset(
    getattr(aten, name).default
    for name in ("_fused_adamw_", "_fused_adam_", "_fused_sgd_", "_fused_adagrad_")
    if hasattr(aten, name)
)


def _grouped_product(*args: Any, **kwargs: Any) -> torch.Tensor:
    """Products of groups of rows. The meta kernel takes bfloat16 alone; CUDA's and the CPU's take others as well."""
    product = aten._grouped_mm.default
    left, right, *rest = args
    if left.dtype == torch.bfloat16:
        return product(*args, **kwargs)  # type: ignore[no-any-return]
    halves = (torch.empty_like(part, dtype=torch.bfloat16) for part in (left, right))
    shape = product(*halves, *rest, **kwargs)
    return torch.empty_strided(shape.shape, shape.stride(), dtype=left.dtype, device=left.device)


class Ways(NamedTuple):
    """What a device does beside what its operators show. workspaces: by operator, bytes by its arguments;
    without_effect, stand_ins: meta kernels that are missing or too strict; cublas_bytes: of one cuBLAS workspace."""

    workspaces: Mapping[Any, Callable[[tuple[Any, ...]], int]] = EMPTY
    without_effect: frozenset[Any] = _FUSED_UPDATES
    stand_ins: Mapping[Any, Callable[..., Any]] = {aten._grouped_mm.default: _grouped_product}
    cublas_bytes: int = 0


NO_WAYS = Ways()


class Card(NamedTuple):
    """What decides which kernel runs. capability: compute capability; torch: major and minor version of the run's."""

    capability: float = _AMPERE
    torch: tuple[int, int] = (2, 13)


def install(card: Card) -> torch.library.Library:
    """Put the overrides in force for this process, until the library that is given back is dropped."""
    library = torch.library.Library("aten", "IMPL")

    def attention(*args: Any, **kwargs: Any) -> torch.Tensor:
        return _attend(card, Attention(*args, **kwargs))

    library.impl("scaled_dot_product_attention", attention, "AutogradMeta")
    library.impl("dropout", _dropout, "AutogradMeta")
    library.impl("softmax.int", _softmax, "AutogradMeta")
    library.impl("log_softmax.int", _log_softmax, "AutogradMeta")
    _take_many_tensors_at_once()
    return library


def _take_many_tensors_at_once() -> None:
    """torch's optimizers and gradient clipping choose their foreach and fused kernels on the meta device as on CUDA."""
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    for module in (_foreach_utils, optimizer):
        for name in ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices"):
            if hasattr(module, name):
                setattr(module, name, lambda: ["cuda", "meta"])


def ways_of(card: Card) -> Ways:
    """The ways of a CUDA card. A cuBLAS workspace is 8 of 4 MiB on Hopper, else 2 of 4 MiB and 8 of 16 KiB."""
    cublas = 8 * 4 * MIB if card.capability >= _HOPPER else 2 * 4 * MIB + 8 * 16 * KIB
    return Ways(_WORKSPACES, cublas_bytes=cublas)


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    """One kernel with a mask of one byte each; CPU and meta multiply by a mask in the dtype of x."""
    if p == 0 or not train or x.numel() == 0:
        return x
    return aten.native_dropout(x, p, train)[0]  # type: ignore[no-any-return]


def _softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Half to float within the kernel; bfloat16 is converted first, as on the CPU."""
    if x.dtype == torch.float16 and dtype == torch.float32:
        return aten._softmax(x, dim, True)  # type: ignore[no-any-return]
    return aten._softmax(x if dtype is None else x.to(dtype), dim, False)  # type: ignore[no-any-return]


def _log_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    if x.dtype == torch.float16 and dtype == torch.float32:
        return aten._log_softmax(x, dim, True)  # type: ignore[no-any-return]
    return aten._log_softmax(x if dtype is None else x.to(dtype), dim, False)  # type: ignore[no-any-return]


class Attention(NamedTuple):
    """The arguments of `scaled_dot_product_attention`; tensors are (batch, heads, tokens, head_dim)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @property
    def parts(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.query, self.key, self.value

    @property
    def width(self) -> int:
        """head_dim, of the queries."""
        return self.query.shape[-1]

    @property
    def same_heads(self) -> bool:
        """As many heads, and samples, of keys and values as of queries."""
        return all(part.shape[:-2] == self.query.shape[:-2] for part in self.parts)

    def with_additive_mask(self) -> Attention:
        """A mask of truth values becomes one that is added, anew in each call."""
        if self.attn_mask is None or self.attn_mask.dtype != torch.bool:
            return self
        hidden = torch.full((), float("-inf"), dtype=self.query.dtype, device=self.query.device)
        return self._replace(attn_mask=torch.where(self.attn_mask, 0.0, hidden))


def _attend(card: Card, asked: Attention) -> torch.Tensor:
    asked = asked.with_additive_mask()
    if _takes_flash(card, asked):
        return flash(asked)
    return _efficient(asked) if _takes_efficient(card, asked) else math(asked)


def flash(asked: Attention) -> torch.Tensor:
    """The flash kernel; heads are padded to a multiple of 8."""
    over = -asked.width % _ALIGNED
    scale = asked.scale or (asked.width**-0.5 if over else None)
    parts = tuple(torch.nn.functional.pad(part, (0, over)) for part in asked.parts) if over else asked.parts
    found = aten._scaled_dot_product_flash_attention(*parts, asked.dropout_p, asked.is_causal, False, scale=scale)
    return found[0][..., : asked.width] if over else found[0]  # type: ignore[no-any-return]


def _efficient(asked: Attention) -> torch.Tensor:
    keep = torch.is_grad_enabled() and any(part.requires_grad for part in asked.parts)
    mask = None if asked.attn_mask is None else _aligned(asked.attn_mask, asked)
    return aten._scaled_dot_product_efficient_attention(  # type: ignore[no-any-return]
        *asked.parts, mask, keep, asked.dropout_p, asked.is_causal, scale=asked.scale
    )[0]


def math(asked: Attention) -> torch.Tensor:
    """Plain operators, with a table of all scores."""
    return aten._scaled_dot_product_attention_math(  # type: ignore[no-any-return]
        *asked.parts,
        asked.attn_mask,
        asked.dropout_p,
        asked.is_causal,
        scale=asked.scale,
        enable_gqa=asked.enable_gqa,
    )[0]


def _takes_flash(card: Card, asked: Attention) -> bool:
    query, key, value = asked.parts
    return (
        asked.attn_mask is None
        and query.dim() == 4
        and query.dtype in _HALF
        and card.capability >= _AMPERE
        and (asked.same_heads or asked.enable_gqa)
        and asked.width == key.shape[-1] == value.shape[-1] <= _WIDEST_HEAD
        and not (asked.is_causal and query.shape[2] != key.shape[2])
        and not _too_wide_for_consumer_cards(card, asked)
    )


def _too_wide_for_consumer_cards(card: Card, asked: Attention) -> bool:
    """On 8.6 and 8.9 the backward pass of wide heads has not enough shared memory."""
    consumer = 8.6 <= card.capability <= 8.9
    wide = 192 < asked.width <= 224 or (asked.width > 224 and asked.dropout_p > 0)
    return consumer and asked.query.requires_grad and wide


def _takes_efficient(card: Card, asked: Attention) -> bool:
    query, _, value = asked.parts
    bf16_unknown = query.dtype == torch.bfloat16 and card.capability < _AMPERE
    aligned = _ALIGNED if query.dtype in _HALF else 4 if card.capability >= _AMPERE else 1
    return (
        query.dim() == 4
        and query.dtype in (*_HALF, torch.float32)
        and not bf16_unknown
        and (asked.same_heads or (asked.enable_gqa and card.torch >= _GQA_IN_EFFICIENT))
        and all(part.shape[-1] % aligned == 0 for part in (query, value))
    )


def _aligned(mask: torch.Tensor, asked: Attention) -> torch.Tensor:
    over = -mask.shape[-1] % _ALIGNED
    if over:
        mask = torch.nn.functional.pad(mask, (0, over))[..., : mask.shape[-1]]
    query, key, _ = asked.parts
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _flash_backward_workspace(args: tuple[Any, ...]) -> int:
    """dq in fp32 and a number per row, the sequence rounded up to 128; dk and dv of all query heads where grouped."""
    query, key = args[1], args[2]
    batch, heads, length, width = query.shape
    rows = batch * heads * (-(-length // 128) * 128)
    grouped = 2 * query.element_size() * batch * heads * key.shape[2] * width if key.shape[1] != heads else 0
    return int(rows * 4 * (-(-width // 32) * 32) + rows * 4 + grouped)


def _efficient_backward_workspace(args: tuple[Any, ...]) -> int:
    """dq in fp32 (16-bit), or the product of output and its gradient (fp32)."""
    query = args[1]
    return 4 * int(query.numel())


_WORKSPACES: Mapping[Any, Callable[[tuple[Any, ...]], int]] = {
    aten._scaled_dot_product_flash_attention_backward.default: _flash_backward_workspace,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward_workspace,
}
