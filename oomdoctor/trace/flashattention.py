"""The flash-attn package without it: transformers' own code around it runs, and torch's flash kernel in its place."""

from __future__ import annotations

from typing import Any

import torch

from oomdoctor.trace.kernels import Attention, flash


def stand_in() -> None:
    """`flash_attention_2` works in this process, though the package is for CUDA alone. Padded tokens count as real."""
    from transformers import PreTrainedModel, modeling_flash_attention_utils

    around: Any = modeling_flash_attention_utils
    own = around._pad_input, around._unpad_input
    around._lazy_imports = lambda *asked, **more: (_flash_attn_func, _flash_attn_varlen_func, None, *own)
    around._get_unpad_data = _all_tokens
    around._is_packed_sequence = lambda *asked, **more: False
    model: Any = PreTrainedModel
    model._flash_attn_import_error = lambda *asked, **more: None


def _flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, causal: bool = False, **more: Any
) -> torch.Tensor:
    """flash_attn_func: tensors of (batch, tokens, heads, head_dim)."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    return flash(Attention(q, k, v, None, dropout_p, causal)).transpose(1, 2)


def _flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, causal: bool = False, **more: Any
) -> torch.Tensor:
    """flash_attn_varlen_func: tensors of (tokens of all samples, heads, head_dim)."""
    q, k, v = (part.unsqueeze(0) for part in (q, k, v))
    return _flash_attn_func(q, k, v, dropout_p, causal).squeeze(0)


def _all_tokens(attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """transformers' _get_unpad_data for a mask without values: the indices of all tokens, where samples begin, their
    length."""
    batch, length = attention_mask.shape
    indices = torch.arange(batch * length, device=attention_mask.device)
    return indices, torch.arange(batch + 1, dtype=torch.int32, device=attention_mask.device), length
