"""Which kind of config a file is, by what stands in it."""

import pytest

from oomdoctor.case import UserError
from oomdoctor.configs.kinds import kinds, recognise, split_kind

TEXTS = {
    "transformers": "per_device_train_batch_size: 4\nlearning_rate: 1e-4\n",
    "trl": "model_name_or_path: m\nuse_peft: true\ndataset_name: d\nper_device_train_batch_size: 2\n",
    "axolotl": "base_model: m\nsequence_len: 2048\nmicro_batch_size: 2\nadapter: lora\n",
    "llamafactory": "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ntemplate: qwen\ncutoff_len: 1024\n",
    "ms-swift": '{"model": "m", "train_type": "lora", "lora_rank": 8, "attn_impl": "flash_attn"}',
    "deepspeed": '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}',
    "accelerate": "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n",
    "torchtune": "model:\n  _component_: torchtune.models.x\noptimizer:\n  _component_: torch.optim.AdamW\n",
    "model": '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096}',
    "adapter": '{"peft_type": "LORA", "base_model_name_or_path": "m", "lora_alpha": 16, "r": 8}',
    "card": "model: m\nmethod: lora\ngpus: {count: 1}\nversions: {torch: 2.6.0}\n",
    "python": "import torch\nmodel = torch.nn.Linear(1, 1)\n",
    "shell": "torchrun --nproc_per_node 2 train.py --bf16\n",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_the_content_tells_the_kind(kind: str) -> None:
    assert recognise(TEXTS[kind], "file").kind == kind


def test_every_kind_is_tried_here() -> None:
    assert set(kinds()) == set(TEXTS)


def test_the_person_may_say_the_kind() -> None:
    assert split_kind("trl:a.yaml") == ("trl", "a.yaml")
    assert split_kind("C:/a.yaml") == (None, "C:/a.yaml")
    assert recognise("lr: 1\n", "a.yaml", "trl").kind == "trl"


@pytest.mark.parametrize("text", ["", "  \n", "colour: red\n", "just words\n", "- a\n- b\n"])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        recognise(text, "a.yaml")
