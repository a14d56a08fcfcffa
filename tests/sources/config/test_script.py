"""Python scripts, read by their syntax tree alone."""

import time
from pathlib import Path
from textwrap import dedent

import pytest

from oomdoctor.case import Facts, UserError, Value
from oomdoctor.sources.config.reader import Configs, read_configs


def _read(folder: Path, script: str, name: str = "train.py") -> tuple[dict[str, Value], Configs]:
    path = folder / name
    path.write_text(dedent(script), encoding="utf-8")
    configs = read_configs([str(path)])
    return dict(Facts().add(configs.facts).values()), configs


QLORA = """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from peft import LoraConfig, prepare_model_for_kbit_training
    from trl import SFTTrainer, SFTConfig

    MODEL = "meta-llama/Llama-2-7b-hf"
    bnb = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)
    model = AutoModelForCausalLM.from_pretrained(MODEL, quantization_config=bnb, torch_dtype=torch.bfloat16)
    model.config.use_cache = False
    model = prepare_model_for_kbit_training(model)
    lora = LoraConfig(r=8 * 2, lora_alpha=32, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
    args = SFTConfig(output_dir="o", per_device_train_batch_size=2, max_length=1024, bf16=True,
                     gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})
    trainer = SFTTrainer(model=model, args=args, train_dataset=data, peft_config=lora)
"""


def test_a_qlora_script(tmp_path: Path) -> None:
    facts, configs = _read(tmp_path, QLORA)
    assert not configs.unread
    expected = {
        "framework": "trl", "task": "sft", "model": "meta-llama/Llama-2-7b-hf", "method": "lora", "lora.r": 16,
        "lora.target_modules": ("q_proj", "v_proj"), "quantization": "nf4-double", "kbit_prepare": True,
        "torch_dtype": "bfloat16", "per_device_train_batch_size": 2, "max_length": 1024, "mixed_precision": "bf16",
        "gradient_checkpointing": "full", "use_reentrant": False, "use_cache": False,
    }  # fmt: skip
    assert {key: facts.get(key) for key in expected} == expected


def test_a_config_that_no_model_is_given_says_nothing(tmp_path: Path) -> None:
    facts, _ = _read(tmp_path, QLORA.replace("quantization_config=bnb, ", "").replace(", peft_config=lora", ""))
    assert "quantization" not in facts and "method" not in facts


def test_four_bits_without_a_type_are_fp4(tmp_path: Path) -> None:
    script = QLORA.replace(', bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True', "")
    assert _read(tmp_path, script)[0]["quantization"] == "fp4"


def test_defaults_of_argparse_and_dataclasses_are_followed(tmp_path: Path) -> None:
    script = """
        import argparse
        from dataclasses import dataclass, field
        from transformers import TrainingArguments, HfArgumentParser

        @dataclass
        class ModelArguments:
            accumulation: int = field(default=8, metadata={"help": "steps"})

        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=4)
        parser.add_argument("--checkpointing", action="store_true")
        args = parser.parse_args()
        model_args = HfArgumentParser(ModelArguments).parse_args_into_dataclasses()[0]
        TrainingArguments("out", per_device_train_batch_size=args.batch_size,
                          gradient_accumulation_steps=model_args.accumulation,
                          gradient_checkpointing=args.checkpointing)
    """
    facts, _ = _read(tmp_path, script)
    assert facts["per_device_train_batch_size"] == 4
    assert facts["gradient_accumulation_steps"] == 8
    assert facts["gradient_checkpointing"] == "none"
    (tmp_path / "run.sh").write_text("python train.py --batch-size 16 --checkpointing\n")
    facts = dict(Facts().add(read_configs([str(tmp_path / "run.sh")]).facts).values())
    assert facts["per_device_train_batch_size"] == 16 and facts["gradient_checkpointing"] == "full"


def test_parameters_and_conditions_leave_the_key_unknown_with_its_line(tmp_path: Path) -> None:
    script = """\
        from transformers import TrainingArguments
        def build(steps, model, big):
            if big:
                model.gradient_checkpointing_enable()
            return TrainingArguments("out", gradient_accumulation_steps=steps,
                                     per_device_train_batch_size=2 if big else 4, optim="sgd")
    """
    facts, configs = _read(tmp_path, script)
    assert facts["optim"] == "sgd"
    unread = {each.key: int(each.source.rpartition(":")[2]) for each in configs.unread}
    expected = {"gradient_accumulation_steps": 5, "per_device_train_batch_size": 6, "gradient_checkpointing": 4}
    assert unread == expected
    assert not facts.keys() & expected.keys()


def test_conditions_that_can_be_told_are_followed(tmp_path: Path) -> None:
    script = """
        from transformers import TrainingArguments
        FAST = False
        if FAST:
            args = TrainingArguments("out", per_device_train_batch_size=32)
        elif __name__ == "__main__":
            args = TrainingArguments("out", per_device_train_batch_size=1 if FAST else 3)
    """
    assert _read(tmp_path, script)[0]["per_device_train_batch_size"] == 3


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    script = """
        import os, torch
        from torch.utils.data import DataLoader
        from transformers import GPT2LMHeadModel
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        model = GPT2LMHeadModel.from_pretrained("gpt2")
        loader = DataLoader(data, batch_size=8, num_workers=4, pin_memory=True)
        eval_loader = DataLoader(data, batch_size=2 * 8)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        for batch in loader:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(**batch).loss
            loss.backward()
    """
    facts, configs = _read(tmp_path, script)
    assert not configs.unread
    expected = {
        "framework": "pytorch", "model": "gpt2", "per_device_train_batch_size": 8, "per_device_eval_batch_size": 16,
        "optim": "adamw_torch", "mixed_precision": "fp16", "dataloader_num_workers": 4, "dataloader_pin_memory": True,
        "gpus.count": 1,
    }  # fmt: skip
    assert {key: facts.get(key) for key in expected} == expected


def test_plain_python_on_two_cards_is_data_parallel_in_a_trainer(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from transformers import TrainingArguments\nTrainingArguments('o')\n")
    (tmp_path / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0,1 python train.py\n")
    facts = Facts().add(read_configs([str(tmp_path / "run.sh")]).facts)
    assert facts.get("parallelism") == "dp"


def test_nothing_of_a_script_is_run(tmp_path: Path) -> None:
    left = tmp_path / "left"
    _read(tmp_path, f"import pathlib\npathlib.Path({str(left)!r}).touch()\nx = [1 for _ in open({str(left)!r}, 'w')]\n")
    assert not left.exists()


@pytest.mark.parametrize(
    "script",
    [
        "def broken(:\n",
        "x = 'open\n",
        "(" * 10_000,
        "x = " + "-" * 100_000 + "1",
        "x = " + "+".join("1" * 20_000),
        "import os\nx0 = 'ab'\n" + "".join(f"x{n} = x{n - 1} + x{n - 1}\n" for n in range(1, 3000)),
        "import os\nx0 = [1]\n" + "".join(f"x{n} = [{', '.join([f'x{n - 1}'] * 50)}]\n" for n in range(1, 200)),
        "import os\nx = 9 ** 9 ** 9 ** 9\ny = 'a' * 10 ** 12\n",
        "import os\na = b\nb = a\nTrainingArguments('o', optim=a)\n",
        "import os\n" + "f(" * 90 + ")" * 90,
    ],
)
def test_hostile_scripts_are_refused_or_read_in_little_time(tmp_path: Path, script: str) -> None:
    before = time.process_time()
    try:
        _read(tmp_path, script)
    except UserError as error:
        assert error.exit_code == 2
    assert time.process_time() - before < 3
