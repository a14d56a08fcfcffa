"""Training steps under a meter: the model as a run sets it up, two steps of it, the second of which counts."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from oomdoctor.trace import losses, models, quantized
from oomdoctor.trace.autocast import Autocast
from oomdoctor.trace.hooks import Layout, follow, short
from oomdoctor.trace.kernels import NO_WAYS, Ways
from oomdoctor.trace.meter import Meter
from oomdoctor.trace.optimizers import optimizer_for, states_of
from oomdoctor.trace.pictures import image_tokens
from oomdoctor.trace.spec import Spec
from oomdoctor.trace.tape import Tape

STEPS = 2
_CLIP = 1.0  # TrainingArguments.max_grad_norm
Progress = Callable[[str], None]
Batch = Mapping[str, torch.Tensor]


def trace(
    spec: Spec,
    config: Any,
    ways: Ways = NO_WAYS,
    autocast: Autocast | None = None,
    progress: Progress = lambda what: None,
) -> Tape:
    """The tape of two steps of the model of this config. Raises NotSimulated."""
    progress("model")
    meter = Meter(spec.device, ways, spec.padded)
    model, layout = _set_up(spec, config, autocast, meter)
    run = _Run(spec, model, meter, autocast)
    gc.disable()  # what dies in a cycle dies at the end of a step, in each run alike
    gc.freeze()  # what was there before is not looked at
    try:
        with follow(model, meter, layout, _head(model)):
            for step in range(1, STEPS + 1):
                progress(f"step{step}")
                run.step(step)
                gc.collect()
    finally:
        gc.unfreeze()
        gc.enable()
        meter.stop()
    return meter.tape


def _set_up(spec: Spec, config: Any, autocast: Autocast | None, meter: Meter) -> tuple[Any, Layout]:
    """The model on the device, ready to train, all of it on the tape."""
    model = models.build(spec, config)
    meter.tape.notes += models.notes_on(model, spec)
    meter.words = models.words_of(model)
    scheme = models.scheme_of(spec)
    if scheme is not None:
        models.quantize(model, scheme)
    layout = _layout(model, config)
    _write_down(model, meter, layout, loaded=getattr(torch, spec.dtype))
    if spec.kbit_prepare:
        with meter:
            models.prepare_kbit(model)
    model = models.choose_trained(model, spec)
    if spec.checkpointing:
        models.checkpoint_blocks(model, spec, autocast)
    losses.install(model, spec.loss)
    layout = _layout(model, config)
    _write_down(model, meter, layout)
    return model, layout


def _layout(model: nn.Module, config: Any) -> Layout:
    blocks = models.blocks_of(model)
    return Layout(model, blocks.name if blocks else "", models.period_of(config))


def _write_down(model: nn.Module, meter: Meter, layout: Layout, loaded: torch.dtype | None = None) -> None:
    """Put all tensors of the model on the tape. loaded: in what dtype quantized weights come before they are packed."""
    for name, tensor in models.tensors_of(model):
        before = _unpacked(tensor, loaded) if loaded is not None else 0
        number = meter.stay(before, "load", "temporaries", layout.unit_of(name)) if before else None
        meter.hold(tensor, "weights", short(name), layout.unit_of(name))
        if number is not None:
            meter.tape.free(number)


def _unpacked(tensor: torch.Tensor, loaded: torch.dtype) -> int:
    """Bytes of a quantized weight before it was quantized, 0 of any other tensor."""
    if isinstance(tensor, quantized.Params4bit):
        return tensor.quant_state.shape.numel() * loaded.itemsize
    return tensor.numel() * loaded.itemsize if isinstance(tensor, quantized.Int8Params) else 0


def _head(model: Any) -> nn.Module | None:
    """The output layer, with which the loss begins."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    head: nn.Module | None = inner.get_output_embeddings()
    return head


class _Run:
    """The loop of a run: Trainer's, or a plain one."""

    def __init__(self, spec: Spec, model: Any, meter: Meter, autocast: Autocast | None) -> None:
        self.spec, self.model, self.meter, self.autocast = spec, model, meter, autocast
        self.optimizer = optimizer_for(spec.optim, model)
        self.batches = [models.inputs_of(model, spec) for _ in range(spec.micro_batches)]
        for batch in self.batches:
            for name, tensor in batch.items():
                meter.hold(tensor, "inputs", name)
        meter.lifts = any(tensor.device.type != spec.device for batch in self.batches for tensor in batch.values())
        meter.chosen = image_tokens(spec, model)
        self._kept: tuple[Any, ...] = ()  # what the variables of a plain loop still hold

    def step(self, step: int) -> None:
        """One optimizer step with its micro-batches."""
        listening = self.autocast.listening() if self.autocast is not None else nullcontext()
        with listening, self.meter:
            for batch in self.batches:
                self.meter.enter("forward", step)
                (self._micro_batch_of_trainer if self.spec.trainer else self._micro_batch)(batch)
            if models.sees_images(self.model) and not self.spec.images:
                self._complete_gradients()
            self.meter.enter("optimizer_step")
            self._update()

    def _micro_batch_of_trainer(self, batch: Batch) -> None:
        """Outputs go when the loss is there, and the graph when backward is done."""
        loss = self._forward(batch).loss
        self.meter.enter("backward")
        loss.backward()
        self.meter.outside()

    def _micro_batch(self, batch: Batch) -> None:
        """Outputs and loss stay until the next ones take their place."""
        outputs = self._forward(batch)
        self._kept = (outputs, outputs.loss)
        self.meter.enter("backward")
        outputs.loss.backward()
        self.meter.outside()

    def _forward(self, batch: Batch) -> Any:
        with self._autocast():
            outputs = self.model(**batch, **self._options())
        if self.spec.trainer and self.spec.autocast:
            _to_fp32(outputs)
        return outputs

    def _options(self) -> dict[str, bool]:
        takes_cache = hasattr(self.model.config.get_text_config(), "use_cache")
        return {"use_cache": self.spec.use_cache and not self.spec.checkpointing} if takes_cache else {}

    def _autocast(self) -> AbstractContextManager[Any]:
        if not self.spec.autocast:
            return nullcontext()
        dtype = getattr(torch, self.spec.autocast)
        return torch.autocast("cpu", dtype) if self.autocast is None else self.autocast.on(dtype)

    def _complete_gradients(self) -> None:
        """What the text alone does not reach gets its gradients all the same: with images it would."""
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
                self.meter.label(parameter.grad, "gradients", short(name))

    def _update(self) -> None:
        if self.spec.trainer:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), _CLIP)
        self.optimizer.step()
        self.meter.outside()
        for name, state in states_of(self.optimizer, self.model):
            self.meter.label(state, "optimizer_states", short(name))
        self.optimizer.zero_grad()


def _to_fp32(outputs: Any) -> None:
    """accelerate hands out the outputs of a model under autocast in fp32."""
    for name, value in list(outputs.items()):
        if isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16):
            outputs[name] = value.float()
