"""Compiles rules/*.yaml into one JSON file per section, so that an installed oomdoctor never parses YAML to start."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRules(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # a checkout compiles its own rules when they change (oomdoctor/knowledge.py)
        root = Path(self.root)
        self._compiled = TemporaryDirectory(prefix="oomdoctor-rules-")  # also goes where the build fails
        out = Path(self._compiled.name)
        _knowledge(root).compile_all(root / "rules", out)
        for file in sorted(out.glob("*.json")):
            build_data["force_include"][str(file)] = f"oomdoctor/_rules/{file.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._compiled.cleanup()


def _knowledge(root: Path) -> Any:
    spec = importlib.util.spec_from_file_location("oomdoctor_knowledge", root / "oomdoctor" / "knowledge.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
