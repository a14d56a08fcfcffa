"""The right spelling for each version. The table is the history of the packages' releases, read in their sources."""

import pytest

from oomdoctor.configs.mapping import in_range
from oomdoctor.edits.render import hows

CHECKPOINTING = ({"gradient_checkpointing": "full"}, {"gradient_checkpointing": "none"})
LENGTH = ({"max_length": 512}, {"max_length": 1024})
DTYPE = ({"torch_dtype": "bfloat16"}, {"torch_dtype": "float32"})


def settings_of(change, framework, **versions):
    run = {"framework": framework, **{f"versions.{name}": version for name, version in versions.items()}}
    return {key: value for how in hows(*change, run) for key, value in how.settings.items()}


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("4.40.2", "gradient_checkpointing"),
        ("4.57.6", "gradient_checkpointing"),
        ("5.22.0", "gradient_checkpointing"),
        ("5.23.0", "activation_checkpointing"),
        ("5.24.0", "activation_checkpointing"),
    ],
)
def test_checkpointing_by_transformers_version(version, key):
    said = settings_of(CHECKPOINTING, "transformers", transformers=version)
    assert said == {key: True, f"{key}_kwargs": {"use_reentrant": False}}


def test_checkpointing_of_an_unknown_version_uses_the_name_that_all_accept():
    said = settings_of(CHECKPOINTING, "transformers")
    assert said == {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}


@pytest.mark.parametrize(
    ("version", "key"),
    [("0.8.6", "max_seq_length"), ("0.15.2", "max_seq_length"), ("0.16.0", "max_length"), ("1.16.0", "max_length")],
)
def test_length_by_trl_version(version, key):
    assert settings_of(LENGTH, "trl", trl=version) == {key: 512}


@pytest.mark.parametrize(
    ("version", "key"), [("4.46.3", "torch_dtype"), ("4.55.4", "torch_dtype"), ("4.56.0", "dtype"), ("5.0.0", "dtype")]
)
def test_dtype_by_transformers_version(version, key):
    assert settings_of(DTYPE, "transformers", transformers=version) == {key: "bfloat16"}


def test_liger_needs_transformers_4_45():
    change = ({"loss_kernel": "liger"}, {"loss_kernel": "plain"})
    run = {"framework": "transformers", "versions.transformers": "4.44.2"}
    update, edit = hows(*change, run)
    assert (update.after, update.needs) == ('pip install -U "transformers>=4.45"', {"transformers": ">=4.45"})
    assert edit.settings == {"use_liger_kernel": True}
    assert settings_of(change, "transformers", transformers="4.45.0") == {"use_liger_kernel": True}


def test_peft_under_zero3_checkpoints_reentrantly():
    run = {"framework": "transformers", "parallelism": "zero3", "method": "lora", "versions.transformers": "4.57.6"}
    (arguments,) = [how for how in hows(*CHECKPOINTING, run) if how.file == "TrainingArguments"]
    assert arguments.settings["gradient_checkpointing_kwargs"] == {"use_reentrant": True}
    assert any("enable_input_require_grads" in how.after for how in hows(*CHECKPOINTING, run))


def test_fsdp_checkpoints_by_its_own_flag_only():
    run = {"framework": "transformers", "parallelism": "fsdp", "versions.transformers": "4.57.6"}
    (config,) = hows(*CHECKPOINTING, run)
    assert (config.file, config.settings) == (
        "accelerate.yaml",
        {"fsdp_config": {"fsdp_activation_checkpointing": True}},
    )


@pytest.mark.parametrize(
    ("torch", "names"),
    [
        ("2.5.1", ["PYTORCH_CUDA_ALLOC_CONF"]),
        ("2.9.1", ["PYTORCH_CUDA_ALLOC_CONF"]),  # warns about the name, but reads no other
        ("2.10.0", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]),
        (None, ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"]),
    ],
)
def test_allocator_variable_by_torch_version(torch, names):
    run = {"framework": "trl"} | ({"versions.torch": torch} if torch else {})
    (how,) = hows({}, {}, run, "expandable-segments")
    assert sorted(how.settings) == names
    assert how.after.splitlines() == [f"export {name}=expandable_segments:True" for name in names]


@pytest.mark.parametrize(
    ("version", "wanted", "inside"),
    [
        ("4.46.3", ">=4.45,<5.23", True),
        ("5.23.0", ">=4.45,<5.23", False),
        ("2.10.0", ">=2.9", True),
        ("2.9.1+cu124", "<2.10", True),
        ("5.0.0rc1", ">=5.0", True),
        (5, ">=5.0", True),
        (None, ">=5.0", None),
    ],
)
def test_version_ranges(version, wanted, inside):
    assert in_range(version, wanted) is inside
