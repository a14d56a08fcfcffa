"""The kinds of large logs that are measured: what they are made of, how they are stored, how long reading may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

# What ends each of them.
OOM = (
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    b"of which 1.12 GiB is free. Including non-PyTorch memory, this process has 78.01 GiB memory in use. Of the "
    b"allocated memory 74.12 GiB is allocated by PyTorch, and 2.90 GiB is reserved by PyTorch but unallocated.\n"
)
STEPS = 10_000  # few, as a command's memory is counted from its parent's on
# Of short lines grep passes 1.4 GB/s; to count their line feeds alone takes CPython half as long.
SHORT_LINES = 1.25
WORDS = b"loss 2.3456 lr 1.0e-05 grad_norm 0.98 tokens per second 12345.6 memory allocated 71.2 GiB of 79.1 GiB "


class Kind(NamedTuple):
    """block: what is repeated; form: plain, gz or utf-16; allowed: ratio of the time to grep's, None where grep passes
    such bytes without looking at them."""

    block: bytes
    form: str = "plain"
    allowed: float | None = 1.0


def _bar(step: int) -> str:
    percent = step // 100 % 101
    left = f"[{step // 60 % 60:02d}:{step % 60:02d}<3:21:04, 12.34it/s, loss={2 + step % 997 / 1000:.4f}]"
    return f"Training: {percent:3d}%|{'#' * (percent // 10):<10}| {step}/1000000 {left}"


def _yolo_bar(step: int) -> str:
    percent = step // 73 % 101
    losses = f"10.2G     {step % 997 / 997:.4f}     0.8{step % 997:03d}      1.201         33        640"
    return f"      1/100      {losses}: {percent:3d}%|{'#' * (percent // 10):<10}| {step}/7393 [01:02<18:20,  6.51it/s]"


def _loss(step: int) -> str:
    rate = f"'learning_rate': {2e-5 * (1 - step / 20_000):.6e}"
    return (
        f"{{'loss': {2 + step % 997 / 1000:.4f}, 'grad_norm': {step % 13 / 7:.4f}, {rate}, 'epoch': {step / 4000:.2f}}}"
    )


def _swift(step: int) -> str:
    memory = "'memory(GiB)': 28.94, 'train_speed(iter/s)': 0.21"
    return (
        f"{{'loss': {2 + step % 997 / 1000:.5f}, 'acc': 0.71, 'learning_rate': 1e-05, {memory}, 'global_step': {step}}}"
    )


def _logger(step: int) -> str:
    time = f"2024-05-06 12:{step // 60 % 60:02d}:{step % 60:02d},123"
    memory = " memory 71.2 GiB" * (step % 7 == 0)
    return f"{time} INFO trainer step {step} loss {2 + step % 997 / 1000:.4f} lr 1.0e-05 tokens {4096 * step}{memory}"


def _record(step: int) -> str:
    return f'{{"step": {step}, "loss": {2 + step % 997 / 1000:.4f}, "lr": 1.0e-05, "gpu_mem": {70_000 + step % 100}}}'


def _docker(step: int) -> str:
    time = f"2024-05-06T12:{step // 60 % 60:02d}:{step % 60:02d}.123456789Z"
    return (
        f'{{"log":"step {step} loss {2 + step % 997 / 1000:.4f} memory 71 GiB\\n","stream":"stderr","time":"{time}"}}'
    )


def _survived(step: int) -> str:
    return f"| WARNING: ran out of memory, retrying batch step {step} loss {2 + step % 997 / 1000:.4f}"


def _chinese(step: int) -> str:
    return (
        f"第{step}步，损失 {2 + step % 997 / 1000:.4f}，学习率 1.0e-05，显存占用 71.2 GiB，剩余时间 {20_000 - step} 秒"
    )


def _number(step: int) -> str:
    return str(step % 1000)


def _lines(line: Callable[[int], str], end: str = "\n") -> bytes:
    return "".join(line(step) + end for step in range(STEPS)).encode()


def _passes() -> Iterator[str]:
    for start in range(0, STEPS, 1000):
        yield "\r".join(map(_bar, range(start, start + 1000))) + "\n"


def kinds() -> dict[str, Kind]:
    """The kinds by name."""
    return {
        "progress bars": Kind(_lines(_bar, "\r")),
        "progress bars, a line feed a thousand": Kind("".join(_passes()).encode()),
        "YOLO's bars": Kind(_lines(_yolo_bar, "\r")),
        "single line": Kind(WORDS * STEPS),
        "lines of the Trainer": Kind(_lines(_loss), allowed=SHORT_LINES),
        "lines of ms-swift, memory in each": Kind(_lines(_swift), allowed=SHORT_LINES),
        "lines of a logger, memory in some": Kind(_lines(_logger), allowed=SHORT_LINES),
        "lines of JSON": Kind(_lines(_record), allowed=SHORT_LINES),
        "Docker's records": Kind(_lines(_docker), allowed=SHORT_LINES),
        "an OOM survived in each line": Kind(_lines(_survived), allowed=SHORT_LINES),
        "lines of the Trainer, gzip": Kind(_lines(_loss), "gz"),
        "lines of the Trainer, UTF-16": Kind(_lines(_loss), "utf-16"),
        "lines of Chinese": Kind(_lines(_chinese), allowed=None),
        "numbers": Kind(_lines(_number), allowed=None),
    }
