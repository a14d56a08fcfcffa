"""The memory of a run without its arithmetic: operators that hand back tensors of the right shape, without numbers.

For a run of which only the peak counts. Shapes, strides and dtypes are those that torch's own kernels give for tensors
without data, asked once for each kind of call. What could change the course of a script (whole numbers, truths, small
tensors) is computed as ever, and a loss is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten

LARGE = 1 << 14  # numbers; on fewer, the arithmetic takes no longer than this
_FEW = 1 << 10  # numbers that are zeros
_MOVES = ("device", "pin_memory", "non_blocking")  # arguments that say nothing of a shape
_COMPUTED = (
    aten._unsafe_view,  # a view, though its schema does not say so
    aten.native_layer_norm,  # the CPU's kernels give other dtypes
    aten.native_layer_norm_backward,
)
_MASKS = (aten.native_dropout.default,)  # give truths that nothing depends on
_BY_VALUE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}


class Shape(NamedTuple):
    """What there is to know of a tensor without data."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def made(self) -> torch.Tensor:
        out = torch.empty_strided(self.sizes, self.strides, dtype=self.dtype)
        return out.zero_() if out.numel() <= _FEW else out


class Result(NamedTuple):
    """kind: a tensor, or a list or tuple of them; None: it has to be computed."""

    kind: type | None
    shapes: tuple[Shape | None, ...] = ()


_KNOWN: dict[Any, Result] = {}


def blank(func: Any, args: Any, kwargs: Any) -> Any:
    """What an operator would hand back; NotImplemented where it has to be computed."""
    way = _way(func)
    if way is None or not any(map(_is_large, _tensors((*args, *kwargs.values())))):
        return NotImplemented
    return way(func, args, kwargs)


@cache
def _way(func: Any) -> Callable[[Any, Any, Any], Any] | None:
    if func.namespace not in ("aten", "bitsandbytes") or func.overloadpacket in _COMPUTED or _BY_VALUE & set(func.tags):
        return None
    schema = func._schema
    if not schema.is_mutable:
        return None if any(value.alias_info is not None for value in schema.returns) else _anew
    written = [argument for argument in schema.arguments if argument.alias_info is not None]
    if len(schema.returns) > 1:
        return None
    if written[0] is schema.arguments[0]:
        return _in_place
    return _into_out if [argument.name for argument in written] == ["out"] else None


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _is_large(tensor: torch.Tensor) -> bool:
    return tensor.numel() >= LARGE and tensor.is_floating_point()


def _in_place(func: Any, args: Any, _: Any) -> Any:
    if not all(tensor.is_floating_point() for tensor in _tensors(args[:1])):
        return NotImplemented
    return args[0] if func._schema.returns else None


def _into_out(_: Any, __: Any, kwargs: Any) -> Any:
    return kwargs["out"] if kwargs["out"].is_floating_point() else NotImplemented


def _anew(func: Any, args: Any, kwargs: Any) -> Any:
    kwargs = {name: value for name, value in kwargs.items() if name not in _MOVES}
    asked = func, _signature(args), tuple(kwargs), _signature(kwargs.values())
    if asked not in _KNOWN:
        _KNOWN[asked] = _found(func, args, kwargs)
    kind, shapes = _KNOWN[asked]
    if kind is None:
        return NotImplemented
    made = [None if shape is None else shape.made() for shape in shapes]
    return made[0] if kind is torch.Tensor else kind(made)


def _signature(values: Any) -> tuple[Any, ...]:
    return tuple([_sign(value) for value in values])


def _sign(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    return _signature(value) if isinstance(value, (list, tuple)) else value


def _found(func: Any, args: Any, kwargs: Any) -> Result:
    try:
        out = func(*map(_without_data, args), **{name: _without_data(value) for name, value in kwargs.items()})
    except (RuntimeError, NotImplementedError):  # it has no kernel for tensors without data
        return Result(None)
    several = isinstance(out, (list, tuple))
    results = out if several else [out]
    if not all(each is None or _has_no_say(each, func) for each in results):
        return Result(None)
    shapes = tuple(None if each is None else Shape(tuple(each.shape), each.stride(), each.dtype) for each in results)
    return Result(type(out) if several else torch.Tensor, shapes)


def _has_no_say(value: Any, func: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or func in _MASKS)


def _without_data(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    return type(value)(map(_without_data, value)) if isinstance(value, (list, tuple)) else value
