"""A loop of one's own, as people write it. Its settings are those of its constants (`loop`, by the run card's keys)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import transformers
from torch.utils.data import DataLoader

from benchmarks.clinic.scripts import Settings, add_adapter, collator_for, load_model, logger, tokenized


def train_with_loop(script: Any) -> None:
    loop = script.places.get("loop", {})
    model = add_adapter(load_model(script.auto, script.path, script.places), script.places)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(script.path)
    logger.info(f"Training with {dict(loop)}")
    if loop.get("gradient_checkpointing") == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    device = torch.device(script.device)
    model.to(device)
    model.train()
    collate = collator_for(model, tokenizer, script.task)
    batch_size = loop.get("per_device_train_batch_size", 8)
    loader = DataLoader(
        tokenized(tokenizer, script.samples, script.places), batch_size=batch_size, collate_fn=collate, shuffle=False
    )
    optimizer = optimizer_for(model, loop)
    accumulation = script.accumulation
    history = []
    bar = transformers.utils.logging.tqdm(range(script.steps))
    for number, batch in enumerate(on_device(loader, device), 1):
        with precision(loop, device), offload(loop):
            outputs = model(**batch)
            loss = outputs.loss / accumulation
        loss.backward()
        if "keeps_outputs" in script.faults:
            history.append(outputs)
        if number % accumulation == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=loop.get("zero_grad_set_to_none", True))
            bar.update()
        if number == script.steps * accumulation:
            break
    if script.eval_samples:
        samples = tokenized(tokenizer, script.eval_samples, script.places)
        size = loop.get("per_device_eval_batch_size", batch_size)
        evaluate(model, DataLoader(samples, batch_size=size, collate_fn=collate), device, script.faults)


def optimizer_for(model: Any, loop: Settings) -> torch.optim.Optimizer:
    import bitsandbytes

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate = loop.get("learning_rate", 1e-4)
    match loop.get("optim", "adamw_torch"):
        case "adamw_torch":
            return torch.optim.AdamW(parameters, lr=rate)
        case "adamw_torch_fused":
            return torch.optim.AdamW(parameters, lr=rate, fused=True)
        case "adamw_bnb_8bit" | "adamw_8bit":
            return bitsandbytes.optim.AdamW8bit(parameters, lr=rate)  # type: ignore[no-any-return]
        case "paged_adamw_8bit":
            return bitsandbytes.optim.PagedAdamW8bit(parameters, lr=rate)  # type: ignore[no-any-return]
        case "paged_adamw_32bit":
            return bitsandbytes.optim.PagedAdamW32bit(parameters, lr=rate)  # type: ignore[no-any-return]
        case "adafactor":
            return transformers.Adafactor(parameters, lr=rate, scale_parameter=False, relative_step=False)  # type: ignore[no-any-return]
        case "sgd":
            return torch.optim.SGD(parameters, lr=rate)
        case other:
            raise ValueError(f"unknown optimizer {other}")


def precision(loop: Settings, device: torch.device) -> AbstractContextManager[Any]:
    if loop.get("mixed_precision", "no") == "no":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def offload(loop: Settings) -> AbstractContextManager[Any]:
    return torch.autograd.graph.save_on_cpu() if loop.get("activation_offloading") else nullcontext()


def evaluate(model: Any, loader: Any, device: torch.device, faults: frozenset[str]) -> None:
    model.eval()
    total: Any = 0.0
    predictions = []
    with nullcontext() if "keeps_losses" in faults else torch.no_grad():
        for batch in on_device(loader, device):
            outputs = model(**batch)
            total = total + (outputs.loss if "keeps_losses" in faults else outputs.loss.item())
            if "keeps_eval_logits" in faults:
                predictions.append(outputs.logits)
    print(f"eval loss: {float(total) / max(1, len(loader)):.4f}")


def on_device(loader: Any, device: torch.device) -> Iterator[dict[str, torch.Tensor]]:
    for batch in loader:
        yield {key: value.to(device) for key, value in batch.items()}
