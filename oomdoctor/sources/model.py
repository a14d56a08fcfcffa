"""A model's name or path -> its config, its architecture. The catalogue is rules/models."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Architecture, Text, UserError, Value
from oomdoctor.fields import nearest
from oomdoctor.sources.architecture import architecture_of, canonical, family_of

_LARGEST_CONFIG = 1024 * 1024  # bytes; real ones are 1 to 30 KiB
_LONGEST_NAME = 200  # characters that are looked at
_LONGEST_PATH = 4096
_SIZE = re.compile(r"[0-9][0-9._x]*[bm]")  # 7b, 0.5b, 8x7b, 135m
_CHECKPOINT = re.compile(r"checkpoint[-_]?[0-9]*|epoch[-_]?[0-9]+|final|merged|main|best|hf|[0-9a-f]{16,40}")
# The keys of a config.json that say how a block computes, not only how large it is.
_ACTIVATIONS = frozenset({"activation_function", "hidden_act", "hidden_activation"})
_PREFIX = "architecture."
_Shape = tuple[tuple[str, type, Value], ...]  # the `architecture.*` facts; the type tells True from 1


class FoundModel(NamedTuple):
    """name: as the catalogue writes it, or the path. config: config.json keys. reference: where it is from.

    derived: only the beginning of the name asked for is this model's; a fine-tuned copy, most likely.
    """

    name: str
    config: Mapping[str, Any]
    reference: str
    derived: bool = False


def find_model(name: str) -> FoundModel:
    """The model of a path (a config.json, or a folder that holds one), of Hugging Face's cache or of the catalogue.

    A name counts with or without its owner or a folder before it, in any case, with or without words such as `chat`,
    `hf` or `gptq`. Raises UserError where it is unknown (the hint names near ones) or its config.json is unusable.
    """
    path = _config_path(name)
    if path is not None:
        return FoundModel(name, _read_config(path), path)
    found = _in_catalogue(name)
    if found is None:
        raise _unknown(name)
    return found


def architecture_for(settings: Mapping[str, Value]) -> Architecture | None:
    """The architecture that the facts describe, None where they name neither a model nor an architecture.

    `architecture.*` wins over the model. Where the model named is known and agrees with every key given, it fills in
    those that are not. Raises UserError.
    """
    shape, name = _asked(settings)
    return (_architecture if name and _config_path(name) else _remembered_architecture)(shape, name)


def _architecture(shape: _Shape, name: str | None) -> Architecture | None:
    given = _given(shape)
    if given:
        found = architecture_of(_filled(given, name), name)
        return found if _known(name) or not _ACTIVATIONS.isdisjoint(given) else found._replace(code_known=False)
    return architecture_of(find_model(name).config, name, name) if name else None


def config_for(settings: Mapping[str, Value]) -> Mapping[str, Any] | None:
    """The config.json that the facts describe, with the family as `model_type` where it names none; None where they
    name neither a model nor an architecture. `architecture.*` wins over the model. Raises UserError."""
    shape, name = _asked(settings)
    given = _given(shape)
    if not given and not name:
        return None
    config = _filled(given, name) if given else find_model(name or "").config
    return {**config, "model_type": config.get("model_type") or family_of(config, name) or "llama"}


def models_of_size(parameters: int) -> tuple[str, ...]:
    """The catalogue's models that have just so many parameters, embeddings counted once where they are tied."""
    models = knowledge.load("models").items()
    return tuple(name for name, entry in models if entry.get("parameters") == parameters)


def family_note(settings: Mapping[str, Value]) -> Text | None:
    """A sentence for the person where the model or its family had to be assumed, None where not. Never raises."""
    shape, name = _asked(settings)
    return (_note if name and _config_path(name) else _remembered_note)(shape, name)


def _note(shape: _Shape, name: str | None) -> Text | None:
    given, name, found = _given(shape), name or "", _known(name)
    if found is not None and found.derived and not given:
        return Text("texts/model.named_like", {"name": name[:_LONGEST_NAME], "model": found.name})
    config = _filled(given, name) if given else (found.config if found else None)
    if config is None or family_of(config, name):
        return None
    if "model_type" not in config:
        return Text("texts/model.no_model_type")
    return Text("texts/model.assumed_llama", {"model_type": str(config["model_type"])[:80]})


# Many cards are often of one model; a file may change, and is read each time.
_remembered_architecture, _remembered_note = lru_cache(maxsize=256)(_architecture), lru_cache(maxsize=256)(_note)


def _asked(settings: Mapping[str, Value]) -> tuple[_Shape, str | None]:
    """The `architecture.*` facts, and the name of the model."""
    shape = tuple((key, type(value), value) for key, value in settings.items() if key.startswith(_PREFIX))
    return shape, str(settings["model"]) if settings.get("model") is not None else None


def _given(shape: _Shape) -> dict[str, Any]:
    """The `architecture.*` facts as a config.json would hold them, nested parts included."""
    config: dict[str, Any] = {}
    for key, _, value in shape:
        *parents, last = key[len(_PREFIX) :].split(".")
        inner = config
        for parent in parents[:4]:
            deeper = inner.setdefault(parent, {})
            if not isinstance(deeper, dict):
                break
            inner = deeper
        inner[last] = None if value in ("null", "None", "~") else value
    return config


def _filled(given: dict[str, Any], name: str | None) -> Mapping[str, Any]:
    found = _known(name)
    if found is None or not _agree(canonical(found.config), canonical(given)):
        return given
    return {**found.config, **given}


def _agree(known: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return all(known[key] == value for key, value in given.items() if key in known)


def _known(name: str | None) -> FoundModel | None:
    """As `find_model`, None where that raises."""
    if not name:
        return None
    path = _config_path(name)
    if path is None:
        return _in_catalogue(name)
    try:
        return FoundModel(name, _read_config(path), path)
    except UserError:
        return None


def _config_path(name: str) -> str | None:
    path = os.path.expanduser(name)
    if not path.strip():
        return None
    if path.endswith(".json") and os.path.isfile(path):
        return path
    inside = os.path.join(path, "config.json")
    if os.path.isfile(inside):
        return inside
    from oomdoctor.sources.cache import cached

    folder = cached(name)
    return None if folder is None else os.path.join(folder, "config.json")


def folder_of(name: str) -> str | None:
    """The folder of a model's files on this machine, None where it is not here."""
    path = _config_path(name)
    return None if path is None else os.path.dirname(path) or "."


def _read_config(path: str) -> Mapping[str, Any]:
    import json

    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_CONFIG + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or "") from None
    if len(content) > _LARGEST_CONFIG:
        raise _unreadable(path, Text("texts/model.too_big", {"limit": _LARGEST_CONFIG}))
    try:
        config = json.loads(content)
    except (ValueError, RecursionError):
        raise _unreadable(path, Text("texts/model.not_json")) from None
    if not isinstance(config, dict):
        raise _unreadable(path, Text("texts/model.not_mapping"))
    return config


def _unreadable(path: str, why: Text | str) -> UserError:
    return UserError(path, Text("texts/model.unreadable", {"path": path, "why": why}))


@lru_cache(maxsize=256)
def _in_catalogue(name: str) -> FoundModel | None:
    models = knowledge.load("models")
    if name in models:  # spares the index, which takes longer than all the rest
        return FoundModel(name, models[name]["config"], f"catalogue:{name}")
    index = _index()
    for spelling, derived in _spellings(name):
        if spelling in index:
            model = index[spelling]
            return FoundModel(model, models[model]["config"], f"catalogue:{model}", derived)
    return None


def _spellings(name: str) -> Iterator[tuple[str, bool]]:
    """What a name may stand under in the index, the most exact first, and whether words were cut from its end.

    A beginning counts only where it holds a size (`7b`): `gpt2-chinese` has another vocabulary than GPT-2.
    """
    last = _last_part(name)[:_LONGEST_NAME]
    yield _spelling(last), False
    words = _without_fillers(last).split("-")
    yield _spelling("-".join(words)), False
    for end in range(len(words) - 1, 0, -1):
        if any(_SIZE.fullmatch(word) for word in words[:end]):
            yield _spelling("-".join(words[:end])), True


def _last_part(name: str) -> str:
    """The model's own name: without owner, folders, a checkpoint's folder, or the wrapping of Hugging Face's cache."""
    parts = [part for part in re.split(r"[/\\]", name.strip()[-_LONGEST_PATH:]) if part]
    while len(parts) > 1 and _CHECKPOINT.fullmatch(parts[-1]):
        parts.pop()
    cached = next((part for part in parts if part.startswith("models--")), None)
    return cached.split("--")[-1] if cached else (parts[-1] if parts else "")


def _without_fillers(name: str) -> str:
    fillers = knowledge.lookup("architecture/names/fillers")
    return "-".join(word for word in re.split(r"[-_ ]", name.lower()) if word not in fillers)


def _spelling(name: str) -> str:
    """Lower case, without separators except between digits: 2.5-7b is not 2-57b, but Llama-2-7b is llama2-7b."""
    return re.sub(r"(?<![0-9])_|_(?![0-9])", "", re.sub(r"[^a-z0-9]+", "_", name.lower()))


@cache
def _index() -> Mapping[str, str]:
    """Spelling -> catalogue name. An exact spelling of one model wins over a shortened one of another."""
    exact: dict[str, str] = {}
    short: dict[str, str] = {}
    for model, entry in knowledge.load("models").items():
        for name in (model, *entry.get("aliases", ())):
            last = _last_part(name)
            exact.setdefault(_spelling(last), model)
            short.setdefault(_spelling(_without_fillers(last)), model)
            short.setdefault(_spelling(_without_fillers(_dotless_version(last))), model)
    return {**short, **exact}


def _dotless_version(name: str) -> str:
    """`Qwen25-7B` for `Qwen2.5-7B`; the size keeps its point (`1.5B` is not 15B)."""
    return re.sub(r"([0-9])\.([0-9])(?=[-_])", r"\1\2", name)


def _unknown(name: str) -> UserError:
    names = {_last_part(known): None for known in knowledge.load("models")}
    name = name[:_LONGEST_NAME]
    near = nearest(_last_part(name), names)
    hint = Text("texts/model.unknown_hint", {"near": near}) if near else Text("texts/model.unknown_hint_alone")
    return UserError(name, Text("texts/model.unknown", {"name": name}), hint)
