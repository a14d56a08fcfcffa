"""The benchmark beside other estimators: what each is asked, and how an answer is scored."""

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PEERS = Path(__file__).parent.parent / "benchmarks" / "peers"
GIB = 2**30
# Llama-2-7B with LoRA of rank 8 on queries and values: 2 x 32 layers x 8 x (4096 + 4096) trained parameters.
LLAMA = {
    "architecture.model_type": "llama",
    "architecture.hidden_size": "4096",
    "architecture.num_hidden_layers": "32",
    "architecture.num_attention_heads": "32",
    "architecture.num_key_value_heads": "32",
    "architecture.intermediate_size": "11008",
    "architecture.vocab_size": "32000",
    "architecture.tie_word_embeddings": "false",
    "method": "lora",
    "lora.target_modules": "q_proj v_proj",
    "torch_dtype": "bfloat16",
    "mixed_precision": "no",
    "quantization": "none",
    "optim": "adamw_torch",
    "per_device_train_batch_size": "2",
    "gradient_accumulation_steps": "1",
    "max_length": "1024",
    "gradient_checkpointing": "full",
    "attn_implementation": "sdpa",
    "loss_kernel": "plain",
    "torch_compile": "false",
    "parallelism": "none",
    "offload": "none",
    "gpus.count": "1",
}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`load("ask_ftune")`: a module of the benchmark, whose folder is no package."""
    monkeypatch.syspath_prepend(str(PEERS))
    return importlib.import_module


def asked(load: Any, **changes: str) -> Any:
    card = {**LLAMA, **{key.replace("__", "."): value for key, value in changes.items()}}
    return load("asked").Asked(card, parameters=6_738_415_616, trainable=4_194_304)


def test_an_adapter_on_other_modules_is_asked_as_one_of_as_many_parameters(load: Any) -> None:
    # All four attention layers hold 32 x 8 x 4096 parameters for each rank, so rank 4 has the same 4 194 304.
    _, vramcalc = load("ask_vramcalc").inputs(asked(load))
    _, ftune = load("ask_ftune").inputs(asked(load))
    _, memguard = load("ask_memguard").inputs(asked(load))
    assert (vramcalc["lora_rank"], ftune["lora_rank"]) == (4, 4)
    assert (memguard["lora_targets"], memguard["lora_rank"]) == (2, 8)


@pytest.mark.parametrize(
    ("peer", "change", "reason"),
    [
        ("vramcalc", {"quantization": "nf4"}, "quantized weights"),
        ("preflight", {"quantization": "nf4"}, "quantized weights"),
        ("vramcalc", {"architecture__model_type": "gpt2"}, "model family"),
        ("memguard", {"parallelism": "zero3"}, "sharding or several cards"),
        ("memguard", {"optim": "paged_adamw_8bit"}, "8-bit optimizer"),
        ("ftune", {"offload": "params"}, "offload"),
        ("ftune", {"loss_kernel": "liger"}, "fused or chunked loss"),
        ("memguard", {"lora__modules_to_save": "wte lm_head"}, "layers trained beside the adapter"),
    ],
)
def test_what_a_peer_has_no_input_for_is_left_out_with_the_reason(
    load: Any, peer: str, change: dict[str, str], reason: str
) -> None:
    with pytest.raises(load("asked").CannotSay, match=reason):
        load(f"ask_{peer}").inputs(asked(load, **change))


def test_autocast_over_float32_and_pure_bfloat16_are_told_apart(load: Any) -> None:
    mixed = asked(load, torch_dtype="float32", mixed_precision="bf16")
    assert load("ask_vramcalc").inputs(mixed)[1]["precision"] == "amp"
    assert load("ask_preflight").inputs(mixed)[1]["precision"] == "amp"
    assert load("ask_vramcalc").inputs(asked(load))[1]["precision"] == "pure"
    assert load("ask_preflight").inputs(asked(load))[1]["precision"] == "pure-bf16"


def test_each_figure_is_held_against_the_metric_that_was_read(load: Any) -> None:
    score, figures = load("score"), load("asked").Figures(8 * GIB, 9 * GIB, 10 * GIB)
    for metric, error in [("max_memory_allocated", -0.2), ("max_memory_reserved", -0.1), ("nvidia-smi", 0.0)]:
        assert score.error_of(figures, score.Measured(10.0, metric)) == pytest.approx(error)


def test_an_unnamed_metric_may_hold_a_cuda_context_or_not(load: Any) -> None:
    score, figures = load("score"), load("asked").Figures(8 * GIB, 9 * GIB, 10 * GIB)
    assert score.error_of(figures, score.Measured(9.5, "unnamed")) == 0
    assert score.error_of(figures, score.Measured(12.5, "unnamed")) == pytest.approx(-0.2)
    assert score.error_of(figures, score.Measured(8.0, "unnamed")) == pytest.approx(9.4 / 8 - 1)


def test_seven_percent_are_no_error_where_gb_may_be_gib(load: Any) -> None:
    score, figures = load("score"), load("asked").Figures(9 * GIB, 9 * GIB, 9 * GIB)
    assert score.error_of(figures, score.Measured(10.0, "nvidia-smi", unsure=True)) == pytest.approx(-0.03)
    assert score.error_of(figures, score.Measured(9.5, "nvidia-smi", unsure=True)) == 0


def test_a_peer_answers_with_figures_or_with_the_reason_for_none(load: Any, tmp_path: Path) -> None:
    """With a stand-in for vramcalc: the way there and back, as a process of its own."""
    stand_in = (
        "class Estimate:\n    total, overhead = 5, 2\ndef estimate(config, **arguments):\n    return Estimate()\n"
    )
    (tmp_path / "vramcalc.py").write_text(stand_in)
    cards = [LLAMA, {**LLAMA, "quantization": "nf4"}]
    questions = [{"card": card, "parameters": 6_738_415_616, "trainable": 4_194_304} for card in cards]
    done = subprocess.run(
        [sys.executable, str(PEERS / "ask_vramcalc.py")],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert json.loads(done.stdout) == [{"allocated": 5, "reserved": 5, "device": 7}, {"reason": "quantized weights"}]


def test_every_row_has_a_peak_a_known_metric_and_a_source(load: Any) -> None:
    compare: ModuleType = load("compare")
    found = list(compare.runs())
    with open(PEERS / "rows.csv", newline="", encoding="utf-8") as file:
        sources = [row["source"] for row in csv.DictReader(file)]
    assert len({run.id for run in found}) == len(found) == len(sources) and all(sources)
    metrics = {"max_memory_allocated", "max_memory_reserved", "nvidia-smi", "unnamed"}
    assert all(run.measured.gib > 0 and run.measured.metric in metrics for run in found)
