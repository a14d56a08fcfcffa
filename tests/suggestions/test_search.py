"""Which models a requested size speaks for. The sizes are those of public reports, or one line of arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oomdoctor import doctor
from oomdoctor.case import Case, Crash, Fact, Facts
from oomdoctor.sources.model import find_model
from oomdoctor.suggestions.search import suggested
from oomdoctor.suggestions.suggestion import Suggestion
from oomdoctor.units import GIB, parse_size

CORPUS = Path(__file__).parents[1] / "corpus"
TRAINER = "/env/site-packages/transformers/trainer.py:2279 in _inner_training_loop"
LOADING = "/env/site-packages/transformers/modeling_utils.py:691 in _load_state_dict_into_meta_model"
GATHERING = "/env/site-packages/torch/distributed/fsdp/_flat_param.py:1301 in unshard"
LLAMA_13B, LLAMA_3 = "meta-llama/Llama-2-13b-hf", "meta-llama/Meta-Llama-3-8B"


def _suggested(printed: str, phase: str, frames: tuple[str, ...] = (TRAINER,), **known: Any) -> tuple[Suggestion, ...]:
    """What a request speaks for. known: facts of the log, with __ for a point; `allocated`: GiB in use by torch."""
    used = known.pop("allocated", None)
    facts = [Fact(key.replace("__", "."), value, "log:1") for key, value in known.items()]
    crash = Crash("cuda_oom", phase, requested_bytes=parse_size(printed), frames=frames)
    return suggested(crash._replace(allocated_bytes=None if used is None else round(used * GIB)), Facts().add(facts))


def _named(suggestions: tuple[Suggestion, ...]) -> set[str]:
    return {name for suggestion in suggestions for name in suggestion.models}


def test_a_weight_that_is_being_loaded_names_its_shape_its_dtype_and_the_models_that_share_it() -> None:
    """11008 x 4096 x 4 B = 172 MiB."""
    (found,) = _suggested("172.00 MiB", "model_load", (LOADING,))
    assert (found.tensor.shape, found.tensor.dtype, found.tokens) == ((11008, 4096), "float32", None)
    assert {"meta-llama/Llama-2-7b-hf", "huggyllama/llama-7b", "Qwen/Qwen-7B"} <= set(found.models)
    assert "mistralai/Mistral-7B-v0.1" not in found.models  # 14336 x 4096


def test_logits_are_a_round_number_of_tokens_for_each_vocabulary_that_fits() -> None:
    """1000 MiB / 4 B = 8192 x 32000 = 4096 x 64000 = 1024 x 256000."""
    found = {suggestion.tensor.shape for suggestion in _suggested("1000.00 MiB", "loss")}
    assert found == {(8192, 32000), (4096, 64000), (1024, 256000)}


def test_a_size_that_fits_one_vocabulary_alone_names_it() -> None:
    """16384 x 151936 x 4 B = 9.27 GiB."""
    (found,) = _suggested("9.27 GiB", "loss")
    assert found.tokens == 16384 and {"Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-8B"} <= set(found.models)


def test_vocabularies_that_the_printed_size_cannot_tell_apart_stand_together() -> None:
    """4096 x 151936 x 4 B and 4096 x 152064 x 4 B both print 2.32 GiB."""
    (found,) = _suggested("2.32 GiB", "loss")
    assert not found.alike and {"Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"} <= set(found.models)


def test_a_partition_of_zero_names_the_model_by_the_cards_that_share_it() -> None:
    """6738415616 / 8 x 4 B = 3.14 GiB."""
    (found,) = _suggested("3.14 GiB", "optimizer_step", parallelism="zero2", log__world_size=8)
    assert found.tensor.key == "zero_partition" and "huggyllama/llama-7b" in found.models
    assert not _suggested("3.14 GiB", "optimizer_step", parallelism="zero2")  # among how many cards is not known


def test_a_unit_of_fsdp_is_a_block_with_its_norms() -> None:
    """A report on a 7B model of DeepSeek: 202383360 x 2 B are a little more than 386 MiB, so 388 MiB are asked for."""
    (found,) = _suggested("388.00 MiB", "forward", (TRAINER, GATHERING), parallelism="fsdp")
    assert found.tensor.key == "fsdp_unit" and "deepseek-ai/deepseek-llm-7b-base" in found.models


def test_added_tokens_grow_a_table_beyond_the_published_one() -> None:
    """32001 x 4096 x 4 B take one block more than 500 MiB."""
    first = _suggested("502.00 MiB", "checkpoint_save")[0]
    assert first.tensor.key == "grown_table" and "huggyllama/llama-7b" in first.models


def test_the_code_in_the_traceback_narrows_the_family() -> None:
    qwen = "/env/site-packages/transformers/models/qwen2/modeling_qwen2.py:860 in forward"
    found = _named(_suggested("3.91 GiB", "loss", (TRAINER, qwen)))
    assert not found  # 3.91 GiB are no round number of tokens of Qwen's vocabularies
    llama = "/env/site-packages/transformers/models/llama/modeling_llama.py:709 in forward"
    found = _named(_suggested("3.91 GiB", "loss", (TRAINER, llama)))
    assert LLAMA_3 in found and not any(name.startswith("google/") for name in found)


def test_a_count_of_parameters_narrows_the_models() -> None:
    """13,042,089,985 with an adapter of 26,214,400 and a value head: a Llama of 13B, and no other model of 136 MiB."""
    counts = {"log__all_parameters": 13042089985, "log__trainable_parameters": 26214400}
    found = _named(_suggested("136.00 MiB", "to_device", **counts))
    assert LLAMA_13B in found and all("13b" in name.lower() for name in found)


def test_a_count_of_packed_weights_is_read_as_twice_as_many() -> None:
    """33,251,450,880 less an adapter of 399,769,600 are half of Llama-65B; 22016 x 8192 x 4 B = 688 MiB."""
    unpacking = "/env/site-packages/bitsandbytes/autograd/_functions.py:512 in forward"
    counts = {"log__all_parameters": 33251450880, "log__trainable_parameters": 399769600, "quantization": "nf4"}
    assert "huggyllama/llama-65b" in _named(_suggested("688.00 MiB", "forward", (TRAINER, unpacking), **counts))


def test_the_size_of_an_adapter_narrows_the_models() -> None:
    """Rank 16 on all linear layers of Llama-3-8B: 32 x 16 x (2 x 8192 + 2 x 5120 + 3 x 18432) = 41,943,040."""
    alone = _suggested("3.91 GiB", "loss")
    found = _suggested("3.91 GiB", "loss", log__trainable_parameters=41943040)
    assert LLAMA_3 in _named(found) and len(found) < len(alone)
    assert not any(name.startswith("google/gemma") for name in _named(found))


def test_what_is_loaded_already_rules_out_smaller_models() -> None:
    """86 MiB are 11008 x 4096 x 2 B of a 7B model, 12.6 GiB in all, 11008 x 2048 x 4 B of Qwen2.5-3B, 11.5 GiB in all,
    and 6656 x 6656 x 2 B of a 30B model."""
    assert {"huggyllama/llama-7b", "Qwen/Qwen2.5-3B"} <= _named(_suggested("86.00 MiB", "model_load", allocated=5.0))
    assert _named(_suggested("86.00 MiB", "model_load", allocated=22.0)) == {"huggyllama/llama-30b"}


def test_the_share_of_the_files_that_were_loaded_rules_out_smaller_models() -> None:
    """384 MiB are 24576 x 8192 x 2 B of Qwen-72B, 135 GiB in all, and 16384 x 6144 x 4 B of InternLM2-20B, 74 GiB in
    all. 59.6 GiB after 16 of 38 files make more than 133 GiB."""
    some = _named(_suggested("384.00 MiB", "model_load", allocated=59.6))
    found = _named(_suggested("384.00 MiB", "model_load", allocated=59.6, log__shards=38, log__shards_loaded=16))
    assert {"Qwen/Qwen-72B", "internlm/internlm2-20b"} <= some
    assert "Qwen/Qwen-72B" in found and "internlm/internlm2-20b" not in found


def test_files_of_at_most_ten_gb_rule_out_larger_models() -> None:
    """448 MiB are 28672 x 8192 x 2 B of a 70B model: 131 GiB do not come in two files."""
    assert "meta-llama/Llama-2-70b-hf" in _named(_suggested("448.00 MiB", "model_load", log__shards=15))
    assert "meta-llama/Llama-2-70b-hf" not in _named(_suggested("448.00 MiB", "model_load", log__shards=2))


def test_a_batch_must_divide_the_tokens() -> None:
    """1000 MiB are 8192, 4096 or 1024 tokens: a batch of 3 divides none, one of 2048 the first two."""
    assert _suggested("1000.00 MiB", "loss", per_device_train_batch_size=3) == ()
    assert len(_suggested("1000.00 MiB", "loss", per_device_train_batch_size=2048)) == 2


SILENT = [
    ("2.00 MiB", "model_load", (LOADING,), {}),  # any small tensor
    ("20.00 MiB", "model_load", (LOADING,), {}),
    ("32.00 MiB", "model_load", (LOADING,), {}),  # 4096 x 4096 x 2 B, and eight other shapes
    ("86.00 MiB", "forward", (TRAINER,), {}),  # activations of any width
    ("86.00 MiB", "backward", (TRAINER,), {}),
    ("777.00 MiB", "loss", (TRAINER,), {}),  # nothing
    ("172.00 MiB", "model_load", ("/ultralytics/nn/tasks.py:111 in to",), {}),
    ("172.00 MiB", "to_device", ("/w/sd-scripts/train_network.py:642 in train", TRAINER), {}),
    ("2.32 GiB", "loss", ("/env/transformers/models/whisper/modeling_whisper.py:9 in forward",), {}),
    ("172.00 MiB", "model_load", ("/env/vllm/model_executor/layers/linear.py:199 in create_weights",), {}),
    ("7.81 GiB", "eval", ("/env/transformers/trainer_pt_utils.py:114 in nested_concat",), {}),  # many batches
    ("172.00 MiB", "optimizer_step", (TRAINER,), {"parallelism": "zero3"}),  # a share, of unknown size
    ("3.73 GiB", "engine_init", (TRAINER,), {"parallelism": "zero3", "gpus__count": 2}),  # 1e9 x 4 B, of any model
    ("172.00 MiB", "model_load", (LOADING,), {"quantization": "gptq-int4"}),  # packed integers
    ("172.00 MiB", "model_load", (LOADING,), {"model": "my-own-model"}),  # named, if by nobody known
    ("172.00 MiB", "model_load", (LOADING,), {"architecture__hidden_size": 4096}),
]


@pytest.mark.parametrize(("printed", "phase", "frames", "known"), SILENT)
def test_nothing_is_said_where_the_size_says_too_little(
    printed: str, phase: str, frames: tuple[str, ...], known: dict[str, Any]
) -> None:
    assert _suggested(printed, phase, frames, **known) == ()


def test_host_memory_says_nothing_about_a_tensor() -> None:
    assert suggested(Crash("host_alloc_failed", "model_load", requested_bytes=172 * 1024**2), Facts()) == ()


# Logs without a model, and the model that their expert's answer, their paths or their traceback speak of.
IN_LOGS = {
    "006-alpaca-fsdp-final-save-warning": "huggyllama/llama-7b",  # ./output/alpaca-7b
    "010-lf-zh-rm-13b-to-device-siblings-on-gpu0": LLAMA_13B,
    "110-sagemaker-gemma2-fsdp-algorithm-error": "google/gemma-2-9b",
    "112-xpu-new-format-and-ur-39": "meta-llama/Llama-3.1-8B",
    "logs/pdsh-addresses": "meta-llama/Llama-2-7b-hf",
    "logs/always-the-same-step": "huggyllama/llama-7b",  # modeling_llama.py
    "logs/fsdp-save-fatal": "huggyllama/llama-7b",
    "unseen/007-baichuan-zero3-engine-init-driver-lines": "baichuan-inc/Baichuan-13B-Base",
    "unseen/039-xpu-arc-cross-entropy": "Qwen/Qwen2.5-7B",  # modeling_qwen2.py
    "unseen/119-deepspeed-z2-13b-fp32-partition-init": LLAMA_13B,
    "unseen/130-sagemaker-llama31-own-process-zero-bytes": "meta-llama/Llama-3.1-70B",
    "unseen/052-bnb-quantize-4bit-load": "Qwen/Qwen2.5-7B",  # /root/qwen
}


@pytest.mark.parametrize("log", IN_LOGS)
def test_the_model_of_a_log_that_does_not_name_it_comes_first(log: str) -> None:
    findings = doctor.examine(doctor.read_log(str(CORPUS / f"{log}.log")))
    assert IN_LOGS[log] in findings.suggested[0].models
    assert findings.case.facts.get("model") is None and findings.bill is None  # it is no fact


# Logs that name their model, and whose request is one of its tensors.
NAMED = (
    "001-qlora-65b-a6000-dequant-forward",
    "004-lf-zh-llama7b-full-zero2-v100",
    "008-axolotl-70b-qlora-fsdp-4x3090-backward",
    "unseen/113-lf-70b-pdsh-three-nodes",
)


@pytest.mark.parametrize("log", NAMED)
def test_a_name_that_is_hidden_is_found_again(log: str) -> None:
    case = doctor.read_log(str(CORPUS / f"{log}.log"))
    model = find_model(str(case.facts.get("model"))).name
    known = {key: fact for key, fact in case.facts.won.items() if not key.startswith(("model", "architecture."))}
    assert model in suggested(case.crash, Facts(known))[0].models


NO_LANGUAGE_MODEL = (
    "020-yolo11-ddp-assigner-recovered-then-died",
    "unseen/005-lightning-validation-step",
    "unseen/006-accelerate-load-state-resume",
    "unseen/020-a1111-vae-decode-windows",
    "unseen/023-diffusers-text2img-lora-backward",
    "unseen/024-yolov8-val-nms-eval",
    "unseen/025-mmdet3-assigner-overlaps",
    "unseen/027-nnunetv2-forward-then-workers",
    "unseen/030-whisper-load-model-2gb",
    "unseen/058-fairseq-skipped-batch-finished",
    "unseen/081-open-clip-train-epoch",
    "unseen/086-gsplat-densify-step",
)


@pytest.mark.parametrize("log", NO_LANGUAGE_MODEL)
def test_a_log_of_something_else_gets_no_language_model(log: str) -> None:
    assert doctor.examine(doctor.read_log(str(CORPUS / f"{log}.log"))).suggested == ()


def test_the_question_about_the_model_offers_what_the_size_speaks_for() -> None:
    crash = Crash("cuda_oom", "model_load", requested_bytes=parse_size("448.00 MiB"), frames=(LOADING,))
    (question,) = doctor.examine(Case(crash=crash)).questions
    values = [proposal.value for proposal in question.proposed]
    assert question.key == "model" and question.choices == () and question.default is None
    assert "meta-llama/Llama-2-70b-hf" in values and len(values) <= 8
