"""What a script needs before it begins: a checkpoint with random weights, a tokenizer, samples of given lengths."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.clinic.patient import Patient

_LANGUAGE = {"bert": "MaskedLM", "roberta": "MaskedLM"}
_SPECIAL = ("<pad>", "<eos>", "<unk>", "<mask>")


def auto_class(patient: Patient) -> Any:
    """transformers' class for the task of the patient's script."""
    import transformers

    task = "SequenceClassification" if patient.task == "classification" else _LANGUAGE.get(kind(patient), "CausalLM")
    return getattr(transformers, f"AutoModelFor{task}")


def kind(patient: Patient) -> str:
    """The model_type."""
    return str(patient.model["model_type"])


def checkpoint(patient: Patient, shelf: str, save: Callable[[Patient, str], None] | None = None) -> str:
    """The folder of the model on disk, made where it is not there yet.

    shelf: where those of all patients are. save: writes it into a folder; usually with random weights.
    """
    name = _digest({"model": patient.model, "dtype": patient.checkpoint_dtype, "task": patient.task})
    path = os.path.join(shelf, name)
    if not os.path.isdir(path):
        draft = tempfile.mkdtemp(dir=shelf)
        (save or _save)(patient, draft)
        try:
            os.rename(draft, path)
        except OSError:  # another bed has made it meanwhile
            if not os.path.isdir(path):
                raise
    return path


def config_of(patient: Patient) -> Any:
    """transformers' config of the patient's model."""
    import transformers

    settings = {key: value for key, value in patient.model.items() if key != "model_type"}
    return transformers.AutoConfig.for_model(
        kind(patient), **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, **settings}
    )


def _save(patient: Patient, path: str) -> None:
    import torch
    import transformers

    transformers.set_seed(0)
    transformers.utils.logging.disable_progress_bar()
    model = auto_class(patient).from_config(config_of(patient)).to(getattr(torch, patient.checkpoint_dtype))
    model.save_pretrained(path)
    tokenizer(int(patient.model["vocab_size"])).save_pretrained(path)
    transformers.utils.logging.enable_progress_bar()


def tokenizer(words: int) -> Any:
    """A tokenizer of so many words: w4, w5, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate((*_SPECIAL, *(f"w{n}" for n in range(4, words))))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", mask_token="<mask>"
    )


def texts(lengths: tuple[int, ...], words: int) -> list[str]:
    """A text for each length, of so many tokens."""
    chance = random.Random(0)
    return [" ".join(f"w{chance.randrange(4, words)}" for _ in range(length)) for length in lengths]


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
