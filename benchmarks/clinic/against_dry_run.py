"""The clinic's card beside the exact mode: the peak of real steps on CPU tensors, and `oomdoctor dry-run` of that run.

    python -m benchmarks.clinic.against_dry_run [NAME...]

Two programs that count on their own, real tensors here and none there. The exact mode's rounding is left out: it is an
allocator's, of blocks that are not split, and the clinic's card rounds to 512 bytes alone. Exits 1 where the two differ
by more than is allowed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.clinic.beds import Beds
from benchmarks.clinic.card import MIB
from benchmarks.clinic.patient import Card, Data, Patient

ALLOWED = 0.015
LLAMA: Mapping[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 344,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 4000,
    "tie_word_embeddings": False,
}
GROUPED: Mapping[str, Any] = {**LLAMA, "num_key_value_heads": 2}
GPT2 = {"model_type": "gpt2", "n_embd": 128, "n_layer": 4, "n_head": 4, "vocab_size": 4000, "n_positions": 512}
BERT: Mapping[str, Any] = {
    "model_type": "bert",
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 4000,
}
LORA = {"r": 8, "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"]}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": "bfloat16"}


class Setting(NamedTuple):
    """arguments: of TrainingArguments; places: others. card: what the run card says of them."""

    model: Mapping[str, Any] = LLAMA
    dtype: str = "float32"
    arguments: Mapping[str, Any] = {}
    card: Mapping[str, Any] = {}
    places: Mapping[str, Any] = {}
    task: str = "sft"
    batch: int = 8
    length: int = 256


AUTOCAST = {"mixed_precision": "bf16"}
ADAPTED = {**AUTOCAST, "method": "lora", "lora": LORA, "trainable_dtype": "float32"}
PACKED = {**ADAPTED, "quantization": "nf4", "bnb_4bit_compute_dtype": "bfloat16", "kbit_prepare": False}
BF16 = {"bf16": True}
SHORT = {"dtype": "bfloat16", "batch": 2, "length": 64}
SETTINGS: Mapping[str, Setting] = {
    "fp32": Setting(),
    "fp32, grouped heads": Setting(GROUPED),
    "bf16, grouped heads": Setting(GROUPED, "bfloat16"),
    "autocast": Setting(arguments=BF16, card=AUTOCAST),
    "eager": Setting(
        arguments=BF16, card={**AUTOCAST, "attn_implementation": "eager"}, places={"attn_implementation": "eager"}
    ),
    "checkpointing": Setting(
        arguments={**BF16, "gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
        card={**AUTOCAST, "gradient_checkpointing": "full"},
        batch=16,
    ),
    "accumulation": Setting(
        arguments={**BF16, "gradient_accumulation_steps": 2}, card={**AUTOCAST, "gradient_accumulation_steps": 2}
    ),
    "adamw": Setting(arguments={"optim": "adamw_torch"}, **{**SHORT, "dtype": "float32"}),
    "8-bit adamw": Setting(arguments={"optim": "adamw_bnb_8bit"}, card={"optim": "adamw_bnb_8bit"}, **SHORT),
    "paged adamw": Setting(arguments={"optim": "paged_adamw_8bit"}, card={"optim": "paged_adamw_8bit"}, **SHORT),
    "adafactor": Setting(arguments={"optim": "adafactor"}, card={"optim": "adafactor"}, **SHORT),
    "gpt2, dropout": Setting(GPT2, arguments=BF16, card=AUTOCAST),
    "bert, classification": Setting(
        BERT, arguments=BF16, card={**AUTOCAST, "task": "classification"}, task="classification"
    ),
    "lora": Setting(dtype="bfloat16", arguments=BF16, card=ADAPTED, places={"LoraConfig": LORA}),
    "qlora": Setting(
        dtype="bfloat16", arguments=BF16, card=PACKED, places={"LoraConfig": LORA, "BitsAndBytesConfig": NF4}
    ),
}


def patient(name: str, setting: Setting) -> Patient:
    """The setting as a script."""
    places = dict(setting.places)
    loads = {"dtype": setting.dtype}
    if "attn_implementation" in places:
        loads["attn_implementation"] = places.pop("attn_implementation")
    arguments = {"per_device_train_batch_size": setting.batch, **setting.arguments}
    data = Data((setting.length,) * (4 * setting.batch))
    places |= {"TrainingArguments": arguments, "from_pretrained": loads}
    return Patient(name, "trainer", setting.task, setting.model, Card(8000), data, places)


def run_card(setting: Setting) -> dict[str, Any]:
    """The setting as a run card."""
    return {
        "architecture": dict(setting.model),
        "task": "sft",
        "framework": "transformers",
        "method": "full",
        "torch_dtype": setting.dtype,
        "mixed_precision": "no",
        "quantization": "none",
        "optim": "adamw_torch",
        "per_device_train_batch_size": setting.batch,
        "gradient_accumulation_steps": 1,
        "max_length": setting.length,
        "padding": "max_length",
        "gradient_checkpointing": "none",
        "use_cache": False,
        "attn_implementation": "sdpa",
        "gpus": {"count": 1, "memory_mib": 8000, "compute_capability": 8.6},
        "parallelism": "none",
        **setting.card,
    }


def simulated(setting: Setting) -> int:
    """Bytes of the peak that the exact mode gives, without its rounding."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "card.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(run_card(setting), file)
        command = [sys.executable, "-m", "oomdoctor", "dry-run", path, "--json"]
        document = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    rounding = sum(line["bytes"] for line in document["dry_run"]["lines"] if line["key"] == "rounding")
    return int(document["dry_run"]["peak"]["allocated_bytes"]) - rounding


def main(names: list[str]) -> int:
    """Print a row for each setting; the exit code says whether the two agree."""
    worst = 0.0
    with Beds() as beds:
        for name in names or SETTINGS:
            outcome, exact = beds.run(patient(name, SETTINGS[name]), capped=False), simulated(SETTINGS[name])
            off = outcome.peak_bytes / exact - 1
            worst = max(worst, abs(off)) if outcome.ended == "ran" else 1.0
            print(
                f"{name:22} {outcome.peak_bytes / MIB:8.2f} MiB  {exact / MIB:8.2f} MiB exact  {off:+.2%}", flush=True
            )
    return int(worst > ALLOWED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
