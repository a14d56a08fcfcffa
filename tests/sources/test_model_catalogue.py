"""Every entry of rules/families and rules/models, against the libraries that build and adapt these models."""

import ast
import importlib.util
from pathlib import Path

import pytest

from oomdoctor import knowledge
from oomdoctor.memory.weights import parameters
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model

MODELS, FAMILIES = knowledge.load("models"), knowledge.load("families")
ENCODERS = ("bert", "roberta", "xlm-roberta", "distilbert", "deberta-v2")
DEPTH = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
DEPTH += ("num_decoder_layers", "encoder_layers", "decoder_layers")
PARTS = ("text_config", "vision_config")


@pytest.mark.parametrize("name", MODELS)
def test_each_entry_adds_up_to_its_parameters(name):
    assert parameters(architecture_of(MODELS[name]["config"])) == MODELS[name]["parameters"]


@pytest.mark.parametrize("name", MODELS)
def test_each_entry_is_found_under_the_names_of_its_cases(name):
    entry = MODELS[name]
    assert entry["source"].startswith("https://") and entry["cases"]
    assert {find_model(case).name for case in (name, *entry.get("aliases", ()), *entry["cases"])} == {name}


def real_model(config, depths):
    """The model of transformers with so many layers, by key, on the meta device (no memory)."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = {**config, **{part: {**config[part]} for part in PARTS if part in config}}
    for (part, key), depth in depths.items():
        (config[part] if part else config)[key] = depth
    model_type = config.pop("model_type")
    if model_type == "gpt_neo":
        config["attention_types"] = [[["global"], *depths.values()]]  # it must say as many as there are layers
    real = transformers.AutoConfig.for_model(model_type, **config)
    with torch.device("meta"):
        return class_of(real).from_config(real)


def depths_of(config):
    """The layers of each stack: under which key, of which part of the config."""
    own = {("", key): config[key] for key in DEPTH if key in config}
    inner = ((part, config[part]) for part in PARTS if part in config)
    return own | {(part, key): found[key] for part, found in inner for key in DEPTH if key in found}


def class_of(config):
    """The class that trains this model."""
    import transformers

    if config.model_type in ENCODERS:
        return transformers.AutoModel
    names = (
        ("Seq2SeqLM", "SpeechSeq2Seq")
        if config.is_encoder_decoder
        else ("ImageTextToText", "CausalLM", "ImageClassification")
    )
    choices = [getattr(transformers, f"AutoModelFor{name}") for name in names]
    return next(choice for choice in choices if type(config) in choice._model_mapping)


def count(config, depths):
    """Its parameters; with an output layer of its own where the config says so, which T5's class makes on loading."""
    model = real_model(config, depths)
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    shared = head is not None and head.weight is table.weight and config.get("tie_word_embeddings") is False
    return sum(p.numel() for p in model.parameters()) + (head.weight.numel() if shared else 0)


def in_transformers(model_type):
    transformers = pytest.importorskip("transformers")
    return model_type in transformers.models.auto.configuration_auto.CONFIG_MAPPING


@pytest.mark.parametrize("name", MODELS)
def test_each_count_is_that_of_the_real_class(name):
    """The blocks of a stack are alike, so two and three of them tell its whole depth."""
    config = MODELS[name]["config"]
    if not in_transformers(config["model_type"]) or "extra_parameters" in config:
        pytest.skip("remote code, or more than a language model: the count is the published one")
    layers = depths_of(config)
    few = max(2, config.get("first_k_dense_replace", 0) + 1)  # at least one of the blocks that make up the depth
    shallow = dict.fromkeys(layers, few)
    least = count(config, shallow)
    more = sum((depth - few) * (count(config, {**shallow, key: few + 1}) - least) for key, depth in layers.items())
    assert least + more == MODELS[name]["parameters"]


@pytest.mark.parametrize("family", FAMILIES)
def test_each_family_names_real_modules(family):
    config = next((e["config"] for e in MODELS.values() if e["config"]["model_type"] == family), None)
    if config is None or not in_transformers(family) or "extra_parameters" in config:
        pytest.skip("remote code, or no model of it in the catalogue")
    modules = dict(real_model(config, dict.fromkeys(depths_of(config), 2)).named_modules())
    arch = architecture_of(config)
    assert arch.decoder_layer in {type(module).__name__ for module in modules.values()}
    if not arch.num_experts:  # transformers 5 fuses experts into one tensor
        found = {path.rpartition(".")[2] for path in modules}
        assert {linear.name for linear in arch.linears} <= found


def test_default_lora_targets_are_those_of_peft():
    found = importlib.util.find_spec("peft")
    if found is None or not found.submodule_search_locations:
        pytest.skip("peft is not installed")
    source = Path(found.submodule_search_locations[0], "utils", "constants.py").read_text()
    text = source.partition("TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING = ")[2].partition("\n}")[0] + "}"
    theirs = ast.literal_eval(text)
    ours = {name: family["lora_targets"] for name, family in FAMILIES.items() if family["lora_targets"]}
    assert ours == {name: theirs[name] for name in ours}
