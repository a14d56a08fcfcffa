"""CUDA's attention operators on CPU tensors: autograd keeps what it keeps there, the CPU's kernel computes.

Dropout changes no size and is left out. Sources: aten/src/ATen/native/transformers/cuda: attention.cu, flash_api.cpp
(mha_bwd), attention_backward.cu.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from oomdoctor.trace.kernels import Attention

aten = torch.ops.aten

Forward = Callable[[Attention], tuple[torch.Tensor, torch.Tensor]]
Backward = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Attention], tuple[torch.Tensor, ...]]

_HALF = (torch.float16, torch.bfloat16)
_WARP = 32  # the memory-efficient kernel's sums are rounded up to it


def in_fp32(value: Any) -> Any:
    """A tensor of 16 bits in 32: some CPUs have no instructions for products of the others."""
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in _HALF else value


def _flash(forward: Forward, *args: Any, scale: float | None = None) -> Any:
    query, key, value, _, causal, _ = _filled(args, 6, 0.0, False, False)
    out, sums = forward(Attention(query, key, value, None, 0.0, causal, scale))
    seed, place = torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
    return out, sums, None, None, query.shape[2], key.shape[2], seed, place, query.new_empty(0)


def _flash_backward(backward: Backward, *args: Any, scale: float | None = None) -> Any:
    gradient, query, key, value, out, sums, *rest = args
    causal = rest[5]
    return backward(gradient, out, sums, Attention(query, key, value, None, 0.0, causal, scale))


def _efficient(forward: Forward, *args: Any, scale: float | None = None) -> Any:
    query, key, value, mask, keep, _, causal = _filled(args, 7, 0.0, False)
    out, sums = forward(Attention(query, key, value, mask, 0.0, causal, scale))
    more = -sums.shape[-1] % _WARP if keep else -sums.shape[-1]
    seed, place = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.int64)
    return out, torch.nn.functional.pad(sums, (0, more)), seed, place


def _efficient_backward(backward: Backward, *args: Any, scale: float | None = None) -> Any:
    gradient, query, key, value, mask, out, sums, *_, causal = _filled(args, 12, False)
    asked = Attention(query, key, value, mask, 0.0, causal, scale)
    return *backward(gradient, out, sums[..., : query.shape[2]], asked), None


def _filled(args: tuple[Any, ...], count: int, *defaults: Any) -> tuple[Any, ...]:
    """All arguments: torch leaves out the last ones where they are the defaults."""
    return (*args, *defaults[len(defaults) - (count - len(args)) :])


def _forward(asked: Attention) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, laid out token by token as CUDA's, and a sum for each row, by head."""
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(
        *_wide(asked), 0.0, asked.is_causal, attn_mask=in_fp32(asked.attn_mask), scale=asked.scale
    )
    tokens = out.transpose(1, 2).to(asked.query.dtype, copy=True, memory_format=torch.contiguous_format)
    by_head = sums if sums.shape[1] == asked.query.shape[1] else sums.transpose(1, 2)
    return tokens.transpose(1, 2), by_head.contiguous()


def _backward(
    gradient: torch.Tensor, out: torch.Tensor, sums: torch.Tensor, asked: Attention
) -> tuple[torch.Tensor, ...]:
    found = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        in_fp32(gradient),
        *_wide(asked),
        in_fp32(out),
        sums,
        0.0,
        asked.is_causal,
        attn_mask=in_fp32(asked.attn_mask),
        scale=asked.scale,
    )
    return tuple(
        torch.empty_like(part).copy_(_summed(of_all, part)) for of_all, part in zip(found, asked.parts, strict=True)
    )


def _blank_forward(asked: Attention) -> tuple[torch.Tensor, torch.Tensor]:
    """What `_forward` gives, without the numbers."""
    batch, heads, length, _ = asked.query.shape
    tokens = asked.query.new_empty(batch, length, heads, asked.value.shape[3])
    return tokens.transpose(1, 2), asked.query.new_empty(batch, heads, length, dtype=torch.float32)


def _blank_backward(
    gradient: torch.Tensor, out: torch.Tensor, sums: torch.Tensor, asked: Attention
) -> tuple[torch.Tensor, ...]:
    return tuple(map(torch.empty_like, asked.parts))


def _wide(asked: Attention) -> tuple[torch.Tensor, ...]:
    """Queries, keys and values in fp32, keys and values once for each head of the queries."""
    heads = asked.query.shape[1]
    return tuple(in_fp32(part).repeat_interleave(heads // part.shape[1], 1) for part in asked.parts)


def _summed(gradient: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The gradient of keys or values, over the heads of queries that share them."""
    return gradient.unflatten(1, (part.shape[1], -1)).sum(2)


def _inside_flash_backward(*args: Any) -> int:
    """dq and a sum for each row in fp32, rows in 128s; dk and dv of each query head where keys have fewer."""
    query, key = args[1:3]
    batch, heads, length, width = query.shape
    rows = batch * heads * -(-length // 128) * 128
    expanded = 2 * batch * heads * key.shape[2] * width * key.element_size() if key.shape[1] != heads else 0
    return 4 * rows * -(-width // 32) * 32 + 4 * rows + int(expanded)


def _inside_efficient_backward(*args: Any) -> int:
    """dq in fp32 where it is of 16 bits; else the products of outputs and their gradients."""
    query = args[1]
    return 4 * int(query.numel())


def _stand_ins(forward: Forward, backward: Backward) -> Mapping[Any, Callable[..., Any]]:
    return {
        aten._scaled_dot_product_flash_attention.default: partial(_flash, forward),
        aten._scaled_dot_product_flash_attention_backward.default: partial(_flash_backward, backward),
        aten._scaled_dot_product_efficient_attention.default: partial(_efficient, forward),
        aten._scaled_dot_product_efficient_attention_backward.default: partial(_efficient_backward, backward),
    }


STAND_INS = _stand_ins(_forward, _backward)
BLANKS = _stand_ins(_blank_forward, _blank_backward)
INSIDE: Mapping[Any, Callable[..., int]] = {
    aten._scaled_dot_product_flash_attention_backward.default: _inside_flash_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: _inside_efficient_backward,
}
