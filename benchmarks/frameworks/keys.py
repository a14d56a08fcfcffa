"""Writes the names of settings that a release of a framework takes, read from its package without running it.

    pip download --no-deps -d WHEELS axolotl==0.19.0
    python benchmarks/frameworks/keys.py WHEELS/axolotl-0.19.0-py3-none-any.whl

The lists lie in tests/data/frameworks; tests/edits/test_published_keys.py holds the edits against them.
"""

from __future__ import annotations

import ast
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).resolve().parents[2] / "tests" / "data" / "frameworks"
# Where each framework states its settings: files, and of which kind: fields of classes, or parameters of functions.
STATED: dict[str, tuple[str, tuple[str, ...]]] = {
    "axolotl": (r"axolotl/utils/schemas/|axolotl/utils/config/models|axolotl/integrations/\w+/args\.py", ()),
    "llamafactory": (r"llamafactory/hparams/", ()),
    "ms_swift": (r"swift/.*arg\w*\.py|swift/.*argument.*\.py|swift/.*arguments/", ()),
    "torchtune": (r"^recipes/|torchtune/models/llama3_1/_model_builders\.py", ("lora_llama3_1_8b",)),
    "transformers": (r"transformers/training_args(_seq2seq)?\.py", ()),
    "unsloth": (r"unsloth/models/(llama|loader)\.py", ("from_pretrained", "get_peft_model")),
    "lightning": (r"lightning/pytorch/trainer/trainer\.py", ("__init__",)),
}


def main(package: str) -> None:
    """package: the wheel or source archive of one release."""
    name, version = re.match(r"(\w+?)-([\d.]+\d)", Path(package).name).groups()  # type: ignore[union-attr]
    where, functions = STATED[name]
    trees = [ast.parse(text) for path, text in sources(package) if re.search(where, path)]
    names = sorted({found for tree in trees for found in stated(tree, functions)})
    OUT.mkdir(parents=True, exist_ok=True)
    target = OUT / f"{name.replace('_', '-')}-{version}.txt"
    target.write_text(f"# {Path(package).name}, {where}\n" + "\n".join(names) + "\n")
    print(target, len(names))


def sources(package: str) -> Iterator[tuple[str, str]]:
    """Path and text of each Python file of an archive."""
    if package.endswith(".whl"):
        with zipfile.ZipFile(package) as archive:
            for path in filter(lambda path: path.endswith(".py"), archive.namelist()):
                yield path, archive.read(path).decode("utf-8", "replace")
        return
    with tarfile.open(package) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") else None
            if file is not None:
                yield member.name, file.read().decode("utf-8", "replace")


def stated(tree: ast.AST, functions: tuple[str, ...]) -> Iterator[str]:
    """The annotated fields of classes, or the parameters of the functions named."""
    for node in ast.walk(tree):
        if functions and isinstance(node, ast.FunctionDef) and node.name in functions:
            yield from (argument.arg for argument in [*node.args.args, *node.args.kwonlyargs] if argument.arg != "self")
        elif functions and (found := _of_cfg(node)):
            yield found
        elif not functions and isinstance(node, ast.ClassDef):
            fields = (item.target for item in node.body if isinstance(item, ast.AnnAssign))
            yield from (field.id for field in fields if isinstance(field, ast.Name))


def _of_cfg(node: ast.AST) -> str | None:
    """The key that a recipe reads from its config: `cfg.KEY` or `cfg.get("KEY")`."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="cfg"), attr="get"), args=[ast.Constant(value=str(key)), *_]
        ):
            return key
        case ast.Attribute(value=ast.Name(id="cfg"), attr=key) if key != "get":
            return key
    return None


if __name__ == "__main__":
    for each in sys.argv[1:]:
        main(each)
