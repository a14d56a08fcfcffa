"""The run card: what each line of it means, and what is said about a card that cannot be used."""

import json
from pathlib import Path

import pytest

from oomdoctor import fields
from oomdoctor.case import Fact, Facts, Text, UserError
from oomdoctor.sources.config.card import read_card
from oomdoctor.texts import render

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def card(tmp_path: Path):
    def read(text: str) -> dict[str, object]:
        path = tmp_path / "card.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return {fact.key: fact.value for fact in read_card(str(path))}

    return read


@pytest.fixture
def problem(tmp_path: Path):
    def read(content: str | bytes) -> tuple[str, str]:
        path = tmp_path / "card.yaml"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(UserError) as caught:
            read_card(str(path))
        assert render(caught.value.message, "zh")
        assert caught.value.exit_code == 2
        return caught.value.reference.replace(str(path), "card.yaml"), render(caught.value.message, "en")

    return read


def test_the_card_of_the_design_is_read_as_it_says(card) -> None:
    assert card("""
model: meta-llama/Llama-2-7b-hf
task: sft
versions: {torch: 2.6.0, transformers: 4.46.3}
method: lora
lora: {r: 8, target_modules: [q_proj, k_proj, v_proj, o_proj]}
torch_dtype: bfloat16
mixed_precision: bf16
quantization: none
kbit_prepare: true
max_length: 1024        # tokens
use_cache: false
gpus: {count: 1, name: RTX 3090, memory_mib: 24135, compute_capability: 8.6}
host_ram_gib: 64
measured: {allocated_gib: 17.4, reserved_gib: 18.1, phase: backward}
""") == {
        "model": "meta-llama/Llama-2-7b-hf",
        "task": "sft",
        "versions.torch": "2.6.0",
        "versions.transformers": "4.46.3",
        "method": "lora",
        "lora.r": 8,
        "lora.target_modules": ("q_proj", "k_proj", "v_proj", "o_proj"),
        "torch_dtype": "bfloat16",
        "mixed_precision": "bf16",
        "quantization": "none",
        "kbit_prepare": True,
        "max_length": 1024,
        "use_cache": False,
        "gpus.count": 1,
        "gpus.name": "RTX 3090",
        "gpus.memory_mib": 24135,
        "gpus.compute_capability": 8.6,
        "host_ram_gib": 64.0,
        "measured.allocated_gib": 17.4,
        "measured.reserved_gib": 18.1,
        "measured.phase": "backward",
    }


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("mixed_precision: no", "mixed_precision", "no"),  # YAML 1.1 would read false
        ("versions: {torch: 2.10}", "versions.torch", "2.10"),  # YAML would read 2.1
        ("versions: {peft: 0.10}", "versions.peft", "0.10"),
        ("gradient_checkpointing: true", "gradient_checkpointing", "full"),
        ("gradient_checkpointing: off", "gradient_checkpointing", "none"),
        ("gradient_checkpointing: selective", "gradient_checkpointing", "selective"),
        ("dtype: bf16", "torch_dtype", "bfloat16"),
        ("torch_dtype: torch.float16", "torch_dtype", "float16"),
        ("max_seq_length: 2_048", "max_length", 2048),
        ("lora: {lora_dropout: 5e-2}", "lora.lora_dropout", 0.05),
        ("lora.r: 16", "lora.r", 16),
        ("lora: {target_modules: all-linear}", "lora.target_modules", ("all-linear",)),
        ("lora: {target_modules: q_proj, r: 4}", "lora.target_modules", ("q_proj",)),
        ("architecture: {rms_norm_eps: 1e-5}", "architecture.rms_norm_eps", 1e-5),
        ("architecture: {hidden_size: 4096}", "architecture.hidden_size", 4096),
        ("architecture: {tie_word_embeddings: false}", "architecture.tie_word_embeddings", False),
        ("architecture: {text_config: {vocab_size: 262208}}", "architecture.text_config.vocab_size", 262208),
        ("architecture: {architectures: [LlamaForCausalLM]}", "architecture.architectures", ("LlamaForCausalLM",)),
        ("gpus: 2x RTX 3090", "gpus.count", 2),
        ("gpus: 2 x A100-SXM4-80GB", "gpus.name", "A100-SXM4-80GB"),
        ("gpus: RTX 3090", "gpus.name", "RTX 3090"),
        ("gpus: 4", "gpus.count", 4),
        ('{"max_length": 1024, "model": "gpt2"}', "max_length", 1024),
        ('{\n\t"model": "gpt2"\n}', "model", "gpt2"),  # JSON may be indented with tabs
        ("optim: adamw_torch", "optim", "adamw_torch"),
        ("﻿model: gpt2", "model", "gpt2"),
    ],
)
def test_a_scalar_means_what_it_says(card, line: str, key: str, value: object) -> None:
    found = card(line)
    assert found[key] == value
    assert type(found[key]) is type(value)


def test_a_key_without_a_value_is_unknown(card) -> None:
    assert card("model: gpt2\nmax_length:\nlora: null\noptim: ~\n") == {"model": "gpt2"}


def test_qlora_is_lora_on_quantized_weights(card) -> None:
    assert card("method: qlora") == {"method": "lora", "quantization": "nf4"}
    assert card("method: qlora\nquantization: int8") == {"method": "lora", "quantization": "int8"}


def test_lora_settings_mean_lora_unless_the_card_says_otherwise(card) -> None:
    assert card("lora: {r: 4}")["method"] == "lora"
    assert card("method: full\nlora: {r: 4}")["method"] == "full"


def test_the_smallest_of_unequal_cards_is_the_one_to_fit(card) -> None:
    found = card("gpus: [{name: RTX 3090, memory_mib: 24135}, {name: RTX 3060, memory_mib: 11909}]")
    assert (found["gpus.count"], found["gpus.name"], found["gpus.memory_mib"]) == (2, "RTX 3060", 11909)
    assert found["gpus.0.name"] == "RTX 3090"


def test_cards_that_are_only_named_are_looked_up(card) -> None:
    found = card("gpus: [RTX 3090, A100-40GB, {name: T4, count: 3}]")
    assert (found["gpus.count"], found["gpus.name"], found["gpus.4.name"]) == (5, "T4", "T4")
    assert "gpus.memory_mib" not in found  # the catalogue says it, with its own weight


def test_unequal_cards_without_sizes_are_not_judged(card) -> None:
    found = card("gpus: [RTX 3090, {compute_capability: 8.6}]")
    assert found == {"gpus.count": 2, "gpus.0.name": "RTX 3090", "gpus.1.compute_capability": 8.6}


@pytest.mark.parametrize("names", ["[RTX 3090, nonsense]", "[RTX 3090, A100]"])
def test_an_unknown_or_ambiguous_card_of_several_is_refused(card, names: str) -> None:
    with pytest.raises(UserError) as error:
        card(f"gpus: {names}")
    assert error.value.message.path.startswith("texts/gpu.")


def test_a_number_beyond_all_numbers_is_refused(card) -> None:
    with pytest.raises(UserError) as error:
        card("architecture: {rope_theta: 1e999}")
    assert error.value.message.path == "texts/card.infinite"
    assert card("architecture: {rope_theta: 1e6}")["architecture.rope_theta"] == 1e6


def test_equal_cards_may_be_listed(card) -> None:
    assert card("gpus: [RTX 3090, RTX 3090]") == {"gpus.count": 2, "gpus.name": "RTX 3090"}


def test_each_fact_names_the_file_and_line_it_comes_from(tmp_path: Path) -> None:
    path = tmp_path / "card.yaml"
    path.write_text("model: gpt2\nlora:\n  r: 8\n  target_modules:\n    - c_attn\n")
    sources = {fact.key: fact.source for fact in read_card(str(path))}
    assert sources["lora.r"] == f"run:{path}:3"
    assert sources["lora.target_modules"] == f"run:{path}:4"
    assert Fact("x", 1, sources["model"]).rank == Fact("x", 1, "run").rank


def test_a_config_json_beside_the_card_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "card.yaml").write_text("model: config.json\n")
    assert read_card(str(tmp_path / "card.yaml"))[0].value == str(tmp_path / "config.json")


def test_all_problems_of_a_card_are_named_at_once_with_line_and_nearest_key(problem) -> None:
    reference, words = problem("modle: gpt2\nmax_length: -3\nlora:\n  rank: 8\ngpus: {count: 0}\noptim: {a: 1}\n")
    lines = words.splitlines()
    assert reference == "card.yaml"
    assert [line.split(":")[0] for line in lines] == ["Line 1", "Line 2", "Line 4", "Line 5", "Line 6"]
    assert "modle" in lines[0] and "model" in lines[0].partition("Close")[2]
    assert "max_length" in lines[1] and "-3" in lines[1]


def test_a_single_problem_names_its_line_as_the_reference(problem) -> None:
    reference, words = problem("model: gpt2\nquantization: nf5\n")
    assert reference == "card.yaml:2"
    assert "nf4" in words


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("model: a\nmodel: b\n", 2),
        ("torch_dtype: bf16\ndtype: fp16\n", 2),
        ("lora.r: 4\nlora: {r: 8}\n", 2),
        ("gpus: {count: 2}\ngpus: RTX 3090\ngpus.count: 2\n", 3),
        ("model: x\nlora:\n\tr: 8\n", 3),
        ("- model\n", 1),
        ("model", 1),
        ("model: a\n---\nmodel: b\n", 2),
        ("a: &a [x, x]\nb: [*a, *a]\n", 1),
        ("model: *a\n", 1),
        ("model: [a", None),
        ("? [a, b]\n: c\n", 1),
        ("max_length: [1, 2]\n", 1),
        ("gpus: [{nam: x}]\n", 1),
        ("gpus: [[x]]\n", 1),
        ("max_length: " + "9" * 5000, 1),
        ("max_length: inf", 1),
        ("host_ram_gib: nan", 1),
        ("- " * 100_000, 1),
        ("[" * 100_000, 1),
        ("model: !!python/object/apply:os.system [x]\n", 1),
    ],
)
def test_a_card_that_cannot_be_used_is_one_error_at_a_line(problem, content: str, line: int | None) -> None:
    reference, words = problem(content)
    assert line is None or reference == f"card.yaml:{line}"
    assert len(words) < 500


@pytest.mark.parametrize(
    "content", [b"", b"# only a comment\n", b"~", b"\x00\x01\x02", b"\xff\xfe\x00", b"a" * 1_100_000]
)
def test_a_file_that_is_no_card_is_one_sentence(problem, content: bytes) -> None:
    reference, words = problem(content)
    assert reference == "card.yaml"
    assert words.endswith(".") and "\n" not in words


@pytest.mark.parametrize("path", ["no/such/card.yaml", ".", "a\0b"])
def test_a_path_that_cannot_be_read_is_one_sentence(path: str) -> None:
    with pytest.raises(UserError) as caught:
        read_card(path)
    assert isinstance(caught.value.message, Text)


def test_a_card_of_very_many_bad_keys_is_answered_soon_and_shortly(problem) -> None:
    _, words = problem("\n".join(f"key_{n}: 1" for n in range(40_000)))
    assert len(words.splitlines()) <= 21


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_cards_with_a_model_and_a_batch(path: Path) -> None:
    run = fields.run_of(Facts().add(read_card(str(path))).values())
    assert run.model and run.per_device_train_batch_size and run.max_length and run.gpu_name
