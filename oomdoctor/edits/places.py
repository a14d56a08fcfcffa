"""How an edit looks at its place: a call's arguments, a block of JSON or YAML, command-line options, lines of code.

A place has a `style` (call | json | yaml | options | lines), and may have
  file: what the report calls it; by: {key, names}: a name by the value of a run-card key (SFTConfig, DPOConfig);
  name: the call, in which `@auto_class@` stands for the model's class (see `auto_class`);
  leading: what stands before the keywords; target: the variable that takes the result;
  raw: arguments whose value is an expression; torch: arguments whose value is a dtype of torch;
  code: lines of a script, in which a name can stand for a number that is not known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import EMPTY, Text, Value
from oomdoctor.configs.mapping import word

WIDTH = 100


def file_of(name: str, place: Mapping[str, Any], settings: Mapping[str, Value]) -> str:
    """What the place is called, such as `TrainingArguments` or `ds_config.json`."""
    by = place.get("by")
    if by:
        return str(by["names"].get(word(settings.get(by["key"])), by["names"]["*"]))
    return str(place.get("file", name))


def words_of(file: str) -> Text | str:
    """A place's name for a person: in words where it is no name in code (`texts/edits`), else as it is."""
    path = f"edits.{re.sub(r'[^A-Za-z]+', '_', file)}"
    return Text(f"texts/{path}") if path in knowledge.load("texts") else file


def auto_class(run: Mapping[str, Value]) -> str:
    """The class of transformers that loads this run's model: by its task, else by a word in its name."""
    classes = knowledge.load("frameworks")["pretrained"]["classes"]
    by_task = classes["tasks"].get(word(run.get("task")))
    model = str(run.get("model", "")).lower()
    by_name = next((name for part, name in classes["models"].items() if part in model), None)
    return str(by_task or by_name or classes["otherwise"])


class Content(NamedTuple):
    """What is said at a place. comment: a line on what is to be filled in there."""

    settings: Mapping[str, Any] = EMPTY
    lines: Sequence[str] = ()
    comment: str = ""


def text_of(place: Mapping[str, Any], file: str, content: Content, run: Mapping[str, Value] = EMPTY) -> str:
    """The lines to paste. run: the run's settings, for what a place's name depends on."""
    style, settings, comment = place["style"], content.settings, content.comment
    parts = list(content.lines)
    if settings and style == "call":
        name = str(place.get("name", file)).replace("@auto_class@", auto_class(run))
        parts.insert(0, _call(place, name, settings, comment))
    elif settings and style == "json":
        parts.insert(0, json.dumps(settings, indent=2))
    elif settings and style == "yaml":
        parts.insert(0, "\n".join(yaml_lines(settings, "")))
    elif settings and style == "options":
        parts.insert(0, " ".join(f"--{key} {_option(value)}" for key, value in settings.items()))
    if comment and style != "json" and not (settings and style == "call"):  # JSON knows no comments
        parts.insert(0 if place.get("code") else len(parts), comment)
    return "\n".join(parts)


def _call(place: Mapping[str, Any], name: str, settings: Mapping[str, Any], comment: str) -> str:
    arguments = [*place.get("leading", ()), *(f"{key}={argument(place, key, settings[key])}" for key in settings)]
    target = f"{place['target']} = " if "target" in place else ""
    short = f"{target}{name}({', '.join(arguments)})"
    if len(short) <= WIDTH and not comment:
        return short
    last = [f"    {comment}"] if comment else []
    return "\n".join([f"{target}{name}(", *(f"    {argument}," for argument in arguments), *last, ")"])


def argument(place: Mapping[str, Any], key: str, value: Any) -> str:
    """The value of a call's argument, as Python writes it at this place."""
    if key in place.get("raw", ()):
        return str(value)
    if key in place.get("torch", ()) and isinstance(value, str) and value != "auto":
        return f"torch.{value}"
    return python(value)


def python(value: Any) -> str:
    """A value as Python writes it, with double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)}: {python(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(python(item) for item in value) + "]"
    return repr(value)


def yaml_lines(settings: Mapping[str, Any], indent: str = "") -> list[str]:
    """The lines of a YAML mapping."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key}:", *yaml_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {plain(value)}")
    return lines


def plain(value: Any) -> str:
    """A YAML scalar or flow list. JSON is YAML; a plain word needs no quotes unless YAML would read it otherwise."""
    safe = isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*", value)
    if safe and value.lower() not in ("yes", "no", "on", "off", "true", "false", "null"):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"'{json.dumps(value)}'" if isinstance(value, Mapping) else str(value)
