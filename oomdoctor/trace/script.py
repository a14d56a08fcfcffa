"""A person's own step function under the meter. It runs their code: their file is imported as it stands.

Tensors are made on the meta device unless their code names another, and CUDA means the meta device.
"""

from __future__ import annotations

import gc
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from oomdoctor.trace import autocast, kernels, result
from oomdoctor.trace.hooks import Follower
from oomdoctor.trace.meter import Meter, pattern
from oomdoctor.trace.models import NotSimulated

_STEPS = 2
Progress = Callable[[str], None]


def simulate(path: str, function: str, capability: float, progress: Progress) -> str:
    """Two calls of the function, the second of which counts, as JSON of a `Simulated`. Raises NotSimulated."""
    version = importlib.metadata.version("torch")
    major, minor = version.split(".")[:2]
    card = kernels.Card(capability, (int(major), int(minor)))
    library, cast = kernels.install(card), autocast.Autocast()
    autocast.stand_in(cast)
    _pretend_cuda()
    meter = Meter(ways=kernels.ways_of(card))
    with torch.device("meta"), _CudaIsMeta(), cast.listening(), meter, _ScriptFollower(meter).everything():
        step = _found(path, function)
        _run(step, meter, progress)
    meter.stop()
    del library
    meter.tape.notes.append("note_script")
    return result.to_json(result.told(meter.tape, {"torch": version}))


def _found(path: str, function: str) -> Callable[[], Any]:
    """The function of the file, which is run for it. Raises NotSimulated."""
    module_spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if module_spec is None or module_spec.loader is None:
        raise NotSimulated("no_python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_spec.name] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.argv = [path]
    with _their_code():
        module_spec.loader.exec_module(module)
    step = getattr(module, function, None)
    if not callable(step):
        raise NotSimulated("no_function", function=function)
    return step  # type: ignore[no-any-return]


def _run(step: Callable[[], Any], meter: Meter, progress: Progress) -> None:
    for storage in meter.unlabelled(0):
        storage.kind = "inputs"
    for number in range(1, _STEPS + 1):
        progress(f"step{number}")
        meter.enter("forward", number)
        with _their_code():
            step()
        gc.collect()


@contextmanager
def _their_code() -> Iterator[None]:
    """What goes wrong inside is told as their code's error. Raises NotSimulated."""
    try:
        yield
    except NotSimulated:
        raise
    except SystemExit as end:
        raise NotSimulated("script_ended", code=str(end.code)) from None
    except Exception as error:
        raise NotSimulated("script_failed", error=_in_words(error), place=_place(error)) from error


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _place(error: Exception) -> str:
    """The innermost line of their own folder that was at work."""
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(sys.path[0])] or list(frames)
    return f"{os.path.basename(own[-1].filename)}:{own[-1].lineno}"


class _CudaIsMeta(TorchFunctionMode):
    """Where code asks for a tensor on CUDA, it gets one on the meta device; a tensor on its way to the CPU stays."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {key: _on_meta(value) for key, value in (kwargs or {}).items()}
        if func is torch.Tensor.cuda:
            return torch.Tensor.to(args[0], "meta")
        if _goes_to_the_cpu(func, args, kwargs):
            return args[0]
        return func(*(_on_meta(value) for value in args), **kwargs)


def _goes_to_the_cpu(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    if not args or not isinstance(args[0], torch.Tensor) or args[0].device.type != "meta":
        return False
    if func is torch.Tensor.to:
        return any(_names(value, "cpu") for value in (*args[1:], *kwargs.values()))
    return func is torch.Tensor.cpu or func is torch.Tensor.pin_memory


def _on_meta(value: Any) -> Any:
    return torch.device("meta") if _names(value, "cuda") else value


def _names(value: Any, device: str) -> bool:
    return (isinstance(value, torch.device) and value.type == device) or (
        isinstance(value, str) and value.partition(":")[0] == device
    )


# What scripts ask of torch.cuda before and beside a step, and what a card would answer.
_ANSWERS: Mapping[str, Any] = {
    "is_available": True,
    "is_bf16_supported": True,
    "device_count": 1,
    "current_device": 0,
    **dict.fromkeys(("synchronize", "empty_cache", "set_device", "reset_peak_memory_stats", "manual_seed")),
    **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
}


def _pretend_cuda() -> None:
    """Let torch.cuda answer without a card. Each name gets a function of its own: torch asks for that."""
    for name, answer in _ANSWERS.items():
        setattr(torch.cuda, name, _answering(answer))


def _answering(answer: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: answer


class _ScriptFollower(Follower):
    """Finds out as it goes: which models there are, when backward and the optimizer begin and end."""

    @contextmanager
    def everything(self) -> Iterator[None]:
        """All hooks, for as long as this is in force."""
        usual = torch.autograd.backward
        torch.autograd.backward = self._marked(usual)
        steps = register_optimizer_step_pre_hook(self._step_begins), register_optimizer_step_post_hook(self._step_ends)
        try:
            with self.hooks(*steps):
                yield
        finally:
            torch.autograd.backward = usual

    def before(self, module: nn.Module, args: Any) -> None:
        if not self.meter.modules:
            self._meet(module)
            if self.meter.phase in ("backward", "optimizer_step") and not self.meter.in_backward:
                self.meter.enter("forward")  # the next micro-batch
        super().before(module, args)

    def _marked(self, backward: Callable[..., None]) -> Callable[..., None]:
        def marked(*args: Any, **kwargs: Any) -> None:
            self.meter.enter("backward")
            try:
                backward(*args, **kwargs)
            finally:
                self.meter.outside()

        return marked

    def _meet(self, root: nn.Module) -> None:
        """A model that was not seen before: its names, its weights, hooks on its gradients."""
        if id(root) in self.names:
            return
        prefix = type(root).__name__
        for name, module in root.named_modules():
            self.names[id(module)] = pattern(f"{prefix}.{name}" if name else prefix)
        for name, tensor in (*root.named_parameters(), *root.named_buffers()):
            self.meter.label(tensor, "weights", f"{prefix}.{name}")
            if tensor.requires_grad:
                self.names[id(tensor)] = f"{prefix}.{name}"
                self.label_gradients(f"{prefix}.{name}", tensor)

    def _step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.meter.enter("optimizer_step")

    def _step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        for parameter, state in optimizer.state.items():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self.meter.label(value, "optimizer_states", self.names.get(id(parameter), ""))
