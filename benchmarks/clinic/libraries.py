"""Imports what the scripts of all patients use: the fork server does it once, and the beds have it.

What is not installed is left to the scripts that need it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.metadata
import sys
import threading
from typing import Any

import torch
from tqdm import tqdm

_LEFT_OUT = ("apex", "deepspeed", "liger_kernel", "mlflow", "optimum", "tensorboard", "torchao", "wandb")
_USED = (
    "bitsandbytes",
    "datasets",
    "peft",
    "trl.trainer.dpo_trainer",
    "trl.trainer.sft_trainer",
    "benchmarks.clinic.training",
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bert", "gpt2", "llama", "qwen2")),
)


def _uncompiled(function: Any, **_: Any) -> Any:
    return function


sys.modules.update(dict.fromkeys(_LEFT_OUT))  # type: ignore[arg-type]  # no patient has them, and looking takes time
compiled, torch.compile = torch.compile, _uncompiled  # compiling bitsandbytes' CPU kernels takes longer than they do
for name in _USED:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
torch.compile = compiled
importlib.metadata.metadata = functools.cache(importlib.metadata.metadata)  # accelerate reads PEFT's ten times a run
tqdm.set_lock(threading.RLock())  # one of several processes is left behind by each bed
with contextlib.suppress(ImportError):
    from accelerate.utils import is_peft_available

    is_peft_available()
gc.freeze()  # what is there by now is not looked at again, and its pages stay shared
