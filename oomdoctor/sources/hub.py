"""Fetches a model's config.json and what its files hold from the Hugging Face hub, by name. Only under `--hub`.

Needs the extra `[hub]` (huggingface-hub), which puts the files into its cache, where `oomdoctor.sources.cache` finds
them; HF_ENDPOINT, HF_TOKEN and HF_HOME are its own to read.
"""

from __future__ import annotations

import os

from oomdoctor.case import Fact, Text, UserError

_TIMEOUT = 10.0  # seconds for one answer


def fetch(name: str) -> list[Fact]:
    """Fetch the config of a model, and count its weights by their headers. Gives what the headers say.

    Raises UserError: the library is missing, or the hub does not give the file.
    """
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import huggingface_hub
    except ImportError:
        raise UserError("--hub", Text("texts/configs.no_hub"), Text("texts/configs.no_hub_hint")) from None
    try:
        path = huggingface_hub.hf_hub_download(name, "config.json", etag_timeout=_TIMEOUT)
    except Exception as error:  # it raises its own, requests' and httpx' errors
        why = Text("texts/configs.not_fetched", {"why": type(error).__name__})
        raise UserError(f"--hub {name}", why, Text("texts/configs.not_fetched_hint")) from None
    return _weights(name, f"config:{path}")


def _weights(name: str, source: str) -> list[Fact]:
    """Dtype and count by the headers of the safetensors files; nothing where there are none."""
    import huggingface_hub

    try:
        counts = huggingface_hub.get_safetensors_metadata(name).parameter_count
    except Exception:  # a model without safetensors is none the worse
        return []
    dtypes = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
    floats = {dtypes[kind]: count for kind, count in counts.items() if kind in dtypes}
    if not floats or len(floats) != len(counts):
        return []
    most = max(floats, key=lambda kind: floats[kind])
    return [Fact("config.checkpoint_dtype", most, source), Fact("config.parameters", sum(floats.values()), source)]
