"""Which statement counts, what is inferred and why, and what is no evidence at all."""

import time

import pytest

from oomdoctor import knowledge
from oomdoctor.case import Fact, Facts, Text
from oomdoctor.sources.log.evidence import facts_of
from oomdoctor.sources.log.lines import Line
from oomdoctor.texts import render


def lines_of(text: str) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(text.strip("\n").splitlines(), 1)]


def facts(text: str, crash_line: int | None = None) -> Facts:
    return Facts().add(facts_of(lines_of(text), crash_line))


def banner(micro: int, accumulation: int, total: int) -> str:
    return f"""
***** Running training *****
  Num examples = 9,000
  Instantaneous batch size per device = {micro}
  Total train batch size (w. parallel, distributed & accumulation) = {total}
  Gradient Accumulation steps = {accumulation}
"""


def test_a_fact_names_its_line_and_carries_it_as_the_reason() -> None:
    fact = facts("first\n  Instantaneous batch size per device = 6").won["per_device_train_batch_size"]
    assert fact == Fact("per_device_train_batch_size", 6, "log:2", "Instantaneous batch size per device = 6")


def test_the_last_of_several_banners_counts() -> None:
    """auto_find_batch_size starts again with half the batch, after a crash that was survived."""
    assert facts(banner(8, 2, 16) + banner(4, 2, 8)).get("per_device_train_batch_size") == 4


def test_what_is_said_after_the_crash_counts_only_where_nothing_was_said_before() -> None:
    text = banner(4, 2, 8) + "CRASH\n$ python train.py --per_device_train_batch_size 1 --optim sgd\n"
    crash = text.strip("\n").splitlines().index("CRASH") + 1
    assert facts(text, crash).get("per_device_train_batch_size") == 4
    assert facts(text, crash).get("optim") == "sgd"
    assert facts(text).get("per_device_train_batch_size") == 1


def test_a_statement_wins_over_a_hint_wherever_it_stands() -> None:
    """The frame says that checkpointing was in use; the printed argument says how."""
    text = """
$ python train.py --model_name_or_path gpt2 --optim adamw_torch --gradient_checkpointing false
  File "/opt/lib/python3.11/site-packages/torch/utils/checkpoint.py", line 487, in checkpoint
"""
    assert facts(text).get("gradient_checkpointing") == "none"


@pytest.mark.parametrize(("micro", "accumulation", "total", "world"), [(1, 4, 32, 8), (3, 5, 15, 1), (2, 6, 36, 3)])
def test_the_world_size_follows_from_the_banner(micro: int, accumulation: int, total: int, world: int) -> None:
    found = facts(banner(micro, accumulation, total))
    assert found.get("log.world_size") == world
    assert found.get("gpus.count") == world
    assert isinstance(found.won["gpus.count"].reason, Text)


def test_a_banner_that_does_not_divide_gives_no_world_size() -> None:
    assert facts(banner(3, 4, 25)).get("log.world_size") is None


def test_several_processes_without_sharding_are_ddp() -> None:
    assert facts(banner(1, 1, 4)).get("parallelism") == "ddp"


def test_several_processes_under_an_unnamed_zero_stage_are_not_called_ddp() -> None:
    frame = '  File "/opt/lib/python3.11/site-packages/deepspeed/runtime/engine.py", line 2087, in step'
    assert facts(banner(1, 1, 4) + frame).get("parallelism") is None


def test_nodes_times_processes_is_the_world() -> None:
    found = facts("$ torchrun --nnodes 2 --nproc_per_node 4 train.py")
    assert (found.get("log.world_size"), found.get("gpus.count")) == (8, 8)


def test_one_process_that_spreads_a_model_is_not_called_one_card() -> None:
    hook = '  File "/opt/lib/python3.11/site-packages/accelerate/hooks.py", line 165, in new_forward'
    assert facts(banner(1, 4, 4) + hook).get("gpus.count") is None


@pytest.mark.parametrize(
    ("trained", "every", "method"),
    [
        ("41,943,040", "7,283,675,136", "lora"),
        ("6738415616", "6738415616", "full"),
        ("3,000,000,000", "7,000,000,000", None),  # could be anything
    ],
)
def test_the_share_of_trained_parameters_tells_the_method(trained: str, every: str, method: str | None) -> None:
    assert facts(f"trainable params: {trained} || all params: {every} || trainable%: 1").get("method") == method


@pytest.mark.parametrize(
    ("said", "evaluates"),
    [
        ("do_eval=False,\neval_strategy=IntervalStrategy.NO,", False),
        ("do_eval=False,\nevaluation_strategy=no,", False),
        ("do_eval=True,\nevaluation_strategy=IntervalStrategy.STEPS,", True),
        ("eval_strategy=epoch,\ndo_eval=False,", True),  # the strategy turns it on
        ("do_eval=False,\neval_on_start=True,\neval_strategy=no,", True),
        ("do_eval=True,\neval_strategy=no,", True),  # at the end
        ("evaluate_during_training=False,", False),
        ("per_device_eval_batch_size=8,", None),  # a printed default
        ("do_eval=False,\neval_strategy=no,\n)\n***** Running Evaluation *****", True),  # by the script itself
    ],
)
def test_printed_arguments_tell_whether_there_is_an_evaluation(said: str, evaluates: bool | None) -> None:
    text = f"TrainingArguments(\ngradient_accumulation_steps=1,\nper_device_train_batch_size=2,\n{said}\n)"
    assert facts(text).get("do_eval") is evaluates


@pytest.mark.parametrize(
    "said",
    [
        "Some weights of BertForSequenceClassification were not initialized from the model checkpoint at b and are new",
        "[transformers] Qwen2ForTokenClassification LOAD REPORT from: Qwen/Qwen2.5-0.5B",
        'Model config LlamaConfig {\n  "architectures": [\n    "LlamaForSequenceClassification"\n  ],\n'
        '  "hidden_size": 64,\n  "model_type": "llama"\n}',
    ],
)
def test_a_class_with_a_head_that_scores_is_no_language_model(said: str) -> None:
    assert facts(said).get("task") == "classification"
    assert facts(f"{said}\nRewardConfig(\nmax_length=512,\n)").get("task") == "reward"  # what is stated wins
    for other in ("ForSequenceClassification", "ForTokenClassification"):
        said = said.replace(other, "ForCausalLM")
    assert facts(said).get("task") is None


def test_a_printed_config_without_a_hidden_size_is_read_too() -> None:
    found = facts(
        'Model config GPT2Config {\n  "model_type": "gpt2",\n  "n_embd": 192,\n  "n_inner": null,\n  "n_layer": 3\n}'
    )
    assert (found.get("architecture.n_embd"), found.get("architecture.n_layer")) == (192, 3)
    inner = '{\n    "hidden_size": 64,\n    "model_type": "qwen2"\n  }'
    found = facts(f'Model config SomeVLConfig {{\n  "model_type": "some_vl",\n  "text_config": {inner}\n}}')
    assert found.get("architecture.hidden_size") == 64


def test_half_of_the_named_size_means_packed_four_bit_weights() -> None:
    count = "trainable params: 1000 || all params: 33251450880 || trainable%: 0.1"
    assert facts(f"loading base model ./llama-65b-hf...\n{count}").get("quantization") == "nf4"
    assert facts(f"loading base model ./llama-33b-hf...\n{count}").get("quantization") is None
    assert facts(f"loading base model ./mixtral-8x7b...\n{count}").get("quantization") is None


def test_four_bit_is_said_as_exactly_as_the_log_says_it() -> None:
    command = "$ python t.py --model_name_or_path m --load_in_4bit"
    assert facts(command).get("quantization") == "nf4"
    assert facts(f"{command} --bnb_4bit_use_double_quant true").get("quantization") == "nf4-double"
    assert facts(f"{command} --bnb_4bit_quant_type fp4").get("quantization") == "fp4"


def test_a_four_bit_kind_without_four_bit_loading_is_only_a_default() -> None:
    text = "ModelConfig(model_name_or_path='m', load_in_8bit=False, load_in_4bit=False, bnb_4bit_quant_type='nf4')"
    assert facts(text).get("quantization") == "none"


def test_the_checkpoints_dtype_is_the_loaded_one_from_transformers_5_on_only() -> None:
    config = (
        'Model config LlamaConfig {{\n  "model_type": "llama",\n  "hidden_size": 64,\n  "dtype": "bfloat16",\n'
        '  "transformers_version": "{}"\n}}'
    )
    assert facts(config.format("5.1.0")).get("torch_dtype") == "bfloat16"
    assert facts(config.format("4.57.0")).get("torch_dtype") is None


def test_host_memory_follows_from_what_is_used_and_its_share() -> None:
    found = facts("CPU Virtual Memory:  used = 32.0 GB, percent = 25.0%")
    assert found.get("host_ram_gib") == 128.0


def test_source_and_target_lengths_add_up() -> None:
    assert facts("$ python t.py --source_max_len 700 --target_max_len 324").get("max_length") == 1024


def test_the_outermost_framework_is_the_one_to_edit() -> None:
    frames = ["transformers/trainer.py", "llamafactory/train/sft/trainer.py", "trl/trainer/sft_trainer.py"]
    text = "\n".join(f'  File "/opt/lib/python3.11/site-packages/{path}", line 9, in f' for path in frames)
    found = facts(text)
    assert (found.get("framework"), found.get("task")) == ("llamafactory", "sft")


def test_two_models_configs_are_not_mixed() -> None:
    config = 'Model config LlamaConfig {{\n  "model_type": "llama",\n  "hidden_size": {},\n  "{}": 7\n}}\n'
    found = facts(config.format(4096, "num_hidden_layers") + config.format(2048, "vocab_size"))
    assert (found.get("architecture.hidden_size"), found.get("architecture.vocab_size")) == (4096, None)


def test_settings_of_many_ranks_are_said_once() -> None:
    text = "\n".join(["  Instantaneous batch size per device = 6"] * 50)
    assert len([fact for fact in facts_of(lines_of(text)) if fact.key == "per_device_train_batch_size"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The best per_device_train_batch_size: 8 is one that fits, said the assistant.",
        "### Instruction: set gradient_checkpointing = True and lora_r=16 in your script",
        '{"instruction": "What is CUDA?", "output": "Use --bf16 to save memory."}',
        "inputs: how do I pass --load_in_4bit",
        "My GPU is an NVIDIA GeForce RTX 3090 with 24 GB.",
        "In the banner you will see Instantaneous batch size per device = 8 and more",
        "He trained with trainable params: 5 || all params: 10 || trainable%: 50",
        "def __init__(self, per_device_train_batch_size: int = 8, gradient_accumulation_steps: int = 1):",
        "---> 12     per_device_train_batch_size=8, gradient_accumulation_steps=2,",
        "     12     per_device_train_batch_size=8, gradient_accumulation_steps=2,",
        "    return LoraConfig(lora_alpha=16, target_modules=modules, r=rank)",
        "base_model: the foundation that adapters are trained on",
        "Tesla announced that GPU 0: is the fastest",
        "Loading checkpoint shards: they are loaded one by one",
        "epoch: 3\nname: foo\nnote: a yaml file without any training key",
        "quantization: a way to save memory\nlora: another",
    ],
)
def test_text_that_only_speaks_of_settings_states_nothing(text: str) -> None:
    assert facts_of(lines_of(text)) == []


@pytest.mark.parametrize(
    "line",
    [
        "per_device_train_batch_size='" + "(a='" * 4000,
        "--per_device_train_batch_size " + "'\"" * 8000,
        '{"per_device_train_batch_size": ' * 500,
        "Config { " + "{" * 15000,
        "[" * 15000 + "zero_optimization",
        " " * 15000 + "%|" * 500,
        "trainable params: " + "9," * 7000,
        "CUDA_VISIBLE_DEVICES=" + "0," * 7000,
        "with config: model=" + "tensor_parallel_size=" * 700,
    ],
)
def test_hostile_lines_are_read_in_bounded_time(line: str) -> None:
    """The best of three counts. A second is twice what the slowest takes; a pattern that runs away takes minutes."""
    seconds = 60.0
    for _ in range(3):
        start = time.process_time()
        facts_of([Line(number, line) for number in range(50)])
        seconds = min(seconds, time.process_time() - start)
        if seconds < 1:
            return
    assert seconds < 1


def test_huge_numbers_and_odd_values_are_no_facts() -> None:
    text = (
        "$ python t.py --per_device_train_batch_size 0 --optim adamw_torch --gradient_accumulation_steps 1e400 --bf16 x"
    )
    found = facts(text)
    assert found.get("optim") == "adamw_torch"
    assert found.get("per_device_train_batch_size") is None
    assert found.get("gradient_accumulation_steps") is None
    assert found.get("mixed_precision") is None


def test_every_reason_in_words_is_there_in_both_languages() -> None:
    """The values are those of the inferences above; a missing placeholder would raise."""
    values = {"total": 8, "micro": 2, "steps": 4, "count": 3, "trained": 5, "all": 10, "share": 0.1, "size": "7",
              "source": 1, "target": 2, "used": 3.0, "version": "5.0", "method": "GPTQ", "bits": 4,
              "first": 5, "last": 9, "from": 3, "to": 8, "figures": 6, "step": 30, "line": 7, "good": 25}  # fmt: skip
    names = [name for name in knowledge.load("texts") if name.startswith("evidence.")]
    assert names
    assert all(render(Text(f"texts/{name}", values), lang) for name in names for lang in ("en", "zh"))
