"""From a run card's Run to the Spec of a step, or to the reason why it cannot be simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oomdoctor.case import Architecture, Lora, Run, Text
from oomdoctor.trace.spec import Spec
from oomdoctor.units import version_key

# Loops that let the outputs go before backward; a loop of one's own keeps them.
_TRAINERS = frozenset(
    ("transformers", "trl", "peft", "axolotl", "llamafactory", "ms-swift", "unsloth", "lightning", "torchtune")
)
_TASKS = (None, "sft", "pretrain", "classification")
_FIVE = (5,)  # transformers: no cache and not reentrant unless asked for


def spec_of(run: Run, config: Mapping[str, Any], arch: Architecture | None) -> Spec:
    """The step of a run. What the card leaves out is taken as the libraries would have it."""
    transformers = version_key(run.versions.get("transformers", "")) or _FIVE
    trainer = run.framework in _TRAINERS
    torch = version_key(run.versions.get("torch", ""))
    dtype = run.torch_dtype or "bfloat16"
    return Spec(
        config=config,
        task=run.task or "",
        method=run.method or "full",
        lora=_lora(run.lora or Lora(), arch),
        dtype=dtype,
        trainable_dtype=run.trainable_dtype or "",
        autocast={"bf16": "bfloat16", "fp16": "float16"}.get(run.mixed_precision or "", ""),
        quantization=run.quantization or "none",
        compute_dtype=run.bnb_4bit_compute_dtype or (dtype if dtype != "float32" else "bfloat16"),
        kbit_prepare=bool(run.kbit_prepare),
        optim=run.optim or "adamw_torch",
        batch=run.per_device_train_batch_size or 1,
        length=run.max_length or 1,
        source_length=run.max_source_length or 0,
        images=run.images(arch),
        pixels=run.pixels,
        micro_batches=min(2, run.gradient_accumulation_steps or 1),  # the third finds what the second found
        padded=run.padding == "longest" and not run.packing and (run.per_device_train_batch_size or 1) > 1,
        checkpointing=run.gradient_checkpointing == "full",
        reentrant=transformers < _FIVE,
        use_cache=not (trainer and transformers >= _FIVE) if run.use_cache is None else run.use_cache,
        attention=run.attn_implementation or "sdpa",
        loss="chunked-trl" if run.loss_kernel == "chunked" and run.framework == "trl" else run.loss_kernel or "plain",
        trainer=trainer,
        capability=run.compute_capability or 8.0,
        torch=(torch[0], (*torch, 0)[1]) if torch else None,
    )


def _lora(lora: Lora, arch: Architecture | None) -> Lora:
    """The adapter settings with the model's own module names in place of short ones (q for q_proj)."""
    linears = arch.linears if arch is not None else ()
    names: list[str] = []
    for wanted in lora.target_modules:
        names += [linear.name for linear in linears if linear.short == wanted] or [wanted]
    return lora._replace(target_modules=tuple(dict.fromkeys(names)))


def obstacles(run: Run) -> Iterator[Text]:
    """What of a run the exact mode does not simulate."""
    settings = {
        "task": run.task if run.task not in _TASKS else None,
        "parallelism": run.parallelism if _is_spread(run) else None,
        "offload": run.offload if run.offload not in (None, "none") else None,
        "torch_compile": "true" if run.torch_compile else None,
        "quantization": run.quantization if (run.quantization or "").startswith("gptq") else None,
        "trainable_dtype": run.trainable_dtype if run.trainable_dtype == "float32-master" else None,
        "reference_model": run.reference_model if run.reference_model not in (None, "none") else None,
        "gradient_checkpointing": run.gradient_checkpointing if run.gradient_checkpointing == "selective" else None,
        "every_n_layers": str(run.every_n_layers) if (run.every_n_layers or 1) > 1 else None,
        "lora.trainable_token_indices": ", ".join((run.lora or Lora()).trainable_token_indices) or None,
    }
    for key, value in settings.items():
        if value is not None:
            yield Text("texts/trace.obstacle", {"key": key, "value": value})


def _is_spread(run: Run) -> bool:
    """Whether cards share one model, or keep buffers for each other."""
    if run.parallelism in (None, "none"):
        return False
    return run.parallelism not in ("dp", "ddp") or (run.gpu_count or 1) > 1
