"""The logs of the corpus, and a real one, say about their runs what a person reads in them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from oomdoctor.case import Facts
from oomdoctor.sources.log import read_log
from oomdoctor.sources.log.evidence import facts_of

TESTS = Path(__file__).parents[2]
EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load((TESTS / "corpus" / "evidence.yaml").read_text(encoding="utf-8"))


def evidence(path: Path) -> Facts:
    reading = read_log(str(path))
    return Facts().add(facts_of(reading.lines, reading.crash.line if reading.crash else None))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_log_of_the_corpus_says_what_its_expert_read_in_it(name: str) -> None:
    values = evidence(TESTS / "corpus" / f"{name}.log").values()
    assert {key: values.get(key) for key in EXPECTED[name]} == EXPECTED[name]


@pytest.mark.parametrize("path", sorted((TESTS / "corpus").glob("*.log")), ids=lambda path: path.stem)
def test_every_fact_of_the_corpus_names_a_line_of_its_log(path: Path) -> None:
    count = path.read_bytes().count(b"\n") + 1
    for fact in evidence(path).won.values():
        kind, _, number = fact.source.partition(":")
        assert kind == "log" and 1 <= int(number) <= count, fact
        assert fact.reason


def test_a_real_log_of_transformers_5_24_peft_0_21_and_trl_1_16_is_read_right() -> None:
    """Printed by a run on a tiny model with these settings: micro-batch 3, accumulation 5, rank 12 on q and v, NF4 with
    double quantization in float32; then an SFTConfig with micro-batch 2 and 777 tokens."""
    facts = evidence(TESTS / "data" / "trainer-5.24.log")
    expected = {
        "log.banner_batch_size": 3,
        "log.banner_accumulation_steps": 5,
        "log.world_size": 1,
        "log.num_examples": 30,
        "log.trainable_parameters": 5376,  # 2 layers x rank 12 x ((64 + 64) + (64 + 32))
        "log.all_parameters": 207424,
        "method": "lora",
        "lora.r": 12,
        "lora.target_modules": ("q_proj", "v_proj"),
        "lora.lora_dropout": 0.05,
        "quantization": "nf4-double",
        "bnb_4bit_compute_dtype": "bfloat16",
        "torch_dtype": "float32",
        "mixed_precision": "no",
        "gradient_checkpointing": "full",
        "optim": "adamw_torch_fused",
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
        "max_length": 777,
        "task": "sft",
        "framework": "trl",
        "model": "models/tiny-llama",
        "versions.transformers": "5.24.0",
        "versions.peft": "0.21.2",
        "architecture.hidden_size": 64,
        "architecture.num_key_value_heads": 2,
        "architecture.vocab_size": 1000,
        "architecture.tie_word_embeddings": False,
    }
    values = facts.values()
    assert {key: values.get(key) for key in expected} == expected
    assert facts.won["log.banner_batch_size"].source == "log:247"
