"""Which attention kernel runs, and what it keeps for backward.

Source: torch's SDPA dispatch (sdp_utils.cpp) and the saved tensors of each kernel, traced on the meta device.
"""

from typing import NamedTuple

from oomdoctor.case import Architecture, Run
from oomdoctor.memory.versions import Version

FLASH, EFFICIENT, MASKED, MATH, EAGER = "flash", "efficient", "masked", "math", "eager"
BIASED = "biased"

_WIDEST_HEAD = 256  # of the flash kernels
_AMPERE = 8.0  # compute capability below which there is no flash kernel, and none of any fused kind for bf16
_BIAS_IN_SDPA = (5, 0)  # transformers: T5 hands its bias to SDPA; before, it had plain attention alone
_GQA_IN_SDPA = (4, 54)  # transformers: keys and values are no longer repeated where there is no mask,
_GQA_IN_FLASH = (2, 5)  # from this torch on
_GQA_IN_EFFICIENT = (2, 14)  # torch: the memory-efficient kernel takes fewer key heads than query heads
_MATH_UPCASTS = (2, 5)  # torch: the plain operators run in fp32 whatever they are given


def kernel_of(run: Run, arch: Architecture, number_bytes: int, torch: Version, transformers: Version) -> str:
    """The kernel that this run ends up in: flash | efficient | masked (efficient with a mask) | biased | math | eager.

    biased: efficient, with a bias for each pair of tokens and head.
    """
    wanted = run.attn_implementation or "sdpa"
    if wanted == "eager" or (wanted == "sdpa" and not _has_sdpa(arch, transformers)):
        return EAGER
    if wanted == "flash_attention_2" and not arch.position_bias:
        return FLASH
    if arch.broadcast_keys:
        return MATH
    capability = run.compute_capability or _AMPERE
    half = number_bytes == 2
    if half and run.torch_dtype != "float16" and run.mixed_precision != "fp16" and capability < _AMPERE:
        return MATH  # the fused kernels of Turing and Volta know fp16 and fp32 only
    if arch.position_bias:
        return BIASED
    if _needs_mask(run, arch):
        return MASKED
    if half and capability >= _AMPERE and arch.head_dim <= _WIDEST_HEAD and not arch.latent:
        return FLASH  # which takes keys and values of one width
    if grouped(arch) and transformers >= _GQA_IN_SDPA and torch < _GQA_IN_EFFICIENT:
        return MATH
    return EFFICIENT


def _has_sdpa(arch: Architecture, transformers: Version) -> bool:
    return arch.sdpa and not arch.soft_cap and not (arch.position_bias and transformers < _BIAS_IN_SDPA)


def grouped(arch: Architecture) -> bool:
    """Fewer heads of keys and values than of queries."""
    return arch.num_key_value_heads < arch.num_attention_heads


def told_of_groups(torch: Version, transformers: Version) -> bool:
    """Whether transformers tells SDPA of grouped heads (enable_gqa) instead of copying them; it does without a mask."""
    return transformers >= _GQA_IN_SDPA and torch >= _GQA_IN_FLASH


def repeats(run: Run, arch: Architecture, kernel: str, told: bool, batch: int) -> bool:
    """Whether keys and values are copied for all heads of queries before this kernel (transformers' repeat_kv)."""
    if not grouped(arch) or run.attn_implementation == "flash_attention_2":
        return False
    if arch.broadcast_keys:
        return batch > 1  # a product over batch and heads at once needs them in one piece
    if kernel == MASKED and arch.num_key_value_heads == 1:
        return False  # one head is shown to all without being copied
    return kernel in (EAGER, MASKED) or not told


def math_bytes(number_bytes: int, torch: Version) -> int:
    """Bytes of the numbers that the plain operators run in."""
    return 4 if torch >= _MATH_UPCASTS else number_bytes


def _needs_mask(run: Run, arch: Architecture) -> bool:
    """transformers leaves the mask out where nothing is padded and no window cuts the sequence."""
    window = 0 < arch.sliding_window <= (run.max_length or 0)
    padded = run.padding == "longest" and not run.packing and (run.per_device_train_batch_size or 1) > 1
    return window or padded or bool(arch.masked_by_images and run.images(arch))


class Setting(NamedTuple):
    """What attention runs in. number_bytes: of queries; length: tokens of one sequence; autocast: softmax is then fp32.

    output_needed: the output projection needs its input (it is trained); the fused kernels keep it in any case.
    output_copied: it reads a copy of theirs. repeated: keys and values were copied for all heads. math_bytes: of the
    numbers of plain operators. batch: sequences.
    """

    kernel: str
    number_bytes: int
    length: int
    autocast: bool
    output_needed: bool
    output_copied: bool = False
    repeated: bool = False
    math_bytes: int = 4
    batch: int = 1


def saved_per_token(arch: Architecture, setting: Setting) -> float:
    """Bytes per token that one block's attention keeps: queries, keys, values, output and the kernel's own."""
    a, q, c, E, S = _letters(arch, setting)
    kernel, kept = setting.kernel, E * _fused_projection(arch, setting) + _output_copy(arch, setting)
    keys = 2 * (q if setting.repeated else c)  # and values
    out = q
    if arch.latent:
        out, keys = arch.latent.values, q + arch.latent.expanded
    if kernel == FLASH:
        return E * (q + out + keys) + 4 * a + kept  # log-sum-exp, fp32
    if kernel in (EFFICIENT, BIASED):
        return E * (q + out + keys) + 4 * a * _ceil32(S) / S + kept
    if kernel == MASKED:
        return E * (q + out + keys) + 4 * a * _ceil32(S) / S + E * S + kept  # an additive mask in each block
    own = E * q if setting.output_needed else 0
    if kernel == MATH:
        return _math(arch, setting) + own + kept
    return E * (q + keys) + own + _eager_scores(arch, setting) * a * S + kept


def _math(arch: Architecture, setting: Setting) -> int:
    """Scaled queries, keys and values (of all heads, or one for all), softmax, dropout's mask and output."""
    a, q, c, _, S = _letters(arch, setting)
    M, keys = setting.math_bytes, 2 * (c if arch.broadcast_keys and not setting.repeated else q)
    return M * (q + keys) + (M + (1 + M if arch.attention_dropout else 0)) * a * S


def _fused_projection(arch: Architecture, setting: Setting) -> int:
    """Numbers of queries and keys, as they were before rotation, that lie in one tensor with the values.

    The values are a view of what one projection puts out, so that all of it is kept, beside the rotated ones.
    """
    if not arch.rotary or not arch.values_in_view or setting.repeated or _copies_values(setting):
        return 0
    _, q, c, _, _ = _letters(arch, setting)
    return q + c if any(linear.short == "qkv" for linear in arch.linears) else 0


def _copies_values(setting: Setting) -> bool:
    """Plain products take batch and heads in one piece, and may run in another dtype."""
    plain = keeps_scores(setting.kernel)
    return plain and (setting.batch > 1 or (setting.kernel == MATH and setting.math_bytes != setting.number_bytes))


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
    """Bytes per attention score: softmax, what multiplies the values, the cap's tanh, dropout's mask.

    A 16-bit copy of an fp32 softmax or what dropout puts out is kept for that product, not both.
    """
    E, dropout = setting.number_bytes, bool(arch.attention_dropout)
    upcast = _fp32_softmax(arch, E, setting.autocast)
    softmax = 4 + E if upcast else E
    return softmax + (E if arch.soft_cap else 0) + (1 if dropout else 0) + (E if dropout and not upcast else 0)


def _fp32_softmax(arch: Architecture, number_bytes: int, autocast: bool) -> bool:
    """Whether eager attention makes an fp32 softmax of 16-bit scores."""
    return number_bytes < 4 and (arch.softmax_fp32 or (autocast and not arch.softmax_keeps_dtype))


def gone_before_softmax(arch: Architecture, kernel: str, number_bytes: int, autocast: bool) -> int:
    """Bytes per score that are gone when backward comes to the softmax of eager attention: what multiplied the values,
    where that is no longer the softmax itself, and dropout's mask."""
    if kernel != EAGER:
        return 0
    copied = bool(arch.attention_dropout) or _fp32_softmax(arch, number_bytes, autocast)
    return (number_bytes if copied else 0) + (1 if arch.attention_dropout else 0)


def softmax_bytes(arch: Architecture, kernel: str, number_bytes: int, autocast: bool, torch: Version) -> int:
    """Bytes of each number that the softmax of plain operators puts out."""
    if kernel == MATH:
        return math_bytes(number_bytes, torch)
    return 4 if _fp32_softmax(arch, number_bytes, autocast) else number_bytes


def keeps_scores(kernel: str) -> bool:
    """Whether a kernel makes the table of all scores, tokens by tokens."""
    return kernel in (MATH, EAGER)


def _letters(arch: Architecture, setting: Setting) -> tuple[int, int, int, int, int]:
    a, k, d = arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim
    return a, a * d, k * d, setting.number_bytes, max(1, setting.length)


def _ceil32(number: int) -> int:
    return -(-number // 32) * 32
