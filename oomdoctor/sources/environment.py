"""The versions of the packages beside oomdoctor, where its environment is plausibly that of the run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from oomdoctor.case import Fact, Text, Value

# The packages whose release decides how something is said, or what it costs: as they are named in `versions.*`.
PACKAGES = (
    "torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "deepspeed", "axolotl", "llamafactory",
    "ms-swift", "unsloth", "torchtune", "lightning", "vllm",
)  # fmt: skip


def folder_of(frames: Iterable[str], folders: Iterable[str]) -> str | None:
    """The folder of packages that the frames of a traceback were in, if it is one of these; else None.

    frames: `path:line in function`. folders: those that Python looks for packages in here (`sys.path`).
    """
    here = {os.path.normpath(folder) for folder in folders if folder.endswith("-packages")}
    for frame in frames:
        head, found, _ = frame.partition("-packages/")
        folder = os.path.normpath(head + "-packages")
        if found and folder in here:
            return folder
    return None


def versions_here(reason: Text, known: Mapping[str, Value]) -> list[Fact]:
    """The versions installed here of what is not known; none where one that is known is another one here.

    Then the packages were changed since, or the environment only looks alike. known: the facts of the case.
    """
    installed = _installed()
    for package, version in installed.items():
        stated = known.get(f"versions.{package}")
        if stated is not None and _plain(str(stated)) != _plain(version):
            return []
    return [
        Fact(f"versions.{package}", version, "environment", reason)
        for package, version in installed.items()
        if f"versions.{package}" not in known
    ]


def _installed() -> dict[str, str]:
    from contextlib import suppress
    from importlib import metadata  # takes longer than all else here

    found = {}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def _plain(version: str) -> str:
    """Without the build: `2.6.0` for `2.6.0+cu124`."""
    return version.partition("+")[0]
