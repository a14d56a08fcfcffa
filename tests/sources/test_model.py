"""Model names, paths and inline architectures become shapes."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoctor.case import UserError
from oomdoctor.memory.weights import parameters
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import architecture_for, family_note, find_model
from oomdoctor.texts import render

TINY = {
    "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 16, "vocab_size": 100,
}  # fmt: skip


def inline(**keys: object) -> dict:
    return {f"architecture.{key}": value for key, value in keys.items()}


def shapes(arch) -> dict:
    return {linear.short: (linear.inputs, linear.outputs, linear.bias) for linear in arch.linears}


def test_llama_blocks_by_hand():
    arch = architecture_of({"model_type": "llama", **TINY})
    assert arch.head_dim == 2
    assert shapes(arch) == {
        "q": (8, 8, False), "k": (8, 4, False), "v": (8, 4, False), "o": (8, 8, False),
        "gate": (8, 16, False), "up": (8, 16, False), "down": (16, 8, False),
    }  # fmt: skip
    assert arch.decoder_layer == "LlamaDecoderLayer"


def test_a_null_number_of_key_value_heads_means_one_for_each_head():
    assert architecture_of({**TINY, "num_key_value_heads": None}).num_key_value_heads == 4


def test_an_architecture_without_model_type_is_taken_as_llama_and_that_is_said():
    settings = inline(**TINY)
    assert architecture_for(settings).decoder_layer == "LlamaDecoderLayer"
    assert "Llama" in render(family_note(settings), "en")
    assert family_note(inline(model_type="llama", **TINY)) is None


def test_an_unknown_model_type_keeps_its_name_and_that_is_said():
    settings = inline(model_type="llamoid", **TINY)
    assert architecture_for(settings).model_type == "llamoid"
    assert "llamoid" in render(family_note(settings), "zh")


def test_missing_keys_are_named():
    with pytest.raises(UserError) as error:
        architecture_of({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2})
    said = render(error.value.message, "en")
    assert all(key in said for key in ("num_hidden_layers", "intermediate_size", "vocab_size"))


@pytest.mark.parametrize("value", [0, -1, "wide", 10**30, True, 1.5, [1], float("nan"), float("inf")])
def test_a_size_that_is_none_is_refused(value):
    with pytest.raises(UserError):
        architecture_of({**TINY, "hidden_size": value})


def test_an_encoder_decoder_of_an_unknown_family_is_refused():
    with pytest.raises(UserError):
        architecture_of({"model_type": "fsmt", "is_encoder_decoder": True, **TINY})


@pytest.mark.parametrize(
    "config",
    [{"model_type": "resnet", "depths": [3, 4, 6, 3]}, {"_class_name": "UNet2DConditionModel", "sample_size": 64}],
)
def test_what_no_formula_describes_is_sent_to_the_dry_run(config):
    with pytest.raises(UserError) as refused:
        architecture_of(config)
    assert "dry-run" in render(refused.value.hint, "en") and "dry-run" in render(refused.value.hint, "zh")


def test_an_encoder_runs_before_its_decoder():
    config = {"model_type": "bart", "d_model": 64, "vocab_size": 100, "encoder_layers": 3, "decoder_layers": 2}
    sides = ("encoder", "decoder")
    config |= {f"{side}_{key}": size for side in sides for key, size in (("attention_heads", 4), ("ffn_dim", 128))}
    arch = architecture_of({**config, "is_encoder_decoder": True})
    (encoder,) = arch.stacks
    assert (encoder.arch.num_hidden_layers, arch.num_hidden_layers, arch.crosses) == (3, 2, True)


def test_a_multimodal_model_counts_with_its_text_model():
    arch = architecture_of({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **TINY}, "vision": 1})
    assert arch.qk_norm and arch.norms_per_layer == 4
    assert (
        architecture_of({"model_type": "llava", "text_config": {**TINY, "model_type": "mistral"}}).sliding_window
        == 4096
    )


def test_gpt2_under_its_own_names():
    arch = architecture_of(
        {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "n_inner": None, "vocab_size": 10}
    )
    assert arch.intermediate_size == 32 and arch.learned_positions == 1024 and not arch.rotary
    assert arch.tie_word_embeddings and arch.attention_dropout == 0.1
    assert [linear.outputs for linear in arch.linears] == [24, 8, 32, 8]


def test_gpt2_names_alone_tell_the_family():
    assert architecture_of({"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 10}).decoder_layer == "GPT2Block"


def test_the_label_tells_the_family_where_model_type_is_missing():
    assert architecture_for({"model": "my-gpt2-variant", **inline(**TINY)}).decoder_layer == "GPT2Block"
    assert architecture_for({"model": "adopt-7b", **inline(**TINY)}).decoder_layer == "LlamaDecoderLayer"


def test_qwen1_counts_two_matrices_in_config_json_but_one_in_a_plain_width():
    qwen = {
        "model_type": "qwen",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 151936,
    }
    both = [architecture_of({**qwen, "intermediate_size": width}) for width in (22016, 11008)]
    assert [arch.intermediate_size for arch in both] == [11008, 11008]
    assert parameters(both[0]) == 7_721_324_544  # Qwen-7B, safetensors total


@pytest.mark.parametrize(
    ("extra", "outputs", "norms"),
    [
        ({"multi_query": True, "new_decoder_architecture": False}, 64 + 2 * 16, 1),  # Falcon-7B: one k and v head
        ({"num_kv_heads": 4, "multi_query": True, "new_decoder_architecture": False}, 64 + 2 * 16, 1),  # filled in
        ({"num_kv_heads": 2, "multi_query": True, "new_decoder_architecture": True}, 64 + 4 * 16, 2),  # Falcon-40B
        ({"multi_query": False, "parallel_attn": False}, 3 * 64, 2),  # falcon-rw
    ],
)
def test_falcon_variants(extra, outputs, norms):
    config = {
        "model_type": "falcon",
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "vocab_size": 10,
    }
    arch = architecture_of({**config, **extra})
    assert (arch.linears[0].outputs, arch.norms_per_layer) == (outputs, norms)


def test_experts_have_their_own_width_and_count():
    arch = architecture_of({"model_type": "qwen3_moe", **TINY, "moe_intermediate_size": 4, "num_experts": 6})
    assert arch.intermediate_size == 4 and arch.num_experts == 6 and arch.num_experts_per_tok == 8
    assert {linear.count for linear in arch.linears if linear.short == "down"} == {6}


def test_sliding_windows_that_are_switched_off_do_not_count():
    assert architecture_of({"model_type": "qwen2", **TINY, "sliding_window": 9}).sliding_window == 0
    assert (
        architecture_of({"model_type": "qwen2", **TINY, "sliding_window": 9, "use_sliding_window": True}).sliding_window
        == 9
    )
    assert architecture_of({"model_type": "mistral", **TINY, "sliding_window": None}).sliding_window == 0


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("META-LLAMA/llama-2-7B-HF", "meta-llama/Llama-2-7b-hf"),
        ("llama2-7b", "meta-llama/Llama-2-7b-hf"),
        ("C:\\models\\Qwen2.5-7B-Instruct\\", "Qwen/Qwen2.5-7B"),
        ("/root/.cache/huggingface/hub/models--Qwen--Qwen2.5-7B/snapshots/abc", "Qwen/Qwen2.5-7B"),
        ("qwen25-7b-instruct", "Qwen/Qwen2.5-7B"),
        ("/root/.cache/modelscope/hub/models/Qwen/Qwen2___5-7B-Instruct", "Qwen/Qwen2.5-7B"),
        ("./out/Qwen2.5-7B-Instruct-lora-sft/checkpoint-500", "Qwen/Qwen2.5-7B"),
        ("TheBloke/Mistral-7B-Instruct-v0.2-GPTQ", "mistralai/Mistral-7B-Instruct-v0.2"),
    ],
)
def test_spellings_of_a_name(name, found):
    assert find_model(name).name == found


@pytest.mark.parametrize("name", ["Qwen2-57B", "llama-27b", "Qwen-18B", "", "/", "llama", "x" * 100_000, "\0"])
def test_a_name_that_only_looks_like_a_model_is_unknown(name):
    with pytest.raises(UserError):
        find_model(name)


def test_a_name_that_only_begins_like_a_known_one_is_said_to_be_taken_so():
    assert find_model("me/llama-2-7b-my-medical-tune").derived and not find_model("llama-2-7b-chat").derived
    assert architecture_for({"model": "llama-2-7b-my-medical-tune"}).hidden_size == 4096
    assert "Llama-2-7b-hf" in render(family_note({"model": "llama-2-7b-my-medical-tune"}), "en")
    assert family_note({"model": "llama-2-7b-chat"}) is None
    with pytest.raises(UserError):
        find_model("gpt2-chinese-cluecorpussmall")  # no size in its beginning: another vocabulary


def test_an_unknown_name_gets_near_ones():
    with pytest.raises(UserError) as error:
        find_model("Qwen/Qwen2.5-8B")
    assert "Qwen2.5-7B" in render(error.value.hint, "en")


def test_a_folder_and_a_file_are_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **TINY}))
    for name in (str(tmp_path), str(tmp_path / "config.json")):
        assert architecture_for({"model": name}).hidden_size == 8


def test_a_config_that_changes_between_two_questions_is_read_again(tmp_path):
    for layers in (2, 3):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **TINY, "num_hidden_layers": layers}))
        assert architecture_for({"model": str(tmp_path)}).num_hidden_layers == layers


def test_what_is_remembered_of_one_architecture_is_not_said_of_another():
    shapes_asked = [inline(**{**TINY, "vocab_size": size}) for size in (100, 200, 100)]
    assert [architecture_for(settings).vocab_size for settings in shapes_asked] == [100, 200, 100]
    with pytest.raises(UserError):
        architecture_for(inline(**{**TINY, "num_hidden_layers": True}))
    assert architecture_for(inline(**{**TINY, "num_hidden_layers": 1})).num_hidden_layers == 1
    with pytest.raises(UserError):  # True equals 1, which is remembered by now, and is still no number of layers
        architecture_for(inline(**{**TINY, "num_hidden_layers": True}))


@pytest.mark.parametrize("content", ["{", "[1]", "[" * 50_000, '{"a": "' + "b" * 2**20 + '"}', "\xff\xfe"])
def test_a_config_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(UserError) as error:
        find_model(str(tmp_path))
    assert render(error.value.message, "en") and render(error.value.message, "zh")


def test_an_architecture_wins_over_the_model():
    assert architecture_for({"model": "llama2-7b", **inline(**TINY)}).hidden_size == 8


def test_a_known_model_fills_in_what_an_agreeing_architecture_leaves_out():
    given = inline(hidden_size=2560, num_hidden_layers=36, num_attention_heads=32, vocab_size=151936)
    arch = architecture_for({"model": "Qwen3-4B", **given})
    assert (arch.head_dim, arch.num_key_value_heads) == (128, 8)
    with pytest.raises(UserError):
        architecture_for({"model": "Qwen3-4B", **given, "architecture.hidden_size": 1024})


def test_nested_facts_make_a_nested_config():
    settings = {"architecture.model_type": "gemma3", **{f"architecture.text_config.{k}": v for k, v in TINY.items()}}
    assert architecture_for(settings).norms_per_layer == 4


def test_neither_model_nor_architecture():
    assert architecture_for({"max_length": 512}) is None


KEYS = st.sampled_from(
    sorted({*TINY, "n_embd", "model_type", "head_dim", "text_config", "multi_query", "num_experts", "x"})
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["llama", "qwen3_moe"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=8,
)


@pytest.fixture(scope="module", autouse=True)
def _catalogue_is_read() -> None:
    """The first look-up reads and indexes the whole catalogue; no single example should pay for it."""
    find_model("llama2-7b")


@settings(deadline=None, derandomize=True)
@given(st.dictionaries(KEYS, VALUES, max_size=10))
def test_any_config_gives_an_architecture_or_a_sentence(config):
    try:
        assert architecture_of({**TINY, **config}).hidden_size >= 1
    except UserError as error:
        assert render(error.message, "en") and render(error.message, "zh")


@settings(deadline=None, derandomize=True)
@given(st.text(max_size=60) | st.from_regex(r"(llama|qwen|gpt)[-_. 0-9a-z/]{0,20}", fullmatch=True))
def test_any_name_is_found_or_refused(name):
    try:
        assert find_model(name).config
    except UserError as error:
        assert render(error.message, "en") and render(error.hint, "zh")
