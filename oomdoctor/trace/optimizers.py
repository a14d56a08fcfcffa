"""The optimizer of a step, by its name in transformers: torch's own class, or one that keeps the same states.

Sources: transformers' Trainer.create_optimizer (groups, embeddings in 32 bits); bitsandbytes' optim/optimizer.py
(states by size of the parameter, paged ones in managed memory).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from oomdoctor.trace.models import NotSimulated

Groups = list[dict[str, Any]]

_SMALLEST_8BIT = 4096  # numbers: smaller parameters keep 32-bit states
_SMALLEST_PAGED = 100_000
_BLOCK = 256  # numbers that share one fp32 absmax
_NOT_DECAYED = re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")


def optimizer_for(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model's trained parameters. Raises NotSimulated."""
    make = _MAKERS.get(name.lower())
    if make is None:
        raise NotSimulated("optimizer", name=name)
    groups = _groups(model)
    if not any(group["params"] for group in groups):
        raise NotSimulated("nothing_trained")
    return make(groups, model)


def states_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors that the optimizer keeps, with the name of the parameter that each is about."""
    for name, parameter in model.named_parameters():
        for value in optimizer.state.get(parameter, {}).values():
            if isinstance(value, torch.Tensor):
                yield name, value
    for table in getattr(optimizer, "tables", ()):
        yield "", table


def _groups(model: nn.Module) -> Groups:
    """Decayed and not decayed parameters apart, as Trainer has them: torch's foreach steps take a group at a time."""
    undecayed = {
        f"{name}.{own}"
        for name, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
        for own, _ in module.named_parameters(recurse=False)
    }
    found: tuple[list[nn.Parameter], list[nn.Parameter]] = ([], [])
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            found[name in undecayed or bool(_NOT_DECAYED.search(name.lower()))].append(parameter)
    return [{"params": parameters, "weight_decay": 0.0} for parameters in found if parameters]


class Blockwise(torch.optim.Optimizer):
    """bitsandbytes' optimizers: their states, and an update in place that needs nothing more.

    states: how many; bits: 8 or 32. paged: large ones are in managed memory, outside of torch's allocator.
    in_32_bits: parameters that keep 32-bit states whatever `bits` says.
    """

    def __init__(
        self, groups: Groups, states: int, bits: int, paged: bool = False, in_32_bits: Iterable[torch.Tensor] = ()
    ) -> None:
        super().__init__(groups, {})
        self.states, self.bits, self.paged = states, bits, paged
        self.tables: list[torch.Tensor] = []
        self._in_32_bits = {id(table) for table in in_32_bits}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self._start(parameter)

    def _start(self, parameter: nn.Parameter) -> None:
        count = parameter.numel()
        eight = self.bits == 8 and count >= _SMALLEST_8BIT and id(parameter) not in self._in_32_bits
        state = self.state[parameter]
        state["step"] = 0
        if eight and not self.tables:
            self.tables = [torch.zeros(256, device=parameter.device) for _ in range(min(2, self.states))]
        for number in range(self.states):
            if not (self.paged and count >= _SMALLEST_PAGED):
                dtype = torch.uint8 if eight else torch.float32
                state[f"state{number}"] = torch.zeros_like(parameter, dtype=dtype)
            if eight:
                state[f"absmax{number}"] = torch.zeros(-(-count // _BLOCK), device=parameter.device)


def _adamw(fused: bool = False) -> Callable[[Groups, nn.Module], torch.optim.Optimizer]:
    return lambda groups, model: torch.optim.AdamW(groups, fused=fused or None)


def _blockwise(states: int, bits: int, paged: bool = False) -> Callable[[Groups, nn.Module], torch.optim.Optimizer]:
    def make(groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
        tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
        return Blockwise(groups, states, bits, paged, tables if bits == 8 else ())

    return make


def _adafactor(groups: Groups, model: nn.Module) -> torch.optim.Optimizer:
    from transformers.optimization import Adafactor

    optimizer: torch.optim.Optimizer = Adafactor(groups, lr=1e-3, scale_parameter=False, relative_step=False)
    return optimizer


_MAKERS: dict[str, Callable[[Groups, nn.Module], torch.optim.Optimizer]] = {
    "adamw_torch": _adamw(),
    "adamw_hf": _adamw(),
    "adamw_torch_fused": _adamw(fused=True),
    "adafactor": _adafactor,
    "sgd": lambda groups, model: torch.optim.SGD(groups, lr=1e-3),
    "rmsprop": lambda groups, model: torch.optim.RMSprop(groups),
    "adagrad": lambda groups, model: torch.optim.Adagrad(groups),
    "adamw_8bit": _blockwise(2, 8),
    "adamw_bnb_8bit": _blockwise(2, 8),
    "adamw_bnb": _blockwise(2, 32),
    "paged_adamw": _blockwise(2, 32, paged=True),
    "paged_adamw_32bit": _blockwise(2, 32, paged=True),
    "paged_adamw_8bit": _blockwise(2, 8, paged=True),
    "lion_8bit": _blockwise(1, 8),
    "lion_32bit": _blockwise(1, 32),
    "paged_lion_8bit": _blockwise(1, 8, paged=True),
    "paged_lion_32bit": _blockwise(1, 32, paged=True),
    "rmsprop_bnb": _blockwise(1, 32),
    "rmsprop_bnb_32bit": _blockwise(1, 32),
    "rmsprop_bnb_8bit": _blockwise(1, 8),
    "ademamix": _blockwise(3, 32),
    "ademamix_8bit": _blockwise(3, 8),
    "paged_ademamix_32bit": _blockwise(3, 32, paged=True),
    "paged_ademamix_8bit": _blockwise(3, 8, paged=True),
}
