"""Hooks that tell a meter where the run is: which module, which block, forward or loss, whose gradient came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as module_hooks

from oomdoctor.trace.meter import Meter, pattern
from oomdoctor.trace.tape import OUTSIDE

_WRAPPERS = "base_model.model."  # what PEFT puts before each name


class Layout:
    """The names of a model's modules, and to which block each belongs. period: blocks that count as one."""

    def __init__(self, model: nn.Module, blocks: str = "", period: int = 1) -> None:
        self._prefix, self._period = f"{blocks}." if blocks else "", period
        self.names = {id(module): pattern(short(name)) for name, module in model.named_modules()}
        self.units = {id(module): self.unit_of(name) for name, module in model.named_modules() if self._is_block(name)}

    def unit_of(self, name: str) -> int:
        """The block of a module or a tensor by its name, OUTSIDE where it is in none."""
        if not self._prefix or self._prefix not in name:
            return OUTSIDE
        number = name.partition(self._prefix)[2].partition(".")[0]
        return int(number) // self._period if number.isdigit() else OUTSIDE

    def _is_block(self, name: str) -> bool:
        return bool(self._prefix) and name.partition(self._prefix)[2].isdigit()


def short(name: str) -> str:
    """A module's name without PEFT's wrapping."""
    return name.removeprefix(_WRAPPERS)


class _Follower:
    """The state of the hooks: how many blocks are at work (one inside another's, or none)."""

    def __init__(self, meter: Meter, layout: Layout, head: nn.Module | None) -> None:
        self.meter, self.layout, self.head, self.inside = meter, layout, head, 0

    def before(self, module: nn.Module, args: Any) -> None:
        meter = self.meter
        if not meter.modules and meter.phase == "backward":
            meter.begin_region()  # a checkpointed part runs again
        if module is self.head and meter.phase == "forward":
            meter.enter("loss")
        meter.modules.append(self.layout.names.get(id(module)) or type(module).__name__)
        unit = self.layout.units.get(id(module))
        if unit is not None:
            self.inside += 1
            if meter.unit == OUTSIDE and meter.phase == "forward":
                _when_gradient_comes(args, lambda: self._at(OUTSIDE))
            meter.unit = unit
        elif not self.inside and meter.phase in ("forward", "loss"):
            meter.unit = OUTSIDE

    def after(self, module: nn.Module, args: Any, out: Any) -> None:
        meter = self.meter
        unit = self.layout.units.get(id(module))
        if unit is not None:
            self.inside -= 1
            _when_gradient_comes(out, lambda: self._at(unit))
        meter.modules.pop()
        if not meter.modules and meter.phase == "backward":
            meter.end_region()

    def _at(self, unit: int) -> None:
        self.meter.unit = unit


def _when_gradient_comes(value: Any, act: Callable[[], None]) -> None:
    """Act when the gradient of the first tensor is complete: backward then enters what made it."""
    tensor = value[0] if isinstance(value, tuple) and value else value
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
        tensor.register_hook(lambda gradient: act())


@contextmanager
def follow(model: nn.Module, meter: Meter, layout: Layout, head: nn.Module | None) -> Iterator[None]:
    """The meter knows where the run is while this is in force."""
    follower = _Follower(meter, layout, head)
    handles = [
        module_hooks.register_module_forward_pre_hook(follower.before),
        module_hooks.register_module_forward_hook(follower.after, always_call=True),
    ]
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            handles.append(parameter.register_post_accumulate_grad_hook(_labels_gradient(meter, short(name))))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _labels_gradient(meter: Meter, name: str) -> Callable[[torch.Tensor], None]:
    return lambda parameter: meter.label(parameter.grad, "gradients", name)
