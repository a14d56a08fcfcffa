"""How many parameters a model has, and what they weigh in each dtype and quantization.

Source of the counts: the modules themselves (`sum(p.numel() for p in model.parameters())` on the meta device agrees).
"""

from functools import lru_cache
from typing import NamedTuple

from oomdoctor.case import Architecture, Linear

BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float32-master": 2.0}

# Bytes per quantized weight, and per output channel.
# bitsandbytes 4-bit (QLoRA paper, section 3): half a byte, and one fp32 absmax for each block of 64; double
# quantization stores the absmax in 8 bits with one fp32 scale for each 256. int8 (LLM.int8): a byte.
# GPTQ, group size 128 (the usual one): packed weights, an fp16 scale and a packed zero a group, an int32 group index
# per input channel (small, left out).
QUANTIZED_BYTES = {
    "nf4": 0.5 + 4 / 64,
    "fp4": 0.5 + 4 / 64,
    "nf4-double": 0.5 + 1 / 64 + 4 / (64 * 256),
    "int8": 1.0,
    "gptq-int4": 0.5 + (2 + 0.5) / 128,
    "gptq-int8": 1.0 + (2 + 1) / 128,
}

FOUR_BITS = ("nf4", "nf4-double", "fp4")  # of bitsandbytes
PACKED = 0.5  # bytes of a 4-bit weight itself, without its scale


class Counts(NamedTuple):
    """Parameters by the way they are treated. blocks: weights of the blocks' linears (what gets quantized)."""

    blocks: int
    experts: int  # of the blocks, fused into one parameter, which is no linear layer
    biases: int  # of the blocks' linears
    norms: int  # of the blocks, and the last one
    embedding: int  # token and position tables
    lm_head: int  # 0 where it is tied
    extra: int
    stacks: int = 0  # of all stacks before the model's own, whatever it is
    stack_blocks: int = 0  # among them, what gets quantized

    @property
    def total(self) -> int:
        return self.stacks + self.own

    @property
    def to_quantize(self) -> int:
        """Weights of linear layers, those of all stacks."""
        return self.blocks + self.stack_blocks

    @property
    def own(self) -> int:
        """Without the stacks before."""
        return self.blocks + self.experts + self.biases + self.norms + self.embedding + self.lm_head + self.extra


def parameters(arch: Architecture) -> int:
    """All parameters of the model; a tied lm_head counts once."""
    return counts(arch).total


@lru_cache(maxsize=64)  # the bills of a plan are of one model, and those of many cards of a few
def counts(arch: Architecture) -> Counts:
    """The model's parameters, by kind."""
    layers, width = arch.num_hidden_layers, arch.embedding_size or arch.hidden_size
    before = [counts(stack.arch) for stack in arch.stacks]
    between = [linear for stack in arch.stacks for linear in stack.projector]
    projectors = sum(linear_weights(linear) for linear in between)
    biases = sum(linear.count * linear.outputs for linear in between if linear.bias)
    return Counts(
        blocks=layers * sum(linear_weights(linear) for linear in arch.linears if not linear.fused),
        experts=layers * sum(linear_weights(linear) for linear in arch.linears if linear.fused),
        biases=layers * sum(linear.count * linear.outputs for linear in arch.linears if linear.bias),
        norms=layers * norms_of_a_layer(arch) + norm_parameters(arch),
        embedding=arch.vocab_size * width + arch.learned_positions * arch.hidden_size,
        lm_head=lm_head(arch),
        extra=arch.extra_parameters,
        stacks=sum(found.total for found in before) + projectors + biases,
        stack_blocks=sum(found.blocks for found in before) + projectors,
    )


def linear_weights(linear: Linear) -> int:
    """Weights of one kind of linear layer in one block, without biases."""
    return linear.count * linear.inputs * linear.outputs


def layer_parameters(arch: Architecture) -> int:
    """Parameters of one block: what FSDP and ZeRO-3 gather at a time."""
    found = counts(arch)
    return (found.blocks + found.experts + found.biases) // max(1, arch.num_hidden_layers) + norms_of_a_layer(arch)


def norm_parameters(arch: Architecture) -> int:
    """Of one norm over the hidden size."""
    return arch.hidden_size * (2 if arch.norm_bias else 1)


def norms_of_a_layer(arch: Architecture) -> int:
    """Of all norms in one block, those of queries and keys (over the head dimension) included."""
    return arch.norms_per_layer * norm_parameters(arch) + (2 * arch.head_dim if arch.qk_norm else 0)


def lm_head(arch: Architecture) -> int:
    """Parameters of the output layer that are its own."""
    width = arch.embedding_size or arch.hidden_size
    own = 0 if arch.tie_word_embeddings else arch.vocab_size * width
    return own + (arch.vocab_size if arch.lm_head_bias else 0)
