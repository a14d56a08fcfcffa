"""Imports what the scripts of all patients use: the fork server does it once, and the beds have it."""

from __future__ import annotations

import gc
import importlib
import sys

_LEFT_OUT = ("apex", "deepspeed", "liger_kernel", "mlflow", "optimum", "tensorboard", "torchao", "wandb")
_FAMILIES = ("bert", "gpt2", "llama", "qwen2")

sys.modules.update(dict.fromkeys(_LEFT_OUT))  # type: ignore[arg-type]  # no patient has them, and looking takes time
for name in ("bitsandbytes", "datasets", "transformers", "benchmarks.clinic.training"):
    importlib.import_module(name)
for name in _FAMILIES:
    importlib.import_module(f"transformers.models.{name}.modeling_{name}")
gc.freeze()  # what is there by now is not looked at again, and its pages stay shared
