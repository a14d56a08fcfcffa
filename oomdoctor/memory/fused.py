"""Experts as transformers 5 builds them: all of one kind are one parameter instead of many linear layers."""

from __future__ import annotations

from oomdoctor.case import Architecture, Linear
from oomdoctor.memory.versions import Version


def as_built(arch: Architecture, transformers: Version) -> Architecture:
    """The architecture as this version builds it: with fused experts, or as it is."""
    if not arch.num_experts or not arch.experts_fused_since or transformers[0] < arch.experts_fused_since:
        return arch
    layers = [linear for linear in arch.linears if linear.count == 1]
    routed = [linear for linear in arch.linears if linear.count > 1]
    for reads, name in (("mlp_in", "gate_up_proj"), ("mlp_mid", "down_proj")):
        pieces = [linear for linear in routed if linear.reads == reads]
        if pieces:
            layers.append(_joined(name, pieces))
    return arch._replace(linears=tuple(layers))


def _joined(name: str, pieces: list[Linear]) -> Linear:
    names = tuple(piece.name for piece in pieces) if len(pieces) > 1 else ()
    outputs = sum(piece.outputs for piece in pieces)
    own = pieces[0].name if len(pieces) == 1 else name
    return pieces[0]._replace(name=own, outputs=outputs, fused=True, pieces=names)


def fused(arch: Architecture) -> tuple[Linear, ...]:
    """The fused parameters of one block."""
    return tuple(linear for linear in arch.linears if linear.fused)


def adapter_numbers(linear: Linear, rank: int) -> int:
    """Parameters of both factors of one kind of layer; those fused of two pieces have twice the rank."""
    return linear.count * rank * max(1, len(linear.pieces)) * (linear.inputs + linear.outputs)
