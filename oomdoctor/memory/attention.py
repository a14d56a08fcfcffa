"""Which attention kernel runs, and what it keeps for backward.

Source: torch's SDPA dispatch (sdp_utils.cpp) and the saved tensors of each kernel, traced on the meta device.
"""

from __future__ import annotations

from typing import NamedTuple

from oomdoctor.case import Architecture, Run
from oomdoctor.memory.versions import Version

FLASH, EFFICIENT, MASKED, MATH, EAGER = "flash", "efficient", "masked", "math", "eager"
BIASED = "biased"

SCORE_WORKSPACE = 8  # bytes for each score that its softmax's backward needs: two fp32 tensors
_WIDEST_HEAD = 256  # of the flash kernels
_AMPERE = 8.0  # compute capability below which there is no flash kernel, and none of any fused kind for bf16
_BIAS_IN_SDPA = (5, 0)  # transformers: T5 hands its bias to SDPA; before, it had plain attention alone
_GQA_IN_SDPA = (4, 54)  # transformers: keys and values are no longer repeated where there is no mask
_GQA_IN_EFFICIENT = (2, 14)  # torch: the memory-efficient kernel takes fewer key heads than query heads


def kernel_of(run: Run, arch: Architecture, number_bytes: int, torch: Version, transformers: Version) -> str:
    """The kernel that this run ends up in: flash | efficient | masked (efficient with a mask) | biased | math | eager.

    biased: efficient, with a bias for each pair of tokens and head.
    """
    wanted = run.attn_implementation or "sdpa"
    if wanted == "eager" or (wanted == "sdpa" and not _has_sdpa(arch, transformers)):
        return EAGER
    if wanted == "flash_attention_2" and not arch.position_bias:
        return FLASH
    capability = run.compute_capability or _AMPERE
    half = number_bytes == 2
    if half and run.torch_dtype != "float16" and run.mixed_precision != "fp16" and capability < _AMPERE:
        return MATH  # the fused kernels of Turing and Volta know fp16 and fp32 only
    if arch.position_bias:
        return BIASED
    if _needs_mask(run, arch):
        return MASKED
    if half and capability >= _AMPERE and arch.head_dim <= _WIDEST_HEAD:
        return FLASH
    grouped = arch.num_key_value_heads < arch.num_attention_heads
    if grouped and transformers >= _GQA_IN_SDPA and torch < _GQA_IN_EFFICIENT:
        return MATH
    return EFFICIENT


def _has_sdpa(arch: Architecture, transformers: Version) -> bool:
    return arch.sdpa and not arch.soft_cap and not (arch.position_bias and transformers < _BIAS_IN_SDPA)


def _needs_mask(run: Run, arch: Architecture) -> bool:
    """transformers leaves the mask out where nothing is padded and no window cuts the sequence."""
    window = 0 < arch.sliding_window <= (run.max_length or 0)
    padded = run.padding == "longest" and not run.packing and (run.per_device_train_batch_size or 1) > 1
    return window or padded


class Setting(NamedTuple):
    """What attention runs in. number_bytes: of queries; length: tokens of one sequence; autocast: softmax is then fp32.

    output_needed: the output projection needs its input (it is trained); the fused kernels keep it in any case.
    output_copied: it reads a copy of theirs.
    """

    kernel: str
    number_bytes: int
    length: int
    autocast: bool
    output_needed: bool
    output_copied: bool = False


def saved_per_token(arch: Architecture, setting: Setting) -> float:
    """Bytes per token that one block's attention keeps: queries, keys, values, output and the kernel's own."""
    a, q, c, E, S = _letters(arch, setting)
    kernel = setting.kernel
    copy = _output_copy(arch, setting)
    if kernel == FLASH:
        return E * (2 * q + 2 * c) + 4 * a + copy  # log-sum-exp, fp32
    if kernel in (EFFICIENT, BIASED):
        return E * (2 * q + 2 * q) + 4 * a * _ceil32(S) / S + copy
    if kernel == MASKED:
        return E * (2 * q + 2 * q) + 4 * a * _ceil32(S) / S + E * S + copy  # an additive mask in each block
    own = E * q if setting.output_needed else 0
    if kernel == MATH:
        return 4 * (q + 2 * q) + own + 4 * a * S  # scaled queries, repeated keys and values, softmax
    return E * (q + 2 * q) + own + _eager_scores(arch, setting) * a * S


def _output_copy(arch: Architecture, setting: Setting) -> int:
    """Bytes per token of the output as its layer reads it, where that is not as the kernel laid it out."""
    return setting.number_bytes * arch.num_attention_heads * arch.head_dim if setting.output_copied else 0


def crossed(arch: Architecture, setting: Setting, batch: int, source_length: int) -> float:
    """Bytes of a micro-batch that one block's attention to another stack keeps. setting: of the block's own tokens."""
    a, q, c, E, S = _letters(arch, setting)
    T, source = batch * S, batch * source_length
    kernel, copy = setting.kernel, _output_copy(arch, setting) * T
    if kernel == FLASH:
        return E * (2 * q * T + 2 * c * source) + 4 * a * T + copy
    if kernel in (EFFICIENT, MASKED, BIASED):
        mask = E * S * source if kernel == MASKED else 0
        return E * (2 * q * T + 2 * q * source) + 4 * a * batch * _ceil32(S) + mask + copy
    own = E * q * T if setting.output_needed else 0
    if kernel == MATH:
        return 4 * (q * T + 2 * q * source) + own + 4 * a * S * source
    return E * (q * T + 2 * q * source) + own + _eager_scores(arch, setting) * a * S * source


def _eager_scores(arch: Architecture, setting: Setting) -> int:
    """Bytes per attention score: softmax, its cast to 16 bits, the cap's tanh, dropout's mask and output."""
    E = setting.number_bytes
    upcast = E < 4 and (arch.softmax_fp32 or (setting.autocast and not arch.softmax_keeps_dtype))
    softmax = 4 + E if upcast else E
    return softmax + (E if arch.soft_cap else 0) + (1 + E if arch.attention_dropout else 0)


def score_workspace(arch: Architecture, kernel: str, tokens: int, length: int) -> int:
    """Bytes that the softmax's backward needs beside what is saved."""
    return SCORE_WORKSPACE * arch.num_attention_heads * length * tokens if keeps_scores(kernel) else 0


def keeps_scores(kernel: str) -> bool:
    """Whether a kernel makes the table of all scores, tokens by tokens."""
    return kernel in (MATH, EAGER)


def _letters(arch: Architecture, setting: Setting) -> tuple[int, int, int, int, int]:
    a, k, d = arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim
    return a, a * d, k * d, setting.number_bytes, max(1, setting.length)


def _ceil32(number: int) -> int:
    return -(-number // 32) * 32
