"""Tiny real runs: two steps of a real trainer with the edits of a rule made."""

from typing import Any

import torch
import transformers

STEPS, WORDS, LENGTH = 2, 64, 12
# Settings that a run on a CPU cannot obey, or that need a package or file of their own; they are read by the real
# library elsewhere in the tests, but not trained with.
NOT_ON_A_CPU = {
    "bf16": "weights stay as they are without autocast",
    "dataloader_num_workers": "starts processes, which take longer than the training",
    "dataloader_prefetch_factor": "asks for workers",
    "dataloader_persistent_workers": "asks for workers",
    "deepspeed": "needs its file and a launcher",
    "fp16": "fp16 mixed precision asks for a GPU",
    "optim": "8-bit and fused optimizers ask for a GPU",
    "packing": "needs flash-attention",
    "padding_free": "needs flash-attention",
    "activation_offloading": "copies from a GPU",
    "torch_compile": "compiles for minutes",
    "torch_compile_mode": "compiles for minutes",
    "use_liger": "needs Triton",
    "use_liger_kernel": "needs Triton",
    "use_liger_loss": "needs Triton",
    "use_vllm": "needs vLLM",
    "vllm_enable_sleep_mode": "needs vLLM",
    "vllm_gpu_memory_utilization": "needs vLLM",
    "vllm_mode": "needs vLLM",
}
OPTIMIZERS_OF_A_CPU = ("adafactor", "adamw_torch", "sgd")


def possible(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that a CPU can train with."""
    return {key: value for key, value in settings.items() if key not in NOT_ON_A_CPU or value in OPTIMIZERS_OF_A_CPU}


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    """One token a word, `w0` to `w60`, with the special ones that trainers ask for."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    names = [*special.values(), *(f"w{number}" for number in range(WORDS - len(special)))]
    made = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    inputs = ["input_ids", "attention_mask"]
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_input_names=inputs, **special)


def tiny() -> transformers.LlamaForCausalLM:
    """A Llama of two layers."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=WORDS,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
    )
    return transformers.LlamaForCausalLM(config)


def samples(count: int, length: int = LENGTH) -> list[dict[str, Any]]:
    """Rows of random tokens with their labels."""
    torch.manual_seed(1)
    return [{"input_ids": row, "labels": row} for row in torch.randint(3, WORDS, (count, length))]


def texts(task: str, count: int = 16) -> list[dict[str, Any]]:
    """Rows as TRL's trainer of a task takes them."""
    said = [" ".join(f"w{(7 * row + place) % 60}" for place in range(LENGTH)) for row in range(count)]
    if task == "sft":
        return [{"text": text} for text in said]
    prompts = [text.rpartition(" w")[0] for text in said]
    if task == "dpo":
        return [{"prompt": text, "chosen": " w1 w2", "rejected": " w3 w4 w5"} for text in prompts]
    if task == "kto":
        return [{"prompt": text, "completion": " w1 w2", "label": row % 2 == 0} for row, text in enumerate(prompts)]
    return [{"prompt": text} for text in prompts]


def trained(trainer: Any) -> None:
    """Train; fails unless both steps were made, with a loss, and something was learned."""
    before = {
        name: weight.detach().clone() for name, weight in trainer.model.named_parameters() if weight.requires_grad
    }
    result = trainer.train()
    assert result.global_step == STEPS
    assert torch.isfinite(torch.tensor(result.training_loss))
    after = dict(trainer.model.named_parameters())
    assert any(not torch.equal(old, after[name]) for name, old in before.items())


def common(folder: Any) -> dict[str, Any]:
    """Arguments that every tiny run needs."""
    return {
        "output_dir": str(folder),
        "use_cpu": True,
        "report_to": "none",
        "max_steps": STEPS,
        "save_strategy": "no",
        "disable_tqdm": True,
        "learning_rate": 0.01,
    }
