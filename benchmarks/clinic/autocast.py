"""CUDA's autocast on CPU tensors: its lists of operators in the place of the CPU's. Source: autocast_mode.cpp."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from oomdoctor.trace.autocast import _WITH_DTYPE, CUDA

aten = torch.ops.aten

_ONLY_ON_CPU = ("cat", "stack", "index_copy", "cross_entropy_loss")  # CUDA's leaves them alone


class Autocast:
    """CUDA's autocast on CPU tensors: its lists in the place of the CPU's."""

    def __init__(self, library: torch.library.Library) -> None:
        self._copies: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
        self._outside = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        for name in _ONLY_ON_CPU:
            library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
        casts = {"lower": self._lower, "fp32": self._to_fp32, "fp32_result": self._result, "promote": self._promote}
        for kind, names in CUDA.items():
            for name in names:
                self._override(library, name, casts[kind])

    def _override(self, library: torch.library.Library, name: str, cast: Callable[..., Any]) -> None:
        packet, _, overload = name.partition(".")
        overload = _WITH_DTYPE.get(name, overload)
        operator = getattr(getattr(aten, packet, None), overload or "default", None)
        if operator is None:
            return  # another version of torch

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(self._outside):
                return cast(operator, args, kwargs)

        library.impl(name, kernel, "AutocastCPU")

    def leaving(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        """autocast's exit, which also drops the copies of weights, as the outermost does."""

        def exit(context: Any, *args: Any) -> Any:
            torch.autocast_increment_nesting()
            if torch.autocast_decrement_nesting() == 1:
                self._copies.clear()
            return leave(context, *args)

        return exit

    def _lower(self, operator: Any, args: Any, kwargs: Any) -> Any:
        return self._cast_all(operator, args, kwargs, torch.get_autocast_dtype("cpu"))

    def _to_fp32(self, operator: Any, args: Any, kwargs: Any) -> Any:
        return self._cast_all(operator, args, kwargs, torch.float32)

    def _result(self, operator: Any, args: Any, kwargs: Any) -> Any:
        says = kwargs.get("dtype") is not None or any(isinstance(arg, torch.dtype) for arg in args)
        return operator(*args, **(kwargs if says or not _is_cast(args[0]) else {**kwargs, "dtype": torch.float32}))

    def _promote(self, operator: Any, args: Any, kwargs: Any) -> Any:
        tensors = [arg for arg in torch.utils._pytree.tree_leaves((args, kwargs)) if _is_cast(arg)]
        wide = any(tensor.dtype == torch.float32 for tensor in tensors)
        return self._cast_all(operator, args, kwargs, torch.float32 if wide else torch.get_autocast_dtype("cpu"))

    def _cast_all(self, operator: Any, args: Any, kwargs: Any, dtype: torch.dtype) -> Any:
        kwargs = {name: self._cast(arg, dtype) for name, arg in kwargs.items()}
        last_first = [self._cast(arg, dtype) for arg in reversed(args)]  # as the compiler of torch's builds has it
        return operator(*reversed(last_first), **kwargs)

    def _cast(self, arg: Any, dtype: torch.dtype) -> Any:
        if isinstance(arg, (list, tuple)):
            return [self._cast(item, dtype) for item in arg]
        if not _is_cast(arg) or arg.dtype == dtype:
            return arg
        kept = arg.dtype == torch.float32 and arg.requires_grad and arg.is_leaf and not arg._is_view()
        return self._copy_of(arg, dtype) if kept and dtype != torch.float32 else arg.to(dtype)

    def _copy_of(self, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The 16-bit copy of a trained fp32 weight: made once, kept until autocast ends."""
        known = self._copies.get(id(weight))
        if known is None or known[0]() is not weight:
            known = self._copies[id(weight)] = weakref.ref(weight), weight.to(dtype)
        return known[1]


def _is_cast(arg: Any) -> bool:
    return isinstance(arg, torch.Tensor) and arg.dtype in (torch.float16, torch.bfloat16, torch.float32)
