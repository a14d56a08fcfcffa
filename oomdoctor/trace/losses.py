"""Losses that do not make all logits at once, in the place of the model's own.

The output layer hands the hidden states on, and the loss takes its weight: the same tensors as in the libraries, at the
same moments. Sources: Liger-Kernel's ops/cross_entropy.py and ops/fused_linear_cross_entropy.py (0.7); torchtune's
CEWithChunkedOutputLoss; TRL's chunked_nll.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import cross_entropy, linear, pad

_IGNORED = -100
_TORCHTUNE_CHUNKS = 8
_TRL_CHUNK = 256  # tokens

Loss = Callable[[torch.Tensor, Any, torch.Tensor], torch.Tensor]


def install(model: Any, kernel: str) -> None:
    """Let the model take its loss in this way. `plain` is its own; a model without an output layer keeps its own."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    head, loss = inner.get_output_embeddings(), _LOSSES.get(kernel)
    if head is None or loss is None:
        return
    head.forward = lambda hidden: hidden
    inner.loss_function = _taking(loss, head)
    for config in (inner.config, inner.config.get_text_config()):
        if getattr(config, "final_logit_softcapping", None):
            config.final_logit_softcapping = None  # the kernels cap the logits themselves


def _taking(loss: Loss, head: Any) -> Callable[..., torch.Tensor]:
    def loss_function(logits: torch.Tensor, labels: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        shifted = pad(labels, (0, 1), value=_IGNORED)[..., 1:].contiguous()
        return loss(logits.reshape(-1, logits.shape[-1]), head, shifted.view(-1))

    return loss_function


class _InPlace(torch.autograd.Function):
    """One kernel for the loss of all logits: their gradient is written over them."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(logits)
        return torch.zeros(logits.shape[0], device=logits.device).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        return logits, None


def _triton(hidden: torch.Tensor, head: Any, labels: torch.Tensor) -> torch.Tensor:
    return _InPlace.apply(linear(hidden, head.weight, head.bias), labels)  # type: ignore[no-any-return]


class _Fused(torch.autograd.Function):
    """Liger: the logits of one chunk at a time; the gradients are made at once, in the forward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        tokens, width = hidden.shape
        chunk = _power_of_two(-(-tokens // -(-weight.shape[0] // width)))
        losses = torch.zeros(tokens, device=hidden.device)
        of_hidden = torch.zeros_like(hidden)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for start in range(0, tokens, chunk):
            part = hidden[start : start + chunk]
            logits = part @ weight.t()  # the kernel writes their gradient over them
            of_hidden[start : start + chunk] = torch.matmul(logits, weight)
            if of_weight is not None:
                of_weight += torch.mm(logits.t(), part).float()
        ctx.save_for_backward(of_hidden, of_weight)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (*ctx.saved_tensors, None)


def _liger(hidden: torch.Tensor, head: Any, labels: torch.Tensor) -> torch.Tensor:
    return _Fused.apply(hidden, head.weight, labels)  # type: ignore[no-any-return]


def _torchtune(hidden: torch.Tensor, head: Any, labels: torch.Tensor) -> torch.Tensor:
    """All logits, but their fp32 copies one chunk at a time."""
    logits = [linear(part, head.weight, head.bias) for part in hidden.chunk(_TORCHTUNE_CHUNKS)]
    losses = [
        cross_entropy(part.float(), target, reduction="sum")
        for part, target in zip(logits, labels.chunk(_TORCHTUNE_CHUNKS), strict=True)
    ]
    return torch.stack(losses).sum()


def _trl(hidden: torch.Tensor, head: Any, labels: torch.Tensor) -> torch.Tensor:
    """A few hundred tokens at a time, and again in backward."""
    from torch.utils.checkpoint import checkpoint

    def of_part(part: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return cross_entropy(linear(part, head.weight, head.bias).float(), target, reduction="sum")

    parts = zip(hidden.split(_TRL_CHUNK), labels.split(_TRL_CHUNK), strict=True)
    losses = [checkpoint(of_part, *part, use_reentrant=False, preserve_rng_state=False) for part in parts]
    return torch.stack(losses).sum()


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


_LOSSES: dict[str, Loss] = {"triton": _triton, "liger": _liger, "chunked": _torchtune, "chunked-trl": _trl}
