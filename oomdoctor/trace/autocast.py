"""Autocast on the meta device, with CUDA's list of operators.

Meta tensors have no autocast of their own. Here the dispatcher is told that every call has the autocast key of the
device that is simulated, and the kernels of that key are replaced by ones which cast meta tensors as autocast_mode.cpp
casts that device's. Whether it is on is asked of torch as ever (`torch.is_autocast_enabled`), so that model code which
turns it off for a few lines is obeyed. Source of the lists: ATen/autocast_mode.h, which torch ships.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from oomdoctor.trace.meter import purpose

aten = torch.ops.aten

# Matrix products and convolutions: all arguments are cast to 16 bits.
LOWER_PRECISION = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc", "conv_transpose1d",
    "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu", "addmm", "addmv", "addr", "matmul",
    "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm", "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot",
    "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
# Powers, norms, losses: all arguments are cast to fp32.
FP32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh",
    "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "native_layer_norm",
    "rms_norm", "group_norm", "frobenius_norm.dim", "nuclear_norm", "nuclear_norm.dim", "cosine_similarity",
    "poisson_nll_loss", "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss", "soft_margin_loss",
    "triplet_margin_loss", "multi_margin_loss", "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm",
    "logsumexp", "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
    "upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
    "_upsample_bilinear2d_aa", "upsample_trilinear3d", "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
# Sums and softmax: they are told to give fp32, and convert inside.
FP32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "linalg_vector_norm",
    "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum", "sum.dim_IntList", "norm.Scalar", "norm.ScalarOpt_dim",
)  # fmt: skip
# Several arguments that must agree: the widest of their dtypes.
PROMOTE = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put", "tensordot",
    "scatter_add",
)  # fmt: skip
# As FP32_RESULT, but by another overload, the one that takes a dtype.
_WITH_DTYPE = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}

CUDA: Mapping[str, tuple[str, ...]] = {
    "lower": LOWER_PRECISION,
    "fp32": FP32,
    "fp32_result": FP32_RESULT,
    "promote": PROMOTE,
}


class Autocast:
    """One device's autocast, for meta tensors. device: `cuda`, or another whose lists are given."""

    def __init__(self, device: str = "cuda", lists: Mapping[str, tuple[str, ...]] = CUDA) -> None:
        self.device = device
        self._key = getattr(torch._C.DispatchKey, {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}[device])
        self._without = torch._C.DispatchKeySet(self._key)
        self._copies: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self._depth = 0
        self._library = torch.library.Library("aten", "IMPL")
        casts = {"lower": self._lower, "fp32": self._fp32, "fp32_result": self._fp32_result, "promote": self._promote}
        for kind, names in lists.items():
            for name in names:
                self._override(name, casts[kind])

    def _override(self, name: str, cast: Callable[..., Any]) -> None:
        packet, _, overload = name.partition(".")
        overload = _WITH_DTYPE.get(name, overload)
        operator = getattr(getattr(aten, packet, None), overload or "default", None)
        if operator is None:
            return  # another version of torch

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(self._without):
                return cast(operator, args, kwargs)

        self._library.impl(name, kernel, self._key.name)

    def end(self) -> None:
        """Give torch its own kernels back."""
        self._library._destroy()

    # What is cast -----------------------------------------------------------------------------------------------

    def _lower(self, operator: Any, args: Any, kwargs: Any) -> Any:
        return self._cast_all(operator, args, kwargs, torch.get_autocast_dtype(self.device))

    def _fp32(self, operator: Any, args: Any, kwargs: Any) -> Any:
        return self._cast_all(operator, args, kwargs, torch.float32)

    def _fp32_result(self, operator: Any, args: Any, kwargs: Any) -> Any:
        if _is_cast(args[0]) and kwargs.get("dtype") is None and not any(isinstance(a, torch.dtype) for a in args):
            kwargs = {**kwargs, "dtype": torch.float32}
        return operator(*args, **kwargs)

    def _promote(self, operator: Any, args: Any, kwargs: Any) -> Any:
        tensors = [tensor for tensor in _tensors((args, tuple(kwargs.values()))) if _is_cast(tensor)]
        wide = any(tensor.dtype == torch.float32 for tensor in tensors)
        return self._cast_all(operator, args, kwargs, torch.float32 if wide else torch.get_autocast_dtype(self.device))

    def _cast_all(self, operator: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        kwargs = {name: self._cast(arg, dtype) for name, arg in kwargs.items()}
        last_first = [self._cast(arg, dtype) for arg in reversed(args)]  # as the compiler of torch's builds has it
        return operator(*reversed(last_first), **kwargs)

    def _cast(self, arg: Any, dtype: torch.dtype) -> Any:
        if isinstance(arg, (list, tuple)):
            return [self._cast(item, dtype) for item in arg]
        if not _is_cast(arg) or arg.dtype == dtype:
            return arg
        if dtype == torch.float32 or arg.dtype != torch.float32 or not _is_kept(arg):
            return arg.to(dtype)
        return self._copy_of(arg, dtype)

    def _copy_of(self, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The 16-bit copy of a trained fp32 weight: made once, and kept until autocast ends."""
        known = self._copies.get(id(weight))
        if known is None or known[0]() is not weight:
            with purpose("cast_cache"):
                known = weakref.ref(weight), weight.to(dtype)
            self._copies[id(weight)] = known
        return known[1]

    # When it is on ----------------------------------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """The dispatcher asks this autocast of every call; it does nothing until it is enabled."""
        with torch._C._IncludeDispatchKeyGuard(self._key):
            yield

    @contextmanager
    def on(self, dtype: torch.dtype | None, enabled: bool = True) -> Iterator[None]:
        """What `torch.autocast(device, dtype, enabled)` does, without asking for the device."""
        before = torch.is_autocast_enabled(self.device), torch.get_autocast_dtype(self.device)
        torch.set_autocast_enabled(self.device, enabled)
        torch.set_autocast_dtype(self.device, dtype or before[1])
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._copies.clear()
            torch.set_autocast_enabled(self.device, before[0])
            torch.set_autocast_dtype(self.device, before[1])

    def as_now(self) -> Callable[[], AbstractContextManager[None]]:
        """Contexts in which later is in force what is now: checkpointing runs a block again under them."""
        enabled, dtype = torch.is_autocast_enabled(self.device), torch.get_autocast_dtype(self.device)
        return lambda: self.on(dtype, enabled)


def stand_in(cast: Autocast) -> None:
    """What torch says of autocast on the meta device is what this one says, for model code that asks or switches it.

    transformers' own `maybe_autocast` leaves the meta device out. Model files take it by name, so this must come first.
    """
    torch.autocast = torch.amp.autocast = _context(cast, torch.autocast)  # type: ignore[misc, assignment]
    torch.is_autocast_enabled = _of_device(cast, torch.is_autocast_enabled)
    torch.get_autocast_dtype = _of_device(cast, torch.get_autocast_dtype)


def stand_in_for_transformers() -> None:
    """`maybe_autocast` without the exception for the meta device."""
    from transformers.utils import generic

    def maybe_autocast(
        device_type: str, dtype: torch.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> AbstractContextManager[Any]:
        if torch.is_autocast_enabled(device_type) or enabled:
            return torch.autocast(device_type, dtype=dtype, enabled=enabled)
        return nullcontext()

    generic.maybe_autocast = maybe_autocast


def _context(cast: Autocast, usual: Any) -> Callable[..., AbstractContextManager[Any]]:
    def autocast(device_type: str, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        if device_type not in ("meta", cast.device):
            return usual(device_type, *args, **kwargs)  # type: ignore[no-any-return]
        given = dict(zip(("dtype", "enabled", "cache_enabled"), args, strict=False)) | kwargs
        return cast.on(given.get("dtype"), bool(given.get("enabled", True)))

    return autocast


def _of_device(cast: Autocast, usual: Callable[..., Any]) -> Callable[..., Any]:
    def asked(device_type: str | None = None) -> Any:
        return usual(cast.device if device_type in (None, "meta") else device_type)

    return asked


def _is_cast(arg: Any) -> bool:
    """Whether autocast touches it at all: a tensor of the simulated device, of 16 or 32 bits."""
    return (
        isinstance(arg, torch.Tensor)
        and arg.device.type == "meta"
        and arg.dtype.is_floating_point
        and arg.dtype != torch.float64
    )


def _is_kept(arg: torch.Tensor) -> bool:
    """Whether its 16-bit copy is kept: a trained weight itself, not a view of one."""
    return arg.requires_grad and arg.is_leaf and not arg._is_view()


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    if isinstance(args, torch.Tensor):
        yield args
    elif isinstance(args, (list, tuple)):
        for arg in args:
            yield from _tensors(arg)
