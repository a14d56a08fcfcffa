"""The run card's schema types every value by its key."""

import pytest

from oomdoctor.case import UserError
from oomdoctor.fields import BadValue, parse, parse_setting, run_of
from oomdoctor.texts import render


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("mixed_precision", "no", "no"),
        ("gradient_checkpointing", "true", "full"),
        ("gradient_checkpointing", "False", "none"),
        ("torch_dtype", "torch.bfloat16", "bfloat16"),
        ("torch_dtype", "fp16", "float16"),
        ("use_cache", "off", False),
        ("max_length", "2048", 2048),
        ("max_length", "4e3", 4000),
        ("gpus.compute_capability", "8.6", 8.6),
        ("lora.target_modules", "q_proj, v_proj", ("q_proj", "v_proj")),
        ("versions.torch", "2.10", "2.10"),
    ],
)
def test_values_mean_what_they_say(key: str, text: str, value: object) -> None:
    assert parse(key, text) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [("max_length", "long"), ("max_length", "0"), ("max_length", "1.5"), ("use_cache", "maybe"), ("method", "lara"),
     ("gpus.compute_capability", "nan"), ("host_ram_gib", "-3"), ("max_length", "inf")],
)  # fmt: skip
def test_values_that_a_key_does_not_take_are_refused_in_words(key: str, text: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse(key, text)
    assert key in render(caught.value.text, "en")
    assert key in render(caught.value.text, "zh")


def test_versions_stay_text() -> None:
    assert run_of({"versions.torch": "2.10"}).versions == {"torch": "2.10"}


def test_a_setting_with_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(UserError) as caught:
        parse_setting("max_lenght=5")
    assert "max_length" in render(caught.value.message, "en")


def test_dtype_is_another_name_for_torch_dtype() -> None:
    assert parse_setting("dtype=bf16") == ("torch_dtype", "bfloat16")


def test_a_lora_run_has_adapter_settings_and_a_full_one_has_none() -> None:
    settings = {"method": "lora", "lora.r": 16, "lora.target_modules": ("q_proj",)}
    lora = run_of(settings).lora
    assert lora is not None and (lora.r, lora.target_modules) == (16, ("q_proj",))
    assert run_of({"method": "full", "lora.r": 16}).lora is None
