"""A crash is a measurement: it disproves assumptions, lengthens guesses, and what is unexplained is carried on."""

from typing import Any

import pytest

from oomdoctor import calibration, doctor, inference
from oomdoctor.case import Case, Crash, Fact, Facts, Text
from oomdoctor.diagnosis import allocated_at, lines_at
from oomdoctor.doctor import Findings
from oomdoctor.memory.lines import Line, Range
from oomdoctor.texts import render
from oomdoctor.units import GIB, MIB
from tests.memory.arithmetic import added_up

RUN = {
    "model": "meta-llama/Llama-2-7b-hf",
    "method": "lora",
    "mixed_precision": "bf16",
    "optim": "adamw_torch",
    "per_device_train_batch_size": 1,
    "gradient_checkpointing": "none",
    "attn_implementation": "sdpa",
    "gpus.memory_mib": 24136,
}


def _crash(**changes: Any) -> Crash:
    figures = {
        "requested_bytes": 86 * MIB,
        "allocated_bytes": round(22.38 * GIB),
        "free_bytes": 42 * MIB,
        "total_bytes": 24136 * MIB,
        "own_process_bytes": 23 * GIB,
    }
    return Crash("cuda_oom", **{"phase": "forward", "line": 5, **figures, **changes})


def _examined(crash: Crash | None, **facts: Any) -> Findings:
    known = {**RUN, **{key.replace("__", "."): value for key, value in facts.items()}}
    return doctor.examine(Case(crash=crash).know(Fact(key, value, "set") for key, value in known.items()))


def test_float32_is_disproved_where_less_was_in_use_than_such_weights_take() -> None:
    """Llama-2-7B in float32 is 25.1 GiB; 22.4 GiB were in use in the forward pass, so it was not."""
    findings = _examined(_crash(), versions__transformers="4.46.3", max_length=1024)
    fact = findings.case.facts.won["torch_dtype"]
    assert (fact.value, fact.source) == ("bfloat16", "log:5")


def test_a_stated_dtype_is_not_second_guessed() -> None:
    findings = _examined(_crash(), torch_dtype="float32", max_length=1024)
    assert findings.case.facts.get("torch_dtype") == "float32"


def test_while_loading_less_in_use_proves_nothing() -> None:
    facts = Facts().add([Fact("torch_dtype", "float32", "assumed")])
    loading = _crash(phase="model_load", allocated_bytes=10 * GIB)
    assert inference.lighter_weights(facts, loading, lambda settings: 25 * GIB) is None


def test_a_guessed_length_grows_until_it_explains_the_crash() -> None:
    findings = _examined(_crash(allocated_bytes=38 * GIB, total_bytes=40 * GIB), torch_dtype="bfloat16")
    fact = findings.case.facts.won["max_length"]
    assert fact.assumed and int(str(fact.value)) > 2048
    assert findings.bill is not None
    assert findings.bill.allocated.likely >= 38 * GIB


def test_logits_of_an_odd_length_tell_it_where_as_much_was_in_use() -> None:
    """4 x 777 tokens x 32000 words x 4 B = 379.4 MiB, which the allocator asks for as 380: 774 to 778 tokens."""
    known = {"per_device_train_batch_size": 4, "torch_dtype": "bfloat16"}
    bill = _examined(None, **known, max_length=777).bill
    assert bill is not None
    crash = _crash(requested_bytes=380 * MIB, allocated_bytes=allocated_at(bill, "forward"))
    fact = _examined(crash, **known).case.facts.won["max_length"]
    assert fact.assumed and 774 <= int(str(fact.value)) <= 778


# An encoder of 192 numbers a token, whose MLP has 768, with 4096 words: BertConfig's own names.
ENCODER = {"model_type": "bert", "hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 12,
           "intermediate_size": 768, "vocab_size": 4096, "max_position_embeddings": 4096}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "facts", "frame", "length"),
    [
        # 12 x 1024 x 1024 tokens x 4 B: the mask of a padded batch; 12 x 256 tokens x 4096 words x 4 B are as much
        (48 * MIB, {"mixed_precision": "no"}, "integrations/sdpa_attention.py:99 in sdpa_attention_forward", 1024),
        # 12 x 1024 tokens x 768 x 4 B
        (36 * MIB, {"mixed_precision": "no"}, "models/bert/modeling_bert.py:340 in forward", 1024),
        # 12 x 1024 tokens x 768 x 2 B under autocast; 12 x 192 tokens x 4096 words x 2 B are as much
        (18 * MIB, {"mixed_precision": "bf16"}, "models/bert/modeling_bert.py:340 in forward", 1024),
    ],
)
def test_a_model_that_scores_samples_makes_no_logits_of_words(
    asked: int, facts: dict[str, Any], frame: str, length: int
) -> None:
    """What a request says of the length rests on what the run can have asked for."""
    run = {"method": "full", "task": "classification", "torch_dtype": "float32", "gradient_checkpointing": "none",
           "per_device_train_batch_size": 12, "optim": "adamw_torch", "attn_implementation": "sdpa"}  # fmt: skip
    known = {**run, **{f"architecture.{key}": value for key, value in ENCODER.items()}, **facts}
    crash = _crash(requested_bytes=asked, allocated_bytes=500 * MIB, frames=(frame,))
    findings = doctor.examine(Case(crash=crash).know(Fact(key, value, "set") for key, value in known.items()))
    assert findings.case.facts.get("max_length") == length


@pytest.mark.parametrize(
    ("frame", "length"), [("modeling_llama.py:480 in forward", 384), ("x.py:1 in nested_concat", 2048)]
)
def test_the_logits_of_an_evaluation_tell_the_length_where_they_are_those_of_one_batch(frame: str, length: int) -> None:
    """4 x 384 tokens x 32000 words x 4 B are 187.5 MiB, for which the allocator asks 188; joined ones are several."""
    crash = _crash(phase="eval", requested_bytes=188 * MIB, allocated_bytes=13 * GIB, frames=(frame,))
    known = {"torch_dtype": "bfloat16", "framework": "transformers", "per_device_eval_batch_size": 4, "do_eval": True}
    found = int(str(_examined(crash, **known).case.facts.get("max_length")))
    assert found == pytest.approx(length, rel=0.02)


def test_a_round_length_of_a_narrow_tensor_must_agree_with_what_was_in_use() -> None:
    """60 MiB are 8 x 7680 tokens x 512 x 2 B of an MLP, which would have 5 GiB in use, and 8 x 240 tokens x 8192 words
    x 4 B; 257 MiB were in use in backward."""
    run = {"method": "full", "torch_dtype": "bfloat16", "mixed_precision": "no", "gradient_checkpointing": "none",
           "per_device_train_batch_size": 8, "optim": "adamw_torch", "attn_implementation": "sdpa"}  # fmt: skip
    shape = {"model_type": "gpt2", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
             "vocab_size": 8192, "intermediate_size": 512}  # fmt: skip
    known = {**run, **{f"architecture.{key}": value for key, value in shape.items()}}
    crash = _crash(phase="backward", requested_bytes=60 * MIB, allocated_bytes=257 * MIB)
    findings = doctor.examine(Case(crash=crash).know(Fact(key, value, "set") for key, value in known.items()))
    assert findings.case.facts.get("max_length") == 240


def test_a_block_of_20_mib_stands_for_any_small_tensor_and_tells_no_length() -> None:
    """1 x 5120 tokens x 1024 words x 4 B are 20 MiB too, and so is anything from 1 to 10 MiB."""
    crash = _crash(requested_bytes=20 * MIB, allocated_bytes=2 * GIB)
    facts = {**RUN, "model": None, "architecture.hidden_size": 256, "architecture.num_hidden_layers": 2,
             "architecture.num_attention_heads": 4, "architecture.vocab_size": 1024, "torch_dtype": "bfloat16",
             "architecture.model_type": "llama", "architecture.intermediate_size": 688}  # fmt: skip
    known = [Fact(key, value, "set") for key, value in facts.items() if value is not None]
    assert doctor.examine(Case(crash=crash).know(known)).case.facts.get("max_length") != 5120


@pytest.mark.parametrize(("stated", "least", "most"), [(True, 320, 384), (False, 2048, 2048)])
def test_a_guess_far_above_what_was_in_use_gives_way_where_the_settings_are_stated(
    stated: bool, least: int, most: int
) -> None:
    """Died in backward with what 350 tokens need on the card; whether blocks are recomputed must be known for that."""
    known = {"per_device_train_batch_size": 8, "torch_dtype": "bfloat16"}
    bill = _examined(None, **known, max_length=350).bill
    assert bill is not None
    asked = 20 * MIB  # any small tensor
    crash = _crash(phase="backward", requested_bytes=asked, allocated_bytes=allocated_at(bill, "backward") - asked)
    facts = {**RUN, **known}
    facts = facts if stated else {key: value for key, value in facts.items() if key != "gradient_checkpointing"}
    findings = doctor.examine(Case(crash=crash).know(Fact(key, value, "set") for key, value in facts.items()))
    assert least <= int(str(findings.case.facts.get("max_length"))) <= most


@pytest.mark.parametrize("parallelism", ["none", "zero2"])
def test_in_the_first_step_no_optimizer_states_are_there_yet(parallelism: str) -> None:
    """Of what 384 tokens need in backward in a later step, the states are missing in the first, but for DeepSpeed's."""
    known = {"per_device_train_batch_size": 8, "torch_dtype": "bfloat16", "method": "full", "parallelism": parallelism}
    bill = _examined(None, **known, max_length=384).bill
    assert bill is not None
    states = sum(line.size.likely for line in lines_at(bill, "backward") if line.key == "optimizer_states")
    asked = 20 * MIB  # any small tensor
    in_use = allocated_at(bill, "backward") - asked - (states if parallelism == "none" else 0)
    crash = _crash(phase="backward", requested_bytes=asked, allocated_bytes=in_use, step=0)
    assert states > 20 * GIB
    assert 384 <= int(str(_examined(crash, **known).case.facts.get("max_length"))) <= 416


def test_what_is_unexplained_shrinks_with_the_batch_and_may_be_something_else() -> None:
    """600 MiB beyond a batch that took 8 GiB: 150 MiB are left of it where the batch takes 2, or all of it."""
    line = Line("unexplained", Range(600, 600, 600), Text("texts/bill.source_crash"), Text("texts/bill.source_crash"))
    assert calibration.shrunk(line, 8 * GIB, 2 * GIB).size == Range(150, 150, 600)
    assert calibration.shrunk(line, 8 * GIB, 9 * GIB) == line


def test_a_known_length_is_kept_and_the_rest_is_carried_as_unexplained() -> None:
    findings = _examined(_crash(allocated_bytes=38 * GIB, total_bytes=40 * GIB), torch_dtype="bfloat16", max_length=512)
    assert findings.bill is not None
    assert findings.bill.line("unexplained") > 15 * GIB
    assert findings.bill.allocated.likely >= 38 * GIB + 86 * MIB


def test_a_run_that_died_does_not_fit_whatever_the_bill_says() -> None:
    """By the bill alone 512 tokens fit 24 GiB easily; the crash says that they did not."""
    findings = _examined(
        _crash(allocated_bytes=15 * GIB, own_process_bytes=None), torch_dtype="bfloat16", max_length=512
    )
    assert findings.plan is not None
    assert findings.plan.steps


def test_a_failure_that_was_survived_does_not_force_the_bill() -> None:
    findings = _examined(_crash(fatal=False, allocated_bytes=13 * GIB), torch_dtype="bfloat16", max_length=512)
    assert findings.bill is not None
    assert findings.bill.line("unexplained") == 0


def test_a_measured_peak_below_the_bill_never_makes_the_need_negative() -> None:
    """30 GiB were read off a run that the bill puts at 130: its activations are that much smaller, at any batch."""
    known = {"per_device_train_batch_size": 16, "max_length": 2048, "torch_dtype": "bfloat16"}
    findings = _examined(None, measured__allocated_gib=30, **known)
    assert findings.bill is not None and findings.plan is not None
    assert findings.bill.line("activations") > 0
    for step in findings.plan.steps:
        assert step.bill_after is not None and step.bill_after.allocated.likely > 12.5 * GIB  # the weights remain


@pytest.mark.parametrize("measured", [14.0, 20.0])
def test_a_measured_peak_corrects_in_both_directions(measured: float) -> None:
    findings = _examined(None, torch_dtype="bfloat16", max_length=1024, measured__allocated_gib=measured)
    assert findings.bill is not None
    assert findings.bill.allocated.likely == pytest.approx(measured * GIB, rel=0.001)


@pytest.mark.parametrize(
    ("crash", "facts"),
    [
        (_crash(allocated_bytes=38 * GIB, total_bytes=40 * GIB), {}),
        (_crash(allocated_bytes=15 * GIB, own_process_bytes=None), {}),
        (None, {"measured__allocated_gib": 20.0}),
    ],
    ids=["beyond the bill", "did not fit", "measured"],
)
def test_what_is_unexplained_adds_up_and_says_where_it_comes_from(crash: Crash | None, facts: dict[str, Any]) -> None:
    findings = _examined(crash, torch_dtype="bfloat16", max_length=512, **facts)
    assert findings.bill is not None
    line = next(line for line in findings.bill.lines if line.key == "unexplained")
    for lang in ("en", "zh"):
        assert added_up(render(line.formula, lang)) == pytest.approx(line.size.likely, abs=0.02 * GIB)
        assert render(line.source, lang)


def test_a_weight_asked_for_in_four_bytes_while_loading_means_float32() -> None:
    """11008 x 4096 x 4 B = 172 MiB: an MLP weight of Llama-2-7B that is being loaded in float32."""
    crash = _crash(phase="model_load", requested_bytes=172 * MIB, allocated_bytes=round(23.2 * GIB))
    findings = _examined(crash, versions__transformers="5.2.0", max_length=1024)
    fact = findings.case.facts.won["torch_dtype"]
    assert (fact.value, fact.source) == ("float32", "log:5")
    assert findings.plan is not None
    assert "fp32-load" in findings.plan.rules


@pytest.mark.parametrize(("asked", "dtype"), [(172, "float32"), (86, "bfloat16")])
def test_a_4bit_weight_unpacked_to_four_bytes_tells_the_compute_dtype(asked: int, dtype: str) -> None:
    """11008 x 4096 x 4 B = 172 MiB, asked for within bitsandbytes: bnb_4bit_compute_dtype was left at float32."""
    frame = "/venv/lib/python3.11/site-packages/bitsandbytes/autograd/_functions.py:512 in forward"
    crash = _crash(requested_bytes=asked * MIB, allocated_bytes=12 * GIB, frames=("train.py:9 in main", frame))
    findings = _examined(crash, quantization="nf4", per_device_train_batch_size=8, max_length=2048)
    assert findings.case.facts.get("bnb_4bit_compute_dtype") == dtype
    assert findings.plan is not None
    assert ("compute-in-16-bits" in findings.plan.rules) == (dtype == "float32")


@pytest.mark.parametrize(
    ("facts", "least"),
    [
        ({"gpus.memory_mib": 81050}, 8.0),  # 79.15 GiB: A100, A800, H100 and H800 have it
        ({"gpus.memory_mib": 22731}, 8.6),  # 22.2 GiB: A10, A10G and L4
        ({"gpus.memory_mib": 24247}, None),  # 23.68 GiB: a TITAN RTX (7.5) or an RTX 3090 (8.6)
        ({"gpus.memory_mib": 24247, "attn_implementation": "flash_attention_2"}, 8.0),  # an A30 at least
        ({"gpus.memory_mib": 32510, "mixed_precision": "bf16"}, 8.9),  # not the V100 of that size
        ({"gpus.memory_mib": 32510, "mixed_precision": "fp16"}, None),
        ({}, None),
    ],
)
def test_a_card_without_a_name_can_do_what_all_of_its_size_can(facts: dict[str, Any], least: float | None) -> None:
    found = inference.capability(Facts().add(Fact(key, value, "log:3") for key, value in facts.items()), None)
    assert [(fact.value, fact.source) for fact in found] == ([] if least is None else [(least, "assumed")])


def test_a_card_of_another_maker_has_no_compute_capability() -> None:
    facts = Facts().add([Fact("gpus.memory_mib", 81050, "log:3"), Fact("mixed_precision", "bf16", "log:1")])
    assert inference.capability(facts, _crash()._replace(kind="hip_oom")) == []


def test_what_lies_outside_of_torch_is_what_the_message_shows() -> None:
    """23 GiB of the process - (22.38 GiB allocated + 100 MiB idle) = 0.5223 GiB: the CUDA context."""
    crash = _crash(reserved_unallocated_bytes=100 * MIB)
    fact = calibration.outside_of_torch(crash)
    assert fact is not None and fact.value == 0.5223
    case = Case(crash=crash).know([*(Fact(key, value, "set") for key, value in RUN.items()), fact])
    bill = doctor.examine(case).bill
    assert bill is not None and bill.line("context") == round(0.5223 * GIB)
    assert sum(line.size.likely for line in bill.lines) == bill.device.likely


@pytest.mark.parametrize("own", [None, 0, 22 * GIB])
def test_a_message_that_cannot_know_its_process_says_nothing_of_the_context(own: int | None) -> None:
    """Containers may show 0 bytes or less than torch itself has in use."""
    assert calibration.outside_of_torch(_crash(own_process_bytes=own, reserved_unallocated_bytes=0)) is None


PACKAGES = "/env/site-packages"
MODULE, TENSOR = f"{PACKAGES}/torch/nn/modules/module.py:1778 in _call", f"{PACKAGES}/torch/_tensor.py:623 in back"


@pytest.mark.parametrize(
    ("frames", "framework"),
    [
        (("/home/me/train.py:40 in main", TENSOR), "pytorch"),
        (("/home/me/t.py:38 in main", MODULE, f"{PACKAGES}/accelerate/utils/operations.py:8 in f"), "accelerate"),
        ((f"{PACKAGES}/fire/core.py:1 in Fire", "/home/me/train.py:38 in main", MODULE), "pytorch"),
        (("/home/me/t.py:9 in main", f"{PACKAGES}/transformers/trainer.py:1576 in train", TENSOR), None),
        (("/home/me/t.py:9 in main", f"{PACKAGES}/transformers/trainer.py:1576 in train",
          "/home/me/t.py:4 in compute_loss", MODULE), None),
        (("/home/me/my_trainer.py:9 in step", MODULE), None),  # it may wrap anything
        ((TENSOR,), None),
        ((), None),
    ],
)  # fmt: skip
def test_a_script_that_runs_the_model_itself_has_no_trainer(frames: tuple[str, ...], framework: str | None) -> None:
    crash = _crash(phase="backward", frames=frames)
    found = [fact.value for fact in inference.loop_of_its_own(crash, "transformers")]
    assert found == ([framework] if framework else [])
    assert inference.loop_of_its_own(crash, "trl") == inference.loop_of_its_own(None, "transformers") == []


def test_a_crash_in_an_evaluation_proves_it_whatever_the_arguments_say() -> None:
    crash = _crash(phase="eval", proof={"phase": 4})
    assert inference.evaluates(crash)[0][:3] == ("do_eval", True, "log:4")
    assert inference.evaluates(_crash()) == inference.evaluates(None) == []
    said = Fact("do_eval", False, "config:train.yaml:3")
    assert inference.is_disproved(said, crash)
    assert not inference.is_disproved(said, _crash()) and not inference.is_disproved(said._replace(value=True), crash)


def test_a_count_of_trained_parameters_gives_rank_and_targets() -> None:
    """Mistral-7B with rank 16 on all linear layers: 32 x 16 x (2 x 8192 + 2 x 5120 + 3 x 18432) = 41,943,040."""
    facts = {**RUN, "model": "mistralai/Mistral-7B-v0.1", "log.trainable_parameters": 41943040}
    findings = doctor.examine(Case().know(Fact(key, value, "log:2") for key, value in facts.items()))
    assert findings.case.facts.get("lora.r") == 16
    assert findings.case.facts.get("lora.target_modules") == ("all-linear",)
    assert findings.bill is not None and findings.bill.trainable_parameters == 41943040


LLAMA2_7B, TABLE = 6_738_415_616, 32000 * 4096
PER_RANK = 32 * 2 * (4096 + 4096)  # of Llama-2-7B's queries and values


def _of_count(count: int, **facts: Any) -> Facts:
    """What is taken of Llama-2-7B where the log counts so many trained parameters and says nothing of the method."""
    run = {key: value for key, value in RUN.items() if key != "method"}
    known = {**run, "log.trainable_parameters": count, **{key.replace("__", "."): facts[key] for key in facts}}
    findings = doctor.examine(Case().know(Fact(key, value, "log:9") for key, value in known.items()), with_plan=False)
    if "parallelism" not in facts:
        assert findings.bill is not None and findings.bill.trainable_parameters == pytest.approx(count, rel=0.05)
    return findings.case.facts


def test_a_count_far_below_all_weights_is_an_adapter() -> None:
    """SFTTrainer with a peft_config prints `Number of trainable parameters` alone: 8 x 524,288 = 4,194,304."""
    facts = _of_count(8 * PER_RANK)
    assert facts.won["method"][:3] == ("method", "lora", "log:9")
    assert (facts.get("lora.r"), facts.get("lora.target_modules")) == (8, ("q", "v"))


def test_a_count_of_all_weights_is_full_training() -> None:
    assert _of_count(LLAMA2_7B).won["method"][:3] == ("method", "full", "log:9")
    padded = LLAMA2_7B + 2 * 8 * 4096  # eight words were added to both tables
    assert _of_count(padded).won["method"][:3] == ("method", "full", "log:9")


def test_tables_trained_beside_an_adapter_are_seen_in_its_count() -> None:
    facts = _of_count(16 * PER_RANK + 2 * TABLE)
    assert facts.get("lora.modules_to_save") == ("embed_tokens", "lm_head") and facts.won["lora.r"].assumed
    assert (facts.get("method"), facts.get("lora.r"), facts.get("lora.target_modules")) == ("lora", 16, ("q", "v"))


def test_a_count_that_no_adapter_has_gives_the_rank_that_comes_nearest() -> None:
    """10,000,000 / 524,288 = 19.07."""
    facts = _of_count(10_000_000)
    assert facts.won["method"].assumed and facts.get("method") == "lora"
    assert facts.won["lora.r"].assumed and facts.get("lora.r") == 19


def test_a_count_of_more_than_half_decides_nothing() -> None:
    """Embeddings may be frozen, or a tower: all weights stay assumed."""
    case = Case().know(Fact(key, value, "log:9") for key, value in RUN.items() if key != "method")
    case = case.know([Fact("log.trainable_parameters", 5_000_000_000, "log:9")])
    method = doctor.examine(case, with_plan=False).case.facts.won["method"]
    assert method.assumed and method.value == "full"


def test_a_stated_method_is_not_judged_by_the_count() -> None:
    known = {**RUN, "method": "full", "log.trainable_parameters": 8 * PER_RANK}
    case = Case().know(Fact(key, value, "set") for key, value in known.items())
    assert doctor.examine(case, with_plan=False).case.facts.won["method"][:3] == ("method", "full", "set")


def test_under_fsdp_each_process_counts_its_own_part() -> None:
    """An eighth of Llama-2-7B on each of eight cards is all of it."""
    facts = _of_count(LLAMA2_7B // 8, parallelism="fsdp", gpus__count=8)
    assert facts.won["method"][:3] == ("method", "full", "log:9")
    assert _of_count(8 * PER_RANK // 8, parallelism="fsdp", gpus__count=8).get("method") == "lora"


def test_a_head_in_place_of_the_output_layer_is_classification() -> None:
    """Two labels: 6,738,415,616 - 32000 x 4096 + 2 x 4096."""
    facts = _of_count(LLAMA2_7B - TABLE + 2 * 4096)
    assert (facts.get("task"), facts.get("method")) == ("classification", "full")
    assert _of_count(8 * PER_RANK).get("task") == "sft"


def test_a_head_is_counted_beside_adapters_or_alone() -> None:
    """PEFT saves a classifier of BERT: 8 x 12 x 2 x (768 + 768) + 2 x 768 + 2 = 296,450; 1,538 is that head alone."""
    counted = {"model": "google-bert/bert-base-uncased", "task": "classification"}
    facts = _of_count(296_450, **counted)
    assert (facts.get("method"), facts.get("lora.r"), facts.get("lora.target_modules")) == ("lora", 8, ("q", "v"))
    known = {key: value for key, value in RUN.items() if key != "method"}
    known |= {**counted, "log.trainable_parameters": 1538}
    case = Case().know(Fact(key, value, "log:9") for key, value in known.items())
    assert doctor.examine(case, with_plan=False).case.facts.get("method") == "freeze"


def test_a_model_without_queries_of_their_own_has_its_own_targets() -> None:
    """PEFT adapts c_attn of GPT-2: 8 x 12 x (768 + 3 x 768) = 294,912; it has no module named q or v."""
    facts = _of_count(294_912, model="openai-community/gpt2")
    assert (facts.get("method"), facts.get("lora.r"), facts.get("lora.target_modules")) == ("lora", 8, ("c_attn",))
    known = {**RUN, "model": "openai-community/gpt2"}
    case = Case().know(Fact(key, value, "set") for key, value in known.items())
    assert doctor.examine(case, with_plan=False).case.facts.get("lora.target_modules") == ("c_attn",)


def test_a_word_of_bitsandbytes_quantizer_means_four_bits_until_somebody_says_more() -> None:
    case = Case().know([Fact("log.bitsandbytes_layers", True, "log:3"), Fact("model", RUN["model"], "log:1")])
    fact = doctor.examine(case, with_plan=False).case.facts.won["quantization"]
    assert (fact.value, fact.assumed) == ("nf4", True)


def test_a_request_of_whole_tokens_gives_the_length() -> None:
    """560 MiB = 4 x 5120 tokens x 14336 x 2 B: an activation of Mistral's MLP, and none of its weights."""
    crash = _crash(requested_bytes=560 * MIB, allocated_bytes=38 * GIB, total_bytes=40 * GIB, own_process_bytes=None)
    facts = {**RUN, "model": "mistralai/Mistral-7B-v0.1", "per_device_train_batch_size": 4}
    findings = doctor.examine(Case(crash=crash).know(Fact(key, value, "set") for key, value in facts.items()))
    assert findings.case.facts.get("max_length") == 5120
