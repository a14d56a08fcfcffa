"""A case as text that a person can read and mend: YAML, with what they said before what the program found out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from textwrap import indent
from typing import Any, NamedTuple, TypeVar

from oomdoctor.case import STAGES, Case, Crash, Fact, Facts, Text, Unread
from oomdoctor.texts import LANGUAGES, plain, render
from oomdoctor.units import show_bytes
from oomdoctor.wizard.checked import (
    crash_of,
    fact_of,
    preference_of,
    refusal_of,
    rules_of,
    stage_of,
    text_of,
    texts_of,
    unread_of,
)
from oomdoctor.wizard.learning import is_learned

_FORMAT = 2  # 1 was JSON, without configs
_END = "..."  # ends a YAML document; a file without it was cut off
_DEEPEST = 12  # levels; a case has five
_OPTIONAL: Mapping[str, Any] = {"answered": {}, "refused": [], "configs": [], "given": [], "unread": [], "folder": None,
                               "stage": STAGES[0], "taken": [], "prefer": None}  # fmt: skip

T = TypeVar("T")


class BadCase(ValueError):
    """The text is no case. why: what is wrong with it, in words."""

    def __init__(self, why: Text) -> None:
        super().__init__(why.path)
        self.why = why


class Written(NamedTuple):
    """What the text of a case says. digests: path of a config -> SHA-256 of what was read. folder: where the
    program ran, None where the text does not say."""

    case: Case
    digests: Mapping[str, str]
    folder: str | None


def as_text(case: Case, name: str, digests: Mapping[str, str]) -> str:
    """The case as YAML: without the live machine, which is read again, and without assumptions, which are made again,
    unless a crash taught them."""
    sections: list[dict[str, Any]] = [
        {"format": _FORMAT, "saved": time.strftime("%Y-%m-%d %H:%M:%S %z"), "origin": case.origin},
        {"answered": _answered(case.facts), "unknown_answers": list(case.unknown_answers)},
        {"tried": list(case.tried), "refused": [each._asdict() for each in case.refused]},
        {"stage": case.stage, "taken": list(case.taken), "prefer": case.prefer},
    ]
    configs = [{"path": path, "kind": kind, "sha256": digests.get(path)} for path, kind in case.configs]
    rest: list[dict[str, Any]] = [
        {"folder": _here(), "configs": configs, "given": list(case.given), "unread": [_unread(e) for e in case.unread]},
        {"facts": [_fact(fact) for fact in _kept(case.facts)]},
    ]
    parts = [_head(name), *map(_yaml, sections), _crash(case.crash), *map(_yaml, rest)]
    return "\n".join(parts) + f"{_END}\n"


def _head(name: str) -> str:
    words = (render(Text("texts/saved.head", {"id": name}), lang) for lang in LANGUAGES)
    return "".join(f"# {plain(line)}\n" for line in words)


def _answered(facts: Facts) -> dict[str, Any]:
    """What the person said, as far as it needs no more than a line."""
    return {fact.key: _plain(fact.value) for fact in facts.won.values() if _is_bare_answer(fact)}


def _is_bare_answer(fact: Fact) -> bool:
    return fact.source == "answer" and fact.reason is None


def _kept(facts: Facts) -> list[Fact]:
    """All other facts, those that won last, so that they win again."""
    told = [*facts.lost, *(fact for fact in facts.won.values() if not _is_bare_answer(fact))]
    return [fact for fact in told if is_learned(fact) or not fact.assumed]


def _fact(fact: Fact) -> dict[str, Any]:
    shown = {"key": fact.key, "value": _plain(fact.value), "source": fact.source}
    return shown if fact.reason is None else {**shown, "reason": _reason(fact.reason)}


def _reason(reason: Text | str) -> Any:
    return {"path": reason.path, "values": _plain(reason.values)} if isinstance(reason, Text) else reason


def _unread(each: Unread) -> dict[str, Any]:
    return {"key": each.key, "source": each.source, "why": _reason(each.why)}


def _crash(crash: Crash | None) -> str:
    """What is known of the failure; sizes also in words."""
    if crash is None:
        return "crash: null\n"
    fields = _plain({**crash._asdict(), "other_processes": [holder._asdict() for holder in crash.other_processes]})
    usual = Crash("")._asdict()
    lines = []
    for name, value in fields.items():
        if value != _plain(usual[name]):
            size = f"  # {show_bytes(value)}" if name.endswith("_bytes") else ""
            lines.append(_yaml({name: value}).rstrip("\n") + size + "\n")
    return "crash:\n" + indent("".join(lines), "  ")


def _plain(value: Any) -> Any:
    """Dicts, lists and scalars in place of tuples and mappings of other kinds."""
    return json.loads(json.dumps(value, default=dict))


def _yaml(content: Mapping[str, Any]) -> str:
    import yaml

    return yaml.dump(content, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True, width=110)


def _here() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # the folder has been removed
        return None


def from_text(text: str) -> Written:
    """What the text of a YAML file says. Raises BadCase."""
    lines = text.rstrip().rsplit("\n", 1)
    if lines[-1] != _END:
        raise BadCase(Text("texts/saved.cut_off"))
    return _written(_parsed(text))


def from_json(text: str) -> Written:
    """What a case of an earlier version says. Raises BadCase."""
    try:
        return _written(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise error if isinstance(error, BadCase) else BadCase(Text("texts/saved.no_case")) from None


def _parsed(text: str) -> Any:
    """The text's content; nothing is run, and an alias, which can stand for any amount of content, is refused."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if any(0xD800 <= ord(char) < 0xE000 for char in text) or "\\uD" in text:
        loader = yaml.SafeLoader  # the names of files may hold what libyaml refuses
    try:
        _check(yaml.parse(text, Loader=loader))
        return yaml.load(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise BadCase(Text("texts/saved.no_yaml", {"line": line})) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise error if isinstance(error, BadCase) else BadCase(Text("texts/saved.no_case")) from None


def _check(events: Iterable[Any]) -> None:
    from yaml import events as kinds

    depth = 0
    for event in events:
        depth += isinstance(event, kinds.CollectionStartEvent) - isinstance(event, kinds.CollectionEndEvent)
        if isinstance(event, kinds.AliasEvent) or depth > _DEEPEST:
            raise BadCase(Text("texts/saved.no_case"))


def _written(content: Any) -> Written:
    if not isinstance(content, dict):
        raise BadCase(Text("texts/saved.no_case"))
    content = {**_OPTIONAL, **content}
    answers = _section(content, "answered", lambda said: [_answer(key, value) for key, value in said.items()])
    facts = _section(content, "facts", lambda told: [fact_of({"reason": None, **fact}) for fact in told])
    configs = _section(content, "configs", lambda read: [_config(config) for config in read])
    case = Case(
        facts=Facts().add([*facts, *answers]),
        crash=_section(content, "crash", lambda crash: None if crash is None else crash_of(crash)),
        origin=_section(content, "origin", text_of),
        tried=_section(content, "tried", texts_of),
        refused=_section(content, "refused", lambda said: tuple(refusal_of(each) for each in said)),
        unknown_answers=_section(content, "unknown_answers", texts_of),
        unread=_section(content, "unread", lambda read: tuple(unread_of(each) for each in read)),
        configs=tuple((path, kind) for path, kind, _ in configs),
        given=_section(content, "given", texts_of),
        stage=_section(content, "stage", stage_of),
        taken=_section(content, "taken", rules_of),
        prefer=_section(content, "prefer", preference_of),
    )
    digests = {path: digest for path, _, digest in configs if digest is not None}
    return Written(case, digests, _section(content, "folder", text_of))


def _section(content: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> T:
    """An entry, read, without YAML's dates and sets, which no entry holds. Raises BadCase with its name."""
    try:
        return read(_plain(content[name]))
    except (KeyError, ValueError, TypeError, AttributeError):
        raise BadCase(Text("texts/saved.bad_entry", {"entry": name})) from None


def _answer(key: Any, value: Any) -> Fact:
    return fact_of({"key": key, "value": value, "source": "answer", "reason": None})


def _config(content: Mapping[str, Any]) -> tuple[str, str, str | None]:
    path, kind = texts_of([content["path"], content["kind"]])
    return path, kind, text_of(content["sha256"])
