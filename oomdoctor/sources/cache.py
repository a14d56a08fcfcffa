"""Hugging Face's cache on this machine: where a model of a name lies, if it does. Nothing is fetched."""

from __future__ import annotations

import os

_LONGEST = 96  # characters of an owner and of a name
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
_REVISION = 40  # hexadecimal digits


def folders() -> tuple[str, ...]:
    """Where the cache may be: HF_HUB_CACHE, HF_HOME/hub, else ~/.cache/huggingface/hub."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return (os.path.expanduser(named),)
    home = os.environ.get("HF_HOME")
    if home:
        return (os.path.join(os.path.expanduser(home), "hub"),)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return (os.path.join(os.path.expanduser(base), "huggingface", "hub"),)


def cached(name: str) -> str | None:
    """The folder of a model's snapshot that holds its config.json: that of `main`, else the only one there is."""
    if not _is_repository(name):
        return None
    for folder in folders():
        model = os.path.join(folder, "models--" + name.replace("/", "--"))
        if os.path.isdir(model):
            return _snapshot(model)
    return None


def _is_repository(name: str) -> bool:
    """owner/name, or a name alone such as gpt2, of letters that the hub allows."""
    parts = name.split("/")
    return len(parts) <= 2 and all(0 < len(part) <= _LONGEST and _LETTERS.issuperset(part) for part in parts)


def _snapshot(model: str) -> str | None:
    snapshots = os.path.join(model, "snapshots")
    try:
        with open(os.path.join(model, "refs", "main"), encoding="ascii") as file:
            revision = file.read(64).strip()
    except (OSError, ValueError):
        revision = ""
    names = [revision] if len(revision) == _REVISION and revision.isalnum() else []
    try:
        there = os.listdir(snapshots)
    except OSError:
        return None
    if not names and len(there) == 1:
        names = there
    found = (os.path.join(snapshots, name) for name in names)
    return next((path for path in found if os.path.isfile(os.path.join(path, "config.json"))), None)
