"""Images as a model's processor hands them over: of the right shapes, without values.

Sizes that model code reads (how many patches an image has) lie on the CPU, where they have values and count nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from oomdoctor.trace.spec import Spec


def images_of(model: Any, spec: Spec) -> Mapping[str, torch.Tensor]:
    """What a micro-batch holds of images; nothing where the model sees none or the run has none."""
    vision = getattr(model.config, "vision_config", None)
    if vision is None or not spec.images or model.main_input_name != "input_ids":
        return {}
    if hasattr(vision, "spatial_merge_size") and hasattr(vision, "temporal_patch_size"):
        return _patches(model, vision, spec)
    return {"pixel_values": _pixels(spec.batch * spec.images, vision, spec)} | _types(model, spec)


def _pixels(count: int, vision: Any, spec: Spec) -> torch.Tensor:
    """Images of the size that the model was made for."""
    size = vision.image_size if isinstance(vision.image_size, (list, tuple)) else (vision.image_size,) * 2
    channels = getattr(vision, "num_channels", 3)
    return torch.ones(count, channels, *size, dtype=getattr(torch, spec.dtype), device=spec.device)


def _patches(model: Any, vision: Any, spec: Spec) -> Mapping[str, torch.Tensor]:
    """Qwen's way: rows of patches, as many as an image's pixels allow, and the shape of each image in patches."""
    side = sides_of(spec.pixels, vision.patch_size * vision.spatial_merge_size) * vision.spatial_merge_size
    count = spec.batch * spec.images
    width = getattr(vision, "in_channels", 3) * vision.temporal_patch_size * vision.patch_size**2
    patches = torch.ones(count * side * side, width, dtype=getattr(torch, spec.dtype), device=spec.device)
    grid = torch.tensor([[1, side, side]] * count)
    places = torch.ones(3, spec.batch, spec.length, dtype=torch.long, device=spec.device)
    return {"pixel_values": patches, "image_grid_thw": grid, "position_ids": places} | _types(model, spec)


def image_tokens(spec: Spec, model: Any) -> int:
    """Tokens of a micro-batch that stand for patches, where an image may have any size; else 0."""
    vision = getattr(model.config, "vision_config", None)
    if not spec.images or vision is None or not hasattr(vision, "spatial_merge_size"):
        return 0
    side = sides_of(spec.pixels, vision.patch_size * vision.spatial_merge_size)
    return spec.batch * spec.images * side * side


def _types(model: Any, spec: Spec) -> dict[str, torch.Tensor]:
    """Which tokens are of an image, for models that ask."""
    import inspect

    found = {}
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in inspect.signature(model.forward).parameters:
            found[name] = torch.ones(spec.batch, spec.length, dtype=torch.long, device=spec.device)
    return found


def sides_of(pixels: int, cell: int) -> int:
    """Cells along each side of a square image of at most so many pixels."""
    return max(1, math.isqrt(pixels) // cell)
