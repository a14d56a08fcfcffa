"""The `gpus` entry of a run card where it is no mapping: `RTX 3090`, `2x RTX 3090`, `4`, or a list of cards."""

from __future__ import annotations

import re
from collections.abc import Mapping

from oomdoctor import fields
from oomdoctor.case import Fact, Text, UserError, Value
from oomdoctor.configs.nodes import Items, Node, Pairs, Scalar
from oomdoctor.sources.cards import find_card
from oomdoctor.units import MIB

_TIMES = re.compile(r"(?P<count>\d{1,4})\s*[xX×*]\s*(?P<name>\S.*)")
_TRAITS = ("name", "memory_mib", "compute_capability")


class GpuProblem(ValueError):
    """A card that cannot be read; `text` says why, `line` where (None: the entry's own line)."""

    def __init__(self, text: Text, line: int | None = None) -> None:
        super().__init__(text.path)
        self.text, self.line = text, line


def facts_of_option(text: str, nodes: str | None = None) -> list[Fact]:
    """The facts of `--gpus "2x RTX 3090"`, `"RTX 4090, RTX 3090"` or `4`. Raises UserError.

    nodes: the number of machines that each have these cards; what is counted is the cards of all of them.
    """
    parts = [Scalar(part.strip(), 1) for part in text.split(",") if part.strip()]
    try:
        if not parts:
            raise GpuProblem(Text("texts/card.gpus"))
        facts = gpu_facts(parts[0] if len(parts) == 1 else Items(tuple(parts), 1))
        if "gpus.name" in facts:
            find_card(str(facts["gpus.name"]))  # a name that nobody knows is told here, with the ones like it
    except (GpuProblem, fields.BadValue) as problem:
        raise UserError(f"--gpus {text}", problem.text) from None
    if nodes is not None:
        facts.update(_on_machines(facts.get("gpus.count", 1), nodes))
    return [Fact(key, value, "set") for key, value in facts.items()]


def _on_machines(count: Value, nodes: str) -> dict[str, Value]:
    try:
        machines = fields.parse("gpus.nodes", nodes)
    except fields.BadValue as problem:
        raise UserError(f"--nodes {nodes}", problem.text) from None
    return {"gpus.count": int(str(count)) * int(str(machines)), "gpus.nodes": machines}


def gpu_facts(node: Node) -> dict[str, Value]:
    """The `gpus.*` facts of the entry. Raises GpuProblem, fields.BadValue."""
    if isinstance(node, Items):
        return _unequal([_card(item) for item in node.nodes], node.line)
    if isinstance(node, Scalar):
        return {f"gpus.{trait}": value for trait, value in _worded(node.text.strip()).items()}
    raise GpuProblem(Text("texts/card.gpus"), node.line)


def _worded(text: str) -> dict[str, Value]:
    times = _TIMES.fullmatch(text)
    if times:
        return {"count": fields.parse("gpus.count", times["count"]), "name": times["name"]}
    if text.isdecimal():
        return {"count": fields.parse("gpus.count", text)}
    return {"name": text} if text else {}


def _card(node: Node) -> dict[str, Value]:
    """One card of a list: its name, or a mapping of its traits (and a count)."""
    if isinstance(node, Scalar):
        return _worded(node.text.strip())
    if not isinstance(node, Pairs):
        raise GpuProblem(Text("texts/card.gpus"), node.line)
    traits: dict[str, Value] = {}
    for key, value in node.pairs:
        if key.text not in (*_TRAITS, "count"):
            known = [f"gpus.{trait}" for trait in (*_TRAITS, "count")]
            raise GpuProblem(fields.unknown_key(f"gpus.{key.text}", known), key.line)
        if not isinstance(value, Scalar):
            raise GpuProblem(Text("texts/fields.bad_list", {"key": f"gpus.{key.text}"}), key.line)
        traits[key.text] = fields.parse(f"gpus.{key.text}", value.text)
    return traits


def _unequal(cards: list[dict[str, Value]], line: int) -> dict[str, Value]:
    """Cards that differ: how many, each one's traits under `gpus.N.`, and the smallest as the one that a run must fit
    (a replica needs the same memory on each). Where a size is not known, only what all have in common is said."""
    each = [{trait: card[trait] for trait in _TRAITS if trait in card} for card in cards for _ in range(_count(card))]
    if not each:
        raise GpuProblem(Text("texts/card.gpus"), line)
    facts: dict[str, Value] = {"gpus.count": len(each)}
    sizes = [_size(card) for card in each] if any(card != each[0] for card in each) else []
    known = [size for size in sizes if size is not None]
    if sizes and len(known) == len(sizes):
        common = each[sizes.index(min(known))]
    else:
        common = {trait: value for trait, value in each[0].items() if all(card.get(trait) == value for card in each)}
    facts.update({f"gpus.{trait}": value for trait, value in common.items()})
    if any(card != each[0] for card in each):
        facts.update({f"gpus.{at}.{trait}": value for at, card in enumerate(each) for trait, value in card.items()})
    return facts


def _size(card: Mapping[str, Value]) -> int | None:
    """Bytes of a card, by its figure or its name; None where it has neither. Raises GpuProblem for an unknown name."""
    if "memory_mib" in card:
        return int(str(card["memory_mib"])) * MIB
    try:
        return find_card(str(card["name"])).total_bytes if "name" in card else None
    except UserError as error:
        raise GpuProblem(error.message) from None


def _count(card: dict[str, Value]) -> int:
    return min(int(card.get("count", 1)), 4096)  # type: ignore[arg-type]
