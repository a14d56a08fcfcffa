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


def short(name: str) -> str:
    """A module's name without PEFT's wrapping."""
    return name.removeprefix(_WRAPPERS)


class Follower:
    """Keeps the meter's list of the modules at work. names: of modules and parameters, by id.

    A part that is run again in backward is forward code of its own, from the outermost module's beginning to its end.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.names: dict[int, str] = {}

    def before(self, module: nn.Module, args: Any) -> None:
        """A module begins."""
        if self.meter.in_backward and not self.meter.modules:
            self.meter.begin_region()
        self.meter.modules.append(self.names.get(id(module)) or type(module).__name__)

    def after(self, module: nn.Module, args: Any, out: Any) -> None:
        """A module ends."""
        self.meter.modules.pop()
        if self.meter.in_backward and not self.meter.modules:
            self.meter.end_region()

    def label_gradients(self, name: str, parameter: torch.Tensor) -> Any:
        """From now on this parameter's gradient is known as such. Gives the hook's handle."""
        return parameter.register_post_accumulate_grad_hook(
            lambda parameter: self.meter.label(parameter.grad, "gradients", name)
        )

    @contextmanager
    def hooks(self, *more: Any) -> Iterator[None]:
        """Follow all modules while this is in force. more: handles of other hooks that end with it."""
        handles = [
            module_hooks.register_module_forward_pre_hook(self.before),
            module_hooks.register_module_forward_hook(self.after, always_call=True),
            *more,
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


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


class _BlockFollower(Follower):
    """Knows the blocks and the output layer as well. inside: blocks at work, one or none."""

    def __init__(self, meter: Meter, layout: Layout, head: nn.Module | None) -> None:
        super().__init__(meter)
        self.names, self.units, self.head, self.inside = layout.names, layout.units, head, 0

    def before(self, module: nn.Module, args: Any) -> None:
        meter, unit = self.meter, self.units.get(id(module))
        if module is self.head and meter.phase == "forward":
            meter.enter("loss")
        super().before(module, args)
        if unit is not None:
            self.inside += 1
            if meter.unit == OUTSIDE and meter.phase == "forward":
                _when_gradient_comes(args, lambda: self._at(OUTSIDE))
            meter.unit = unit
        elif not self.inside and not meter.in_backward:
            meter.unit = OUTSIDE

    def after(self, module: nn.Module, args: Any, out: Any) -> None:
        unit = self.units.get(id(module))
        if unit is not None:
            self.inside -= 1
            _when_gradient_comes(out, lambda: self._at(unit))
        super().after(module, args, out)

    def _at(self, unit: int) -> None:
        self.meter.unit = unit


def _when_gradient_comes(value: Any, act: Callable[[], None]) -> None:
    """Act when the gradient of the first tensor is complete: backward then enters what made it."""
    tensor = value[0] if isinstance(value, tuple) and value else value
    if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
        tensor.register_hook(lambda gradient: act())


@contextmanager
def follow(model: nn.Module, meter: Meter, layout: Layout, head: nn.Module | None) -> Iterator[None]:
    """The meter knows where the run of this model is while this is in force. head: the output layer."""
    follower = _BlockFollower(meter, layout, head)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    with follower.hooks(*(follower.label_gradients(short(name), parameter) for name, parameter in trained)):
        yield
