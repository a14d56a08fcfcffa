"""What a config says, one setting at a time, whatever it is written in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from oomdoctor.case import Text, UserError
from oomdoctor.configs.nodes import Items, Node, Scalar, read_nodes

_MOST = 20_000  # settings of one file with its aliases filled in; real ones have some hundred
_NULLS = ("", "~", "null", "none")
MERGE = "<<"  # YAML: the pairs of another mapping stand here too


class Leaf(NamedTuple):
    """One setting. key: its name, with the names of the mappings around it (`zero_optimization.stage`).

    text: its value as written; a list's as texts; None: it is null, or an empty list or mapping. known: it can be read
    without running anything.
    """

    key: str
    text: str | list[str] | None
    line: int
    known: bool = True

    def shown(self) -> str:
        """The value on one line, cut where it is long."""
        text = " ".join(self.text) if isinstance(self.text, list) else str(self.text)
        return text if len(text) <= 60 else text[:57] + "..."


def leaves_of(root: Node, path: str) -> Iterator[Leaf]:
    """The settings of a tree, in its order; of a key that stands twice, both. The items of a list of mappings stand
    under the list's own name. Raises UserError where aliases of aliases make too many."""
    for count, leaf in enumerate(_leaves(root, "", 0)):
        if count >= _MOST:
            raise UserError(path, Text("texts/configs.too_many", {"limit": _MOST}))
        yield leaf


def _leaves(node: Node, key: str, line: int) -> Iterator[Leaf]:
    """line: of the key, for what stands under it."""
    if isinstance(node, Scalar):
        yield Leaf(key, None if not node.quoted and node.text.lower() in _NULLS else node.text, line or node.line)
    elif isinstance(node, Items) and all(isinstance(item, Scalar) for item in node.nodes):
        texts = [item.text for item in node.nodes if isinstance(item, Scalar)]
        yield Leaf(key, texts or None, line or node.line)
    elif isinstance(node, Items):
        for item in node.nodes:
            yield from _leaves(item, key, node.line)
    elif not node.pairs:
        yield Leaf(key, None, line or node.line)
    else:
        for inner, value in node.pairs:
            name = inner.text.strip()
            below = key if name == MERGE else f"{key}.{name}" if key else name
            yield from _leaves(value, below, inner.line)


def unfolded(leaf: Leaf, path: str) -> Iterator[Leaf]:
    """The settings of a leaf that holds JSON, as flags do (`--model_init_kwargs '{"dtype": "bfloat16"}'`), all on the
    leaf's line; else the leaf itself."""
    text = leaf.text
    if not isinstance(text, str) or not text.startswith("{") or not leaf.known:
        yield leaf
        return
    try:
        root = read_nodes(text, path, "configs")
    except UserError:
        yield leaf
        return
    for inner in leaves_of(root, path) if root is not None else ():
        yield inner._replace(key=f"{leaf.key}.{inner.key}", line=leaf.line)
