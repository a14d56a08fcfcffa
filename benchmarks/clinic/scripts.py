"""The training scripts of the ward, as people write them: every setting comes from the place where it would stand.

Their tracebacks are what the doctor reads, so nothing here knows of the benchmark: `training` prepares what they need
and says when they may stop.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import transformers
from transformers import BitsAndBytesConfig, Trainer, TrainingArguments

Settings = Mapping[str, Any]
Places = Mapping[str, Settings]
Samples = list[dict[str, Any]]
logger = logging.getLogger("train")


def load_model(auto: Any, path: str, places: Places) -> Any:
    settings = dict(places.get("from_pretrained", {}))
    if "BitsAndBytesConfig" in places:
        settings["quantization_config"] = BitsAndBytesConfig(**places["BitsAndBytesConfig"])
    model = auto.from_pretrained(path, **settings)
    if "prepare_model_for_kbit_training" in places:
        from peft import prepare_model_for_kbit_training

        model = prepare_model_for_kbit_training(model, **places["prepare_model_for_kbit_training"])
    return model


def add_adapter(model: Any, places: Places) -> Any:
    if "LoraConfig" not in places:
        return model
    from peft import get_peft_model

    model = get_peft_model(model, adapter_of(places))
    if logger.isEnabledFor(logging.INFO):
        model.print_trainable_parameters()
    return model


def adapter_of(places: Places) -> Any:
    if "LoraConfig" not in places:
        return None
    from peft import LoraConfig

    return LoraConfig(**places["LoraConfig"])


def tokenized(tokenizer: Any, samples: Samples, places: Places) -> Samples:
    settings = places.get("tokenizer", {})
    return [
        {**tokenizer(sample["text"], **settings), **({"labels": sample["label"]} if "label" in sample else {})}
        for sample in samples
    ]


def collator_for(model: Any, tokenizer: Any, task: str) -> Any:
    if task == "classification":
        return transformers.DataCollatorWithPadding(tokenizer)
    masked = model.config.model_type in ("bert", "roberta")
    return transformers.DataCollatorForLanguageModeling(tokenizer, mlm=masked)


def accuracy(predictions: Any) -> dict[str, float]:
    logits, labels = predictions.predictions, predictions.label_ids
    logits = logits[0] if isinstance(logits, tuple) else logits
    chosen = logits if logits.ndim == labels.ndim else logits.argmax(-1)
    return {"accuracy": float((chosen == labels).mean())}


def best_tokens(logits: Any, labels: Any) -> Any:
    logits = logits[0] if isinstance(logits, tuple) else logits
    return logits.argmax(-1)


def announce(args: TrainingArguments) -> None:
    logger.warning(
        f"Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False, 16-bits training: {args.fp16}"
    )
    logger.info(f"Training/evaluation parameters {args}".replace("_n_gpu=0", "_n_gpu=1"))


class HistoryTrainer(Trainer):  # type: ignore[misc]
    """Keeps what it has seen, to plot it later."""

    history: list[Any]

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, **kwargs)
        self.history.append(outputs)
        return (loss, outputs) if return_outputs else loss


def train_with_trainer(script: Any) -> None:
    model = add_adapter(load_model(script.auto, script.path, script.places), script.places)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(script.path)
    args = TrainingArguments(script.output, **script.places.get("TrainingArguments", {}))
    announce(args)
    more: dict[str, Any] = {}
    if "keeps_eval_logits" in script.faults:
        more["compute_metrics"] = accuracy
    if script.places.get("Trainer", {}).get("preprocess_logits_for_metrics"):
        more["preprocess_logits_for_metrics"] = best_tokens
    trainer = (HistoryTrainer if "keeps_outputs" in script.faults else Trainer)(
        model=model,
        args=args,
        train_dataset=tokenized(tokenizer, script.samples, script.places),
        eval_dataset=tokenized(tokenizer, script.eval_samples, script.places) or None,
        data_collator=collator_for(model, tokenizer, script.task),
        callbacks=script.callbacks,
        **more,
    )
    trainer.history = []
    _train(trainer)


def train_with_sft(script: Any) -> None:
    from trl import SFTConfig, SFTTrainer

    _train_with_trl(script, SFTConfig, SFTTrainer)


def train_with_dpo(script: Any) -> None:
    from trl import DPOConfig, DPOTrainer

    _train_with_trl(script, DPOConfig, DPOTrainer)


def _train_with_trl(script: Any, config: Any, trainer: Any) -> None:
    from datasets import Dataset

    model = load_model(script.auto, script.path, script.places)
    args = config(script.output, **script.places.get(config.__name__, {}))
    announce(args)
    made = trainer(
        model=model,
        args=args,
        train_dataset=Dataset.from_list(script.samples),
        eval_dataset=Dataset.from_list(script.eval_samples) if script.eval_samples else None,
        processing_class=transformers.PreTrainedTokenizerFast.from_pretrained(script.path),
        peft_config=adapter_of(script.places),
        callbacks=script.callbacks,
    )
    _train(made)


def _train(trainer: Any) -> None:
    """Raises ValueError where no step was taken: a length can leave no sample over, and then anything fits."""
    trainer.train()
    if not trainer.state.global_step:
        raise ValueError("nothing was trained")
