"""Builds the model of a step from its config, on a device without memory: transformers' own class, PEFT's adapters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
import transformers
from torch import nn

from oomdoctor.trace import quantized
from oomdoctor.trace.autocast import Autocast
from oomdoctor.trace.pictures import images_of
from oomdoctor.trace.spec import Spec

_LATER_BLOCKS = 2  # of `method: freeze`, as in LLaMA-Factory's freeze_trainable_layers


class NotSimulated(Exception):
    """Something that the exact mode cannot run. reason: a key of `texts/trace`; values: its placeholders."""

    def __init__(self, reason: str, **values: object) -> None:
        super().__init__(reason)
        self.reason, self.values = reason, values


class Blocks(NamedTuple):
    """The repeated blocks of a model: the name of their list, and the blocks."""

    name: str
    modules: tuple[nn.Module, ...]


def config_of(spec: Spec, layers: int | None = None) -> Any:
    """The transformers config of a spec, cut down to some blocks where a number is given. Raises NotSimulated."""
    given = {key: value for key, value in spec.config.items() if key != "model_type"}
    model_type = str(spec.config.get("model_type", ""))
    if spec.config.get("is_encoder_decoder") or model_type in ("t5", "mt5", "umt5", "longt5"):
        given.setdefault("decoder_start_token_id", 0)  # any; T5's class asks for one
    try:
        config = transformers.AutoConfig.for_model(model_type, **given)
    except (KeyError, ValueError):
        raise NotSimulated("unknown_model_type", model_type=model_type or "?") from None
    if spec.task == "classification" and not getattr(config, "problem_type", None):
        config.problem_type = "single_label_classification"  # DeBERTa's class counts labels otherwise, of which none is
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if hasattr(config, name):
            setattr(config, name, 0.0)  # the fullest step leaves no block out
    return config if layers is None else _cut(config, layers)


def _cut(config: Any, layers: int) -> Any:
    """The config of the same model with its first blocks only; lists with an entry for each block are cut as well."""
    config = copy.deepcopy(config)
    text = config.get_text_config()
    whole = text.num_hidden_layers
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == whole:
            setattr(text, name, value[:layers])
    text.num_hidden_layers = layers
    return config


def period_of(config: Any) -> int:
    """After how many blocks their kinds begin anew: 1 where all are alike, 2 where every second one is different."""
    text = config.get_text_config()
    whole = getattr(text, "num_hidden_layers", 0)
    kinds = [value for value in vars(text).values() if isinstance(value, list) and whole and len(value) == whole]
    for period in range(1, whole + 1):
        if all(value[place] == value[place % period] for value in kinds for place in range(whole)):
            return period
    return whole


def build(spec: Spec, config: Any) -> nn.Module:
    """The bare model, weights as loaded and not quantized. Raises NotSimulated."""
    auto = _class_for(config, spec.task)
    attention = spec.attention
    dtype = getattr(torch, spec.dtype)
    with torch.device(spec.device):
        try:
            model = _made(auto, config, dtype, attention)
        except ValueError as error:
            if attention == "eager" or "attention" not in str(error).lower():
                raise
            model = _made(auto, config, dtype, "eager")  # it has no other
        _untie(model, spec)
    return model


def _made(auto: Any, config: Any, dtype: torch.dtype, attention: str) -> nn.Module:
    make = getattr(auto, "from_config", None) or auto._from_config
    model: nn.Module = make(copy.deepcopy(config), dtype=dtype, attn_implementation=attention)
    return model.train()


def _untie(model: Any, spec: Spec) -> None:
    """Give the output layer weights of its own where config.json says so: T5's class shares them until it loads."""
    if spec.config.get("tie_word_embeddings") is not False:
        return
    head, table = model.get_output_embeddings(), model.get_input_embeddings()
    if head is not None and head.weight is table.weight:
        head.weight = nn.Parameter(torch.empty_like(head.weight))


def _class_for(config: Any, task: str) -> Any:
    """The class that trains this model for its task: the one that config.json names, else transformers' choice."""
    if task == "classification":
        choices = ("SequenceClassification", "ImageClassification")
    else:
        named = (getattr(config, "architectures", None) or [""])[0]
        if named.endswith(("LM", "Generation", "Classification", "LMHeadModel")) and hasattr(transformers, named):
            return getattr(transformers, named)
        language = ("Seq2SeqLM",) if config.is_encoder_decoder else ("MaskedLM", "CausalLM")
        choices = (*language, "ImageTextToText", "SpeechSeq2Seq", "ImageClassification")
    for choice in choices:
        auto = getattr(transformers, f"AutoModelFor{choice}", None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto
    raise NotSimulated("no_class_for_task", model_type=config.model_type)


# Training method ------------------------------------------------------------------------------------------------


def scheme_of(spec: Spec) -> quantized.Scheme | None:
    """How the weights are quantized, None where they are not."""
    if not spec.quantized:
        return None
    if spec.quantization == "int8":
        return quantized.Scheme(8)
    return quantized.Scheme(4, spec.quantization == "nf4-double", getattr(torch, spec.compute_dtype))


def quantize(model: Any, scheme: quantized.Scheme) -> list[nn.Module]:
    """Quantize the linear layers that transformers would, and say so to PEFT. Gives the new layers."""
    from transformers.quantizers.base import get_keys_to_not_convert

    layers = [layer for _, layer in quantized.quantize(model, scheme, get_keys_to_not_convert(model))]
    for module in model.modules():
        if isinstance(module, transformers.PreTrainedModel):
            module.config._is_quantized = True
    model.is_quantized = True
    setattr(model, f"is_loaded_in_{scheme.bits}bit", True)
    model.quantization_method = "bitsandbytes"
    return layers


def prepare_kbit(model: Any) -> None:
    """PEFT's prepare_model_for_kbit_training; checkpointing is turned on apart from it."""
    from peft import prepare_model_for_kbit_training

    prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def choose_trained(model: Any, spec: Spec) -> Any:
    """The model with what is trained set: all of it, its last blocks, or adapters beside it. Raises NotSimulated."""
    if spec.method == "lora":
        model = _adapted(model, spec)
    elif spec.method == "freeze":
        model.requires_grad_(False)
        found = blocks_of(model)
        for block in found.modules[-_LATER_BLOCKS:] if found else ():
            block.requires_grad_(True)
    if spec.trainable_dtype:
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(getattr(torch, spec.trainable_dtype))
    return model


def _adapted(model: Any, spec: Spec) -> Any:
    from peft import LoraConfig, get_peft_model

    names: Any = list(spec.lora.target_modules) or None
    if names and len(names) == 1 and (names[0] == "all-linear" or set("\\*+?()[]|^$") & set(names[0])):
        names = names[0]  # a word of PEFT's, or a regular expression
    config = LoraConfig(
        r=spec.lora.r,
        target_modules=names,
        lora_dropout=spec.lora.lora_dropout,
        modules_to_save=list(spec.lora.modules_to_save) or None,
        use_dora=spec.lora.use_dora,
    )
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        if names is None and "target_modules" in str(error):  # PEFT has no default for this family
            config.target_modules = "all-linear"
            return get_peft_model(model, config)
        raise NotSimulated("peft_refuses", error=str(error)) from None


def checkpoint_blocks(model: Any, spec: Spec, autocast: Autocast | None) -> None:
    """Turn gradient checkpointing on as transformers does. Raises NotSimulated where the model has none."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    try:
        inner._set_gradient_checkpointing(enable=True, gradient_checkpointing_func=_checkpoint(spec, autocast))
    except ValueError:
        raise NotSimulated("no_checkpointing", model=type(inner).__name__) from None
    inner.enable_input_require_grads()


def _checkpoint(spec: Spec, autocast: Autocast | None) -> Callable[..., Any]:
    """torch's checkpoint. The states of random generators are left out: they lie on the host."""
    from torch.utils.checkpoint import checkpoint

    def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if autocast is not None:
            function = _under(autocast.as_now(), function)
        return checkpoint(function, *args, use_reentrant=spec.reentrant, preserve_rng_state=False, **kwargs)

    return run


def _under(context: Callable[[], Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under a context: torch brings autocast back for a second run, but not on the meta device."""

    def inside(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return inside


# Parts of a model -----------------------------------------------------------------------------------------------


def blocks_of(model: nn.Module) -> Blocks | None:
    """The blocks that make up the model, None where it has no list of equal modules, or several of them."""
    lists = [
        Blocks(name, tuple(module))
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 1 and len({type(block) for block in module}) == 1
    ]
    outer = [found for found in lists if not any(found.name.startswith(f"{other.name}.") for other in lists)]
    return outer[0] if len(outer) == 1 else None


def sees_images(model: Any) -> bool:
    """Whether a part of the model is for images, while the run feeds it text alone."""
    return getattr(model.config, "vision_config", None) is not None and model.main_input_name == "input_ids"


def outside_of_blocks(spec: Spec, config: Any) -> dict[str, torch.Size]:
    """The shapes of what the model keeps outside of its blocks."""
    model = build(spec, config)
    found = blocks_of(model)
    inside = f"{found.name}." if found else ""
    return {name: tensor.shape for name, tensor in tensors_of(model) if not (inside and name.startswith(inside))}


def notes_on(model: Any, spec: Spec) -> Iterator[str]:
    """What a reader must know of how the model was run, as keys of texts/trace."""
    if spec.attention != "eager" and getattr(model.config, "_attn_implementation", None) == "eager":
        yield "note_eager"
    if getattr(model.config, "is_encoder_decoder", False):
        yield "note_encoder_decoder"
    if sees_images(model) and not spec.images:
        yield "note_text_only"


def inputs_of(model: Any, spec: Spec) -> Mapping[str, torch.Tensor]:
    """One micro-batch."""
    config, device = model.config, spec.device
    batch, length = spec.batch, spec.length

    def numbers(*shape: int) -> torch.Tensor:
        return torch.ones(*shape, dtype=torch.long, device=device)

    if model.main_input_name == "pixel_values":
        size = config.image_size if isinstance(config.image_size, (list, tuple)) else (config.image_size,) * 2
        pixels = torch.ones(batch, config.num_channels, *size, dtype=getattr(torch, spec.dtype), device=device)
        return {"pixel_values": pixels, "labels": numbers(batch)}
    if model.main_input_name == "input_features":
        frames = 2 * config.max_source_positions
        sound = torch.ones(batch, config.num_mel_bins, frames, dtype=getattr(torch, spec.dtype), device=device)
        return {"input_features": sound, "labels": numbers(batch, min(length, config.max_target_positions))}
    labels = numbers(batch) if spec.task == "classification" else numbers(batch, length)
    read = (spec.source_length or length) if config.is_encoder_decoder else length
    text = {"input_ids": numbers(batch, read), "attention_mask": numbers(batch, read), "labels": labels}
    return {**text, **images_of(model, spec)}


def words_of(model: Any) -> int:
    """The size of the vocabulary, 0 where the model has none."""
    return int(getattr(model.config.get_text_config(), "vocab_size", 0) or 0)


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Each tensor that the model keeps, with its name: parameters, buffers, what quantized weights need beside them."""
    yield from model.named_parameters()
    yield from model.named_buffers()
    for name, module in model.named_modules():
        if isinstance(module, quantized.Linear4bit):
            yield from ((name, part) for part in module.weight.quant_state.tensors)
        elif isinstance(module, quantized.Linear8bitLt):
            yield from ((name, part) for part in module.state.tensors)
