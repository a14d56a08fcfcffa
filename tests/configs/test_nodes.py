"""Nodes of YAML and JSON: where they stand, and what is refused."""

import pytest

from oomdoctor.case import UserError
from oomdoctor.configs.nodes import Items, Pairs, Scalar, read_nodes


def test_a_scalar_knows_its_place_in_the_text() -> None:
    text = 'a: 1\nb:\n  c: "x: y"  # said\n  d: [p, q]\n'
    root = read_nodes(text, "f.yaml")
    assert isinstance(root, Pairs)
    inner = {key.text: node for key, node in root.pairs}["b"]
    assert isinstance(inner, Pairs)
    quoted, items = inner.pairs[0][1], inner.pairs[1][1]
    assert isinstance(quoted, Scalar) and isinstance(items, Items)
    assert (quoted.line, text[quoted.start : quoted.end], quoted.text) == (3, '"x: y"', "x: y")
    assert [text[item.start : item.end] for item in items.nodes if isinstance(item, Scalar)] == ["p", "q"]


def test_places_count_characters_not_bytes() -> None:
    text = "说明: 训练\nkey: value\n"
    root = read_nodes(text, "f.yaml")
    assert isinstance(root, Pairs) and isinstance(node := root.pairs[1][1], Scalar)
    assert text[node.start : node.end] == "value"


def test_an_alias_is_the_node_of_its_anchor_where_it_is_allowed() -> None:
    root = read_nodes("a: &x {b: 1}\nc: *x\n", "f.yaml", aliases=True)
    assert isinstance(root, Pairs)
    assert root.pairs[0][1] is root.pairs[1][1]
    with pytest.raises(UserError):
        read_nodes("a: &x {b: 1}\nc: *x\n", "f.yaml")


@pytest.mark.parametrize(
    "text", ["a: *x\n", "a: &x [*x]\n", "a: 'open\n", "a: b: c\n", "[" * 100 + "]" * 100, "a: 1\n---\nb: 2\n"]
)
def test_what_cannot_be_read_is_one_error(text: str) -> None:
    with pytest.raises(UserError):
        read_nodes(text, "f.yaml", "configs", aliases=True)
