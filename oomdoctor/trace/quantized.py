"""bitsandbytes' layers without bitsandbytes: the same tensors at the same moments, for any device.

`install` puts a stand-in module in its place, so that PEFT's own code for such layers runs. Sources: bitsandbytes'
nn/modules.py and autograd/_functions.py; its 4-bit format (blocks of 64 weights with an fp32 absmax each; under double
quantization an 8-bit one, in blocks of 256 with an fp32 scale).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import nn

from oomdoctor.trace.meter import purpose

BLOCK, OUTER_BLOCK = 64, 256
_OUTLIERS_ABOVE = 6.0  # llm_int8_threshold of transformers' BitsAndBytesConfig
UNPACKED = "quantization_temporaries"  # the bill's line


class Scheme(NamedTuple):
    """bits: 4 or 8. double: the absmax is quantized as well. compute: what products are taken in (4 bits)."""

    bits: int
    double: bool = False
    compute: torch.dtype = torch.bfloat16


class Params4bit(nn.Parameter):
    """Packed weights, two in a byte, with what unpacking needs. PEFT and transformers know the class by its name."""

    quant_type, compress_statistics, bnb_quantized = "nf4", True, True
    quant_state: State4bit

    def __deepcopy__(self, memo: dict[int, Any]) -> Params4bit:
        """PEFT copies a 4-bit layer whole to take the norms that DoRA begins with."""
        new: Params4bit = _make_subclass(Params4bit, self.data.clone())
        new.quant_state, new.compress_statistics = self.quant_state, self.compress_statistics
        return new


class Int8Params(nn.Parameter):
    """Weights of one byte. Named as in bitsandbytes."""


class State4bit(NamedTuple):
    """absmax: of each block; offset, outer: of a quantized absmax, else None."""

    shape: torch.Size
    dtype: torch.dtype
    absmax: torch.Tensor
    offset: torch.Tensor | None = None
    outer: torch.Tensor | None = None

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All that the state holds on the device."""
        return tuple(part for part in (self.absmax, self.offset, self.outer) if part is not None)


class Linear4bit(nn.Linear):
    """A linear layer of 4-bit weights; unpacks all of them each time that it works, forward and backward."""

    weight: Params4bit

    @classmethod
    def of(cls, linear: Any, scheme: Scheme) -> Linear4bit:
        """The layer with its weights packed."""
        new: Linear4bit = _shell(cls, linear)
        weight = linear.weight
        count, device = weight.numel(), weight.device
        blocks = -(-count // BLOCK)
        packed = torch.zeros(-(-count // 2), 1, dtype=torch.uint8, device=device)
        new.weight = _make_subclass(Params4bit, packed)
        new.weight.quant_state = State4bit(
            torch.Size((new.out_features, new.in_features)),
            weight.dtype,
            torch.zeros(blocks, dtype=torch.uint8 if scheme.double else torch.float32, device=device),
            torch.zeros((), device=device) if scheme.double else None,
            torch.zeros(-(-blocks // OUTER_BLOCK), device=device) if scheme.double else None,
        )
        new.weight.compress_statistics = scheme.double
        new.compute_dtype = scheme.compute
        return new

    compute_dtype: torch.dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.dtype
        x = x.to(self.compute_dtype)
        bias = None if self.bias is None else self.bias.to(self.compute_dtype)
        out: torch.Tensor = _Product4bit.apply(x, self.weight, bias, self.weight.quant_state)
        return out.to(given)


class _Product4bit(torch.autograd.Function):
    """bitsandbytes' MatMul4Bit: nothing saved but the packed weights."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, state: State4bit
    ) -> torch.Tensor:
        ctx.state, ctx.weight, ctx.bias_dtype = state, weight, None if bias is None else bias.dtype
        return nn.functional.linear(x, dequantize_4bit(weight, state).to(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        of_bias = gradient.sum(0, dtype=ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = torch.matmul(gradient, dequantize_4bit(ctx.weight, ctx.state).to(gradient.dtype))
        return of_x, None, of_bias, None


def dequantize_4bit(weight: torch.Tensor, state: State4bit) -> torch.Tensor:
    """All weights of a layer in the dtype that they were loaded in."""
    with purpose(UNPACKED):
        if state.offset is not None:
            absmax = torch.empty(state.absmax.shape, dtype=torch.float32, device=weight.device)
            absmax += state.offset
        return torch.zeros(state.shape, dtype=state.dtype, device=weight.device)


class Linear8bitLt(nn.Linear):
    """A linear layer of 8-bit weights (LLM.int8): its input is quantized as well, and kept for backward."""

    weight: Int8Params

    @classmethod
    def of(cls, linear: Any, scheme: Scheme) -> Linear8bitLt:
        """The layer with its weights in bytes."""
        new: Linear8bitLt = _shell(cls, linear)
        device = linear.weight.device
        whole = torch.zeros(new.out_features, new.in_features, dtype=torch.int8, device=device)
        new.weight = _make_subclass(Int8Params, whole)
        new.state = State8bit(whole, torch.zeros(new.out_features, device=device))
        new.index = None
        return new

    state: State8bit
    index: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return _Product8bit.apply(x, bias, self.state)  # type: ignore[no-any-return]


class State8bit(NamedTuple):
    """CB: the weights; SCB: the scale of each row. has_fp16_weights, threshold: as bitsandbytes' state."""

    CB: torch.Tensor
    SCB: torch.Tensor
    has_fp16_weights: bool = False
    threshold: float = _OUTLIERS_ABOVE

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self.CB, self.SCB


class _Product8bit(torch.autograd.Function):
    """bitsandbytes' MatMul8bitLt, its outlier columns (a few in a thousand) left out."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, bias: torch.Tensor | None, state: State8bit) -> torch.Tensor:
        ctx.state, ctx.dtype, ctx.shape, ctx.bias_dtype = state, x.dtype, x.shape, None if bias is None else bias.dtype
        rows = x.reshape(-1, x.shape[-1])
        halves = rows.to(torch.float16)
        with purpose(UNPACKED):
            outliers = halves.abs() >= state.threshold
            del outliers
            quantized = torch.zeros(halves.shape, dtype=torch.int8, device=x.device)
            scales = torch.zeros(halves.shape[0], device=x.device)
            whole = torch.zeros(rows.shape[0], state.CB.shape[0], dtype=torch.int32, device=x.device)
        out = torch.zeros(whole.shape, dtype=x.dtype, device=x.device)
        del quantized, scales, whole
        if any(ctx.needs_input_grad[:2]):
            ctx.input = rows  # bitsandbytes holds it, though only its dtype is asked for
        return out.reshape(*x.shape[:-1], state.CB.shape[0])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (gradient,) = gradients
        of_bias = gradient.sum(0, dtype=ctx.bias_dtype) if ctx.needs_input_grad[1] else None
        gradient = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        of_x = None
        if ctx.needs_input_grad[0]:
            with purpose(UNPACKED):
                weight = ctx.state.CB.to(ctx.dtype, copy=True).mul_(ctx.state.SCB.unsqueeze(1).mul(1.0 / 127.0))
            of_x = torch.matmul(gradient.to(ctx.dtype), weight).view(ctx.shape)
        return of_x, of_bias, None


def _make_subclass(cls: Any, data: torch.Tensor) -> Any:
    """A frozen parameter of the class on this data."""
    return torch.Tensor._make_subclass(cls, data, False)


def _shell(cls: Any, linear: Any) -> Any:
    """A layer of the class with the sizes and the bias of a linear layer (or of GPT-2's Conv1D), and no weights yet."""
    transposed = not isinstance(linear, nn.Linear)
    rows, columns = linear.weight.shape
    new = cls.__new__(cls)
    nn.Module.__init__(new)
    new.in_features, new.out_features = (rows, columns) if transposed else (columns, rows)
    new.bias = linear.bias
    return new


def quantize(model: nn.Module, scheme: Scheme, left_alone: list[str]) -> Iterator[tuple[str, nn.Module]]:
    """Replace the linear layers of a model, but for those named; gives each new layer with its name."""
    layer = Linear4bit if scheme.bits == 4 else Linear8bitLt
    for name, module in list(model.named_modules()):
        is_linear = isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
        if not is_linear or any(name == other or name.endswith(f".{other}") for other in left_alone):
            continue
        parent, _, own = name.rpartition(".")
        new = layer.of(module, scheme)
        setattr(model.get_submodule(parent), own, new)
        yield name, new


def install() -> None:
    """Put the stand-in in the place of bitsandbytes, for PEFT. Nothing of the real one may have been imported."""
    stand_in, inner = ModuleType("bitsandbytes"), ModuleType("bitsandbytes.nn")
    functional = ModuleType("bitsandbytes.functional")
    for part in (Linear4bit, Linear8bitLt, Params4bit, Int8Params):
        setattr(inner, part.__name__, part)
    functional.dequantize_4bit = dequantize_4bit  # type: ignore[attr-defined]
    stand_in.nn, stand_in.functional = inner, functional  # type: ignore[attr-defined]
    for module in (stand_in, inner, functional):
        module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module
