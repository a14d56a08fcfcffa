"""Random runs on random cards, each as a person could have them."""

from __future__ import annotations

import random
from typing import Any

from oomdoctor.case import Case, Fact

MODELS = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Meta-Llama-3-8B",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen2.5-7B",
    "google/gemma-2-2b",
    "mistralai/Mistral-7B-v0.1",
    "microsoft/phi-2",
    "openai-community/gpt2",
    "EleutherAI/pythia-1.4b",
    "meta-llama/Llama-2-13b-hf",
)
CARDS = ("RTX 3060", "Tesla T4", "RTX 3090", "RTX 4090", "V100", "A100-40GB", "A100-80GB", "L4", "H100", "RTX 2080 Ti")
FRAMEWORKS = ("transformers", "trl", "llamafactory", "axolotl", "pytorch", "unsloth", "torchtune", "accelerate")


def random_case(chance: random.Random) -> Case:
    """A case in which all that a bill needs is stated."""
    pick = chance.choice
    method = pick(("full", "full", "lora", "lora", "lora", "freeze"))
    cards = pick((1, 1, 1, 2, 4))
    dtype = pick(("bfloat16", "bfloat16", "float16", "float32"))
    run: dict[str, Any] = {
        "model": pick(MODELS),
        "framework": pick(FRAMEWORKS),
        "task": "sft",
        "method": method,
        "torch_dtype": dtype,
        "mixed_precision": pick(("no", "bf16", "fp16")),
        "quantization": pick(("none", "none", "nf4")) if method == "lora" else "none",
        "kbit_prepare": False,
        "optim": pick(("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "adafactor")),
        "per_device_train_batch_size": pick((1, 2, 4, 8, 16)),
        "gradient_accumulation_steps": pick((1, 1, 4, 16)),
        "max_length": pick((512, 1024, 2048, 4096, 8192)),
        "padding": pick(("longest", "max_length")),
        "gradient_checkpointing": pick(("none", "none", "full")),
        "attn_implementation": pick(("eager", "sdpa", "sdpa", "flash_attention_2")),
        "loss_kernel": "plain",
        "parallelism": "none" if cards == 1 else pick(("none", "ddp", "zero2", "zero3", "fsdp")),
        "offload": "none",
        "gpus.count": cards,
        "gpus.name": pick(CARDS),
    }
    if method == "lora":
        run |= {
            "lora.r": pick((8, 16, 64)),
            "lora.target_modules": pick((("all-linear",), ("q", "v"), ("q", "k", "v", "o"))),
            "lora.lora_dropout": pick((0.0, 0.05)),
            "lora.use_dora": pick((False, False, True)),
            "lora.modules_to_save": (),
        }
    if chance.random() < 0.5:
        run |= {
            "versions.transformers": pick(("4.46.3", "4.57.6", "5.20.0")),
            "versions.trl": pick(("0.12.2", "1.6.0")),
        }
    if chance.random() < 0.2:
        run["host_ram_gib"] = pick((16, 64, 256))
    return Case().know([Fact(key, value, "set") for key, value in run.items()])
