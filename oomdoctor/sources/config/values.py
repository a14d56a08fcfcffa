"""A setting and what its table says of its key -> facts, or why it is not understood.

A rule is a run-card key, or a mapping of
  values: text -> facts (first; `{}`: it is understood and says nothing); key: a run-card key that takes the value;
  words: facts that hold where the word stands in the value; patterns: [{pattern, keys, sets}], keys being templates of
  the pattern's groups; file: the value may be the path of a config of this kind; open:
  facts where the value cannot be told without running (an object, which a text would not be).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from oomdoctor import fields
from oomdoctor.case import Text, Value
from oomdoctor.fields import FIELDS
from oomdoctor.sources.config.leaves import Leaf

OBSERVED = "config."  # what is only seen in a config and stands on no run card
_REGEX = re.compile(r"[\\^$*+?()|\[\]]")
_FLAGS = {
    "yes": "true",
    "on": "true",
    "1": "true",
    "y": "true",
    "no": "false",
    "off": "false",
    "0": "false",
    "n": "false",
}
_LONGEST = 1000  # characters of a value that is looked at
_FEW = ("none", "null")


class Read(NamedTuple):
    """facts: of one setting. why: it is not understood, and this is the reason. file: kind and path of a config that it
    names."""

    facts: Mapping[str, Value] = {}
    why: Text | None = None
    file: tuple[str, str] | None = None


def read(leaf: Leaf, rule: Any) -> Read:
    """What a setting states by its rule."""
    if not leaf.known:
        opened = rule.get("open") if isinstance(rule, dict) else None
        return Read(why=Text("texts/configs.not_static")) if opened is None else Read(_as_facts(opened))
    if isinstance(rule, str):
        return _typed(rule, leaf.text)
    text = "none" if leaf.text is None else leaf.text if isinstance(leaf.text, str) else " ".join(leaf.text)
    if len(text) > _LONGEST:
        return Read(why=Text("texts/configs.too_long", {"limit": _LONGEST}))
    says = {str(key).lower(): facts for key, facts in rule.get("values", {}).items()}
    text = _as_a_flag(text, says)
    lowered = text.lower()
    if lowered in says:
        return Read(_as_facts(says[lowered]))
    if leaf.text is None:
        return Read()
    return _by_parts(leaf, text, rule)


def _as_a_flag(text: str, says: Mapping[str, Any]) -> str:
    """`true` or `false` where a flag is written in one of YAML's or the command line's other ways."""
    if text.lower() in says or not says.keys() & {"true", "false"}:
        return text
    return _FLAGS.get(text.lower(), text)


def _by_parts(leaf: Leaf, text: str, rule: Mapping[str, Any]) -> Read:
    facts: dict[str, Value] = {}
    why, understood = None, False
    if "key" in rule:
        typed = _typed(rule["key"], text if isinstance(leaf.text, str) else leaf.text)
        facts, why = dict(typed.facts), typed.why
    for word, stated in rule.get("words", {}).items():
        if word in text.lower():
            understood = True
            facts.update(_as_facts(stated))
    for pattern in rule.get("patterns", ()):
        match = re.search(pattern["pattern"], text)
        if match:
            understood = True
            facts.update(_as_facts(pattern.get("sets", {})))
            for key, template in pattern.get("keys", {}).items():
                facts.update(_typed(key, template.format_map(match.groupdict(""))).facts)
    file = (rule["file"], text) if "file" in rule and text.endswith((".json", ".yaml", ".yml")) else None
    if facts or understood or file is not None:
        return Read(facts, file=file)
    return Read(why=why or Text("texts/configs.bad_value", {"value": leaf.shown()}))


def _typed(key: str, text: str | list[str] | None) -> Read:
    """The fact of a value as written, by the run card's schema."""
    if text is None:
        return Read()
    if key.startswith(OBSERVED):
        return Read({key: tuple(text) if isinstance(text, list) else _free(text)})
    if FIELDS.get(key) is not None and FIELDS[key].kind == "names":
        return _names(key, text)
    if isinstance(text, list):
        text = text[0] if len(text) == 1 else ", ".join(text)
    if len(text) > _LONGEST:
        return Read(why=Text("texts/configs.too_long", {"limit": _LONGEST}))
    try:
        return Read({key: fields.parse(key, text)})
    except fields.BadValue as error:
        return Read(why=error.text)


def _names(key: str, text: str | list[str]) -> Read:
    """Names of modules: a list, words, or all linear layers. A pattern is not worked out."""
    words = text if isinstance(text, list) else text.strip("[] ").replace("'", "").replace('"', "").split(",")
    names = [name for word in words for name in word.split()]
    if any(_REGEX.search(name) for name in names):
        return Read(why=Text("texts/configs.pattern"))
    return Read({key: tuple(dict.fromkeys(names))})


def _free(text: str) -> Value:
    """A flag, a whole number, a number or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _as_facts(stated: Mapping[str, Any]) -> dict[str, Value]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in stated.items()}
