"""The rows as a CSV file that begins with the columns of published peaks."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.clinic.card import GIB
from benchmarks.clinic.gpu.predictions import Figure
from benchmarks.clinic.gpu.rows import FIGURES, TREATED, Row

_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_COMPUTE = {"bf16": "bf16-amp", "fp16": "fp16-amp"}
_NOTABLE = 64 << 20  # bytes
_ATTENTION = {"flash_attention_2": "flash2"}
# Of a table of published, measured peaks of training runs: these rows can be laid beside its own.
COLUMNS = (
    "id", "split", "source_id", "model", "params_b", "hidden", "layers", "heads", "kv_heads", "intermediate", "vocab",
    "tied_embeddings", "method", "lora_r", "lora_targets", "weights_dtype", "trainable_dtype", "compute_dtype", "quant",
    "optimizer", "micro_batch", "seq_len", "grad_accum", "grad_checkpointing", "attention", "fused_loss", "compile",
    "packing_padding", "n_gpus", "parallelism", "offload", "gpu", "gpu_mem_gib", "result", "metric", "peak_gib",
    "published_value", "published_unit", "unit_ambiguous", "alt_metric", "alt_gib", "oom", "evidence", "framework",
    "source", "confidence", "core", "notes",
)  # fmt: skip
OWN_COLUMNS = (
    "kind", "cap_gib", "ended", "error", "seconds", "device_gib", "device_by", "retries", "predicted_allocated_gib",
    "predicted_reserved_gib", "predicted_device_gib", "off_allocated", "off_reserved", "off_device",
    "predicted_dies", "close", "rules", "driver", "versions",
)  # fmt: skip


def add(path: Path, row: Row) -> None:
    """Append a row to a file, with the head where there is none yet; a run that did not come to an end is left out."""
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, (*COLUMNS, *OWN_COLUMNS), restval="")
        if file.tell() == 0:
            writer.writeheader()
        if row.ended in ("ran", "out_of_memory"):
            writer.writerow(as_csv(row))


def as_csv(row: Row) -> dict[str, Any]:
    """A treated run has another card than the one that stands here: its settings are left out."""
    return {**({} if row.kind == TREATED else _settings(row.card)), **_result(row), **_own(row)}


def _settings(card: Mapping[str, Any]) -> dict[str, Any]:
    shape, lora = card["architecture"], card.get("lora", {})
    targets = lora.get("target_modules", "")
    heads = shape.get("num_attention_heads", shape.get("n_head"))
    weights = _DTYPES[card["torch_dtype"]]
    return {
        "model": card["model"], "hidden": shape.get("hidden_size", shape.get("n_embd")),
        "layers": shape.get("num_hidden_layers", shape.get("n_layer")), "heads": heads,
        "kv_heads": shape.get("num_key_value_heads", heads), "intermediate": shape.get("intermediate_size", ""),
        "vocab": shape["vocab_size"], "tied_embeddings": str(shape.get("tie_word_embeddings", True)).lower(),
        "method": "qlora" if card["quantization"] != "none" else card["method"], "lora_r": lora.get("r", ""),
        "lora_targets": targets if isinstance(targets, str) else ",".join(targets), "weights_dtype": weights,
        "compute_dtype": _COMPUTE.get(card["mixed_precision"], weights),
        "quant": card["quantization"].replace("double", "dq"), "optimizer": card["optim"],
        "micro_batch": card["per_device_train_batch_size"], "seq_len": card["max_length"],
        "grad_accum": card["gradient_accumulation_steps"], "grad_checkpointing": card["gradient_checkpointing"],
        "fused_loss": "" if card["framework"] == "trl" else "none",
        "attention": _ATTENTION.get(card["attn_implementation"], card["attn_implementation"]), "compile": "no",
        "packing_padding": "all samples of full length", "n_gpus": 1, "parallelism": "none", "offload": "none",
    }  # fmt: skip


def _result(row: Row) -> dict[str, Any]:
    peak = row.ended == "ran"
    return {
        "id": f"clinic-{row.id}-{row.kind}", "source_id": "oomdoctor-clinic", "gpu": row.gpu.name,
        "gpu_mem_gib": round((row.cap_bytes or row.gpu.total_bytes) / GIB, 2),
        "result": "peak" if peak else "oom",
        "metric": "max_allocated", "peak_gib": _gib(row.allocated) if peak else "", "published_unit": "GiB",
        "unit_ambiguous": "false", "alt_metric": "max_reserved", "alt_gib": _gib(row.reserved) if peak else "",
        "oom": str(row.died).lower(), "evidence": "measured", "source": "benchmarks/clinic",
        "notes": "; ".join(_notes(row)),
        "framework": f"{row.card['framework']}, " + ", ".join(f"{k} {v}" for k, v in row.gpu.versions.items()),
    }  # fmt: skip


def _notes(row: Row) -> Iterator[str]:
    yield "weights of no meaning"
    if row.card.get("eval_samples"):
        yield f"evaluates {row.card['eval_samples']} samples"
    if row.before and row.before > _NOTABLE:
        yield f"{row.before >> 20} MiB were on the card before the run, in device_gib too"
    if row.retries:
        yield "at its limit: torch gave back what it kept, so that less was reserved"


def _own(row: Row) -> dict[str, Any]:
    said = {f"predicted_{name}_gib": _likely(getattr(row.predicted, name)) for name in FIGURES}
    off = {f"off_{name}": "" if (share := row.off(name)) is None else f"{share:.4f}" for name in FIGURES}
    return {
        **said, **off, "kind": row.kind, "cap_gib": _gib(row.cap_bytes), "ended": row.ended, "error": row.error,
        "seconds": row.seconds, "device_gib": _gib(row.device), "device_by": row.device_by, "retries": row.retries,
        "predicted_dies": row.predicted_dies, "close": row.is_close, "rules": " ".join(row.rules),
        "driver": row.gpu.driver,
        "versions": " ".join(f"{k}={v}" for k, v in row.gpu.versions.items()),
    }  # fmt: skip


def _likely(said: Figure | None) -> str:
    return _gib(said and said[1])


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / GIB:.3f}"
