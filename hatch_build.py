"""Compiles rules/*.yaml into one JSON file per section, so that an installed oomdoctor never parses YAML to start."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRules(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a checkout compiles its own rules when they change (oomdoctor/knowledge.py)
        root = Path(self.root)
        out = Path(tempfile.mkdtemp(prefix="oomdoctor-rules-"))
        _knowledge(root).compile_all(root / "rules", out)
        for file in sorted(out.glob("*.json")):
            build_data["force_include"][str(file)] = f"oomdoctor/_rules/{file.name}"


def _knowledge(root: Path) -> Any:
    spec = importlib.util.spec_from_file_location("oomdoctor_knowledge", root / "oomdoctor" / "knowledge.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
