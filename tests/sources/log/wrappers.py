"""Crash texts as programs print them, and what terminals, launchers, loggers, notebooks and collectors make of them."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from typing import NamedTuple

SITE = "/opt/conda/envs/train/lib/python3.11/site-packages/"
BEFORE = (
    "Loading checkpoint shards: 100%|██████████| 4/4 [00:05<00:00,  1.26s/it]\n***** Running training *****\n"
    "  Num examples = 9,861\n{'loss': 1.4821, 'grad_norm': 0.52, 'epoch': 0.12}\nsome words of the program\n"
)


class Frame(NamedTuple):
    path: str
    line: int
    function: str
    code: str


TRAINING = [
    Frame("/home/user/project/train.py", 210, "<module>", "main()"),
    Frame("/home/user/project/train.py", 187, "main", "trainer.train()"),
    Frame(f"{SITE}transformers/trainer.py", 2388, "_inner_training_loop", "tr_loss_step = self.training_step(model)"),
]
NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.34 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.12 GiB is free. Process 71234 has 12.50 GiB memory in use. Including non-PyTorch memory, this process "
    "has 65.49 GiB memory in use. Of the allocated memory 62.10 GiB is allocated by PyTorch, and 2.20 GiB is reserved "
    "by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 86.00 MiB (GPU 0; 23.70 GiB total capacity; 20.26 GiB already "
    "allocated; 30.81 MiB free; 21.01 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try "
    "setting max_split_size_mb to avoid fragmentation."
)
# name: frames behind those of the training loop, and the exception
CRASHES: dict[str, tuple[list[Frame], str]] = {
    "backward": (
        [
            Frame(f"{SITE}accelerate/accelerator.py", 2196, "backward", "loss.backward(**kwargs)"),
            Frame(f"{SITE}torch/autograd/graph.py", 825, "_engine_run_backward", "return engine.run_backward(t)"),
        ],
        NEW,
    ),
    "loss": ([Frame(f"{SITE}transformers/loss/loss_utils.py", 36, "ForCausalLMLoss", "logits = logits.float()")], NEW),
    "optimizer_step": ([Frame(f"{SITE}torch/optim/adamw.py", 151, "_init_group", "torch.zeros_like(p)")], OLD),
    "model_load": (
        [Frame(f"{SITE}accelerate/utils/modeling.py", 330, "set_module_tensor_to_device", "value = value.to(device)")],
        OLD,
    ),
    "eval": ([Frame(f"{SITE}transformers/trainer_pt_utils.py", 117, "nested_concat", "torch.cat((a, b))")], OLD),
    "driver": (
        [Frame(f"{SITE}torch/nn/modules/module.py", 1160, "convert", "return t.to(device, non_blocking)")],
        "RuntimeError: CUDA error: out of memory\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
    ),
    "cublas": (
        [Frame(f"{SITE}torch/nn/modules/linear.py", 114, "forward", "return F.linear(input, self.weight)")],
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ),
    "host": (
        [Frame(f"{SITE}torch/serialization.py", 1014, "load", "return _load(file, map_location)")],
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 3077222400 bytes. Error code 12 (Cannot allocate memory)",
    ),
    "loader": (
        [Frame(f"{SITE}torch/utils/data/_utils/signal_handling.py", 66, "handler", "_error_if_any_worker_fails()")],
        "RuntimeError: DataLoader worker (pid 5529) is killed by signal: Killed. ",
    ),
    "kv_cache": (
        [Frame(f"{SITE}vllm/v1/core/kv_cache_utils.py", 545, "check_enough_kv_cache_memory", "raise ValueError(")],
        "ValueError: To serve at least one request with the models's max seq len (221000), (10.12 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (5.59 GiB). Based on the available memory, the "
        "estimated maximum model length is 122080.",
    ),
    "mps": (
        [Frame(f"{SITE}torch/_tensor.py", 581, "backward", "torch.autograd.backward(")],
        "RuntimeError: MPS backend out of memory (MPS allocated: 11.14 GB, other allocations: 6.65 GB, max allowed: "
        "18.13 GB). Tried to allocate 375.40 MB on private pool.",
    ),
    "triton": (
        [Frame(f"{SITE}triton/compiler/compiler.py", 356, "_init_handles", "raise OutOfResources(shared, limit)")],
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: "
        "101376. Reducing block sizes or `num_stages` may help.",
    ),
}

# What stands before every line. `RANK`: those that name one.
PREFIXES = {
    "rank": "[rank0]: ", "rank and logger": "[rank1]:[E1014 09:33:02.881 x.py:12] ", "torchrun tee": "[default0]:",
    "both": "[default4]:[rank4]: ", "open mpi": "[1,3]<stderr>:", "sagemaker": "[1,mpirank:3,algo-1]<stderr>:",
    "srun": "12: ", "srun and rank": "0: Error: [rank0]: ", "pdsh": "192.168.0.32: ", "pdsh host": "worker-12: ",
    "pdsh domain": "gpu07.cluster.example.org: ", "deepspeed": "node-03: [rank11]: ",
    "ray": "\x1b[36m(WorkerDict pid=44419, ip=10.0.0.5)\x1b[0m ", "ray train": "(RayTrainWorker pid=1022) [rank3]: ",
    "skypilot": "(worker1, rank=1, pid=3243, ip=10.0.0.2) ", "sglang": "[2025-09-22 10:25:22 DP0 TP3] ",
    "vllm 1": "(EngineCore_DP0 pid=6940) ERROR 04-30 10:20:36 [core.py:396] ",
    "vllm 0": "ERROR 11-18 18:07:28 engine.py:366] ", "vllm worker": "(Worker_TP1 pid=771) ERROR 09-10 10:00:00 [a:5] ",
    "compose": "vllm-1  | ", "compose by name": "trainer  | ", "kubectl": "[pod/train-0/main] ",
    "stern": "train-0 main ", "kubectl and rank": "[pod/a/main] [rank5]: ", "cloudwatch": "2024-03-19T10:13:46.771Z ",
    "cri": "2024-10-01T10:00:01.123456789+08:00 stderr F ", "airflow": "[2024-03-19, 10:13:46 UTC] {a.py:187} INFO - ",
    "gitlab": "2024-03-19T10:13:46.771234Z 01O ", "journal": "Mar 19 10:13:46 gpu07 train.sh[1234]: ",
    "supervisor": "2024-03-19 10:13:46,771 DEBG 'train' stderr output: ", "line numbers": "[80746] ",
    "fastchat": "2023-12-22 16:43:31 | ERROR | stderr | ", "time": "[00:12:33] ", "seconds": "1710843226.771 ",
    "transformers": "[ERROR|trainer.py:1712] 2023-10-19 09:44:55,247 >> ", "basic config": "ERROR:__main__:",
    "logging": "2024-03-19 10:13:46,771 - ERROR - root - ", "glog": "E0319 10:13:46.771000 1234 train.py:120] ",
    "quoted": "> ", "indented": "        ",
}  # fmt: skip


def traceback(name: str) -> str:
    """The crash as Python prints it."""
    frames, exception = CRASHES[name]
    lines = [f'  File "{at.path}", line {at.line}, in {at.function}\n    {at.code}' for at in [*TRAINING, *frames]]
    return "\n".join(["Traceback (most recent call last):", *lines, exception])


@cache
def wrapped(name: str) -> dict[str, str | bytes]:
    """The crash in every wrapper, by the wrapper's name."""
    return dict(_wrapped(name))


def _wrapped(name: str) -> Iterator[tuple[str, str | bytes]]:
    text = BEFORE + traceback(name)
    for wrapper, prefix in PREFIXES.items():
        yield wrapper, each(prefix)(text)
    for wrapper, make in SHAPES.items():
        yield wrapper, make(text)
    for wrapper, draw in DRAWINGS.items():
        yield wrapper, BEFORE + draw(*CRASHES[name])
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"):
        yield encoding, text.encode(encoding)
    yield "utf-16 with its big end first", b"\xfe\xff" + text.encode("utf-16-be")
    yield "gbk", ("训练开始：加载数据集，共九千条样本，请稍候。\n" + text.replace("█", "#")).encode("gbk")
    yield "broken utf-8", "训练\n".encode()[1:] + text.encode()


def each(prefix: str) -> Callable[[str], str]:
    return lambda text: "\n".join(prefix + line for line in text.split("\n"))


def records(text: str) -> str:
    """Docker's JSON file."""
    rows = ({"log": f"{line}\n", "stream": "stderr", "time": "2024-03-19T10:13:46.771Z"} for line in text.split("\n"))
    return "\n".join(map(json.dumps, rows))


def broken(width: int) -> Callable[[str], str]:
    """As a terminal breaks it, in the middle of words and numbers."""
    return lambda text: "\n".join(
        "\n".join(line[at : at + width] for at in range(0, len(line), width)) for line in text.split("\n")
    )


def folded(width: int) -> Callable[[str], str]:
    """As a pager folds it, between words."""
    return lambda text: "\n".join("\n".join(textwrap.wrap(line, width)) for line in text.split("\n"))


def coloured(text: str) -> str:
    """As Python 3.13 prints it in a terminal."""
    text = re.sub(
        r'File (".*?"), line (\d+), in (.*)',
        "File \x1b[35m\\1\x1b[0m, line \x1b[35m\\2\x1b[0m, in \x1b[35m\\3\x1b[0m",
        text,
    )
    return re.sub(r"(?m)^([\w.]+Error): (.*)", "\x1b[1;35m\\1\x1b[0m: \x1b[35m\\2\x1b[0m", text)


def spans(text: str) -> str:
    """As a notebook is saved in HTML."""
    text = re.sub(
        r"File &quot;(.*?)&quot;", r'File &quot;<span style="color:rgb(0,187,0)">\1</span>&quot;', escape(text)
    )
    return f"<pre>{text}</pre>"


def bars(text: str) -> str:
    drawn = "\r".join(
        f" {step}%|{'█' * 3}       | {step}/100 [00:{step:02d}<01:00,  1.35it/s]" for step in range(1, 38)
    )
    return drawn + text.removeprefix(BEFORE)


def repeated(text: str) -> str:
    """As Ray leaves out what other workers said too."""
    said = "\x1b[36m(WorkerDict pid=44419)\x1b[0m {} \x1b[32m [repeated 26x across cluster]\x1b[0m"
    lines = (
        said.format(line) if number % 7 == 3 else f"(WorkerDict pid=44419) {line}"
        for number, line in enumerate(text.split("\n"))
    )
    return "\n".join(lines)


def windows(text: str) -> str:
    return re.sub(r'File "/[^"]+"', lambda found: found[0].replace("/", "\\").replace('"\\', '"C:\\', 1), text)


SHAPES: dict[str, Callable[[str], str]] = {
    "docker": records,
    "docker, rank": lambda text: records(each("[rank0]: ")(text)),
    "docker, colour, rank": lambda text: records(each("\x1b[31m[rank0]: \x1b[0m")(coloured(text))),
    "cri, rank": lambda text: each("2024-10-01T10:00:01.123456789Z stderr F ")(each("[rank0]: ")(text)),
    "record of a cloud": lambda text: json.dumps({"severity": "ERROR", "jsonPayload": {"message": text}}),
    "record of a logger": lambda text: json.dumps({"event": "it failed", "level": "error", "exception": text}),
    "events of a cloud": lambda text: json.dumps({"events": [{"message": line} for line in text.split("\n")]}),
    "error file of torchrun": lambda text: json.dumps(
        {"message": {"message": "it failed", "extraInfo": {"py_callstack": text}}}
    ),
    "repr": lambda text: "ErrorMessage " + json.dumps(text),
    "line feeds of Windows": lambda text: text.replace("\n", "\r\n"),
    "carriage returns alone": lambda text: text.replace("\n", "\r"),
    "colour": coloured,
    "html": spans,
    "bars": bars,
    "bars, rank": lambda text: bars(BEFORE + each("[rank0]: ")(text.removeprefix(BEFORE))),
    "ray, repeated": repeated,
    "windows": windows,
    "runpy": lambda text: text.replace("last):", 'last):\n  File "<frozen runpy>", line 88, in _run_code'),
    "carets": lambda text: re.sub(r"(?m)^(    \S.*)$", r"\1\n    ^^^^^^^^^^^^^^^", text),
    "recursion": lambda text: text.replace("    main()", "    main()\n  [Previous line repeated 4 more times]"),
    "nul bytes": lambda text: text.replace("\n", "\0\0\n\0"),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "markdown": lambda text: f"```\n{text}\n```",
    **{f"broken at {width}": broken(width) for width in (60, 79, 80, 100, 120)},
    **{f"folded at {width}": folded(width) for width in (60, 79, 80, 100, 120)},
    "rank, broken at 60": lambda text: broken(60)(each("[rank0]: ")(text)),
    "rank, broken at 80": lambda text: broken(80)(each("[rank0]: ")(text)),
    "rank, broken at 120": lambda text: broken(120)(each("[rank0]: ")(text)),
    "docker, broken at 80": lambda text: records(broken(80)(text)),
}  # fmt: skip


def loguru(frames: list[Frame], exception: str) -> str:
    """With the values of variables under each source line."""
    said = "2024-08-21 22:56:04.123 | ERROR    | run:main:120 - An error has been caught in function 'main':"
    drawn = [
        f'> File "{at.path}", line {at.line}, in {at.function}\n    {at.code}\n    │       └ <Module object at 0x7f0>\n'
        f"    └ <function {at.function} at 0x7f12ab>"
        for at in [*TRAINING, *frames]
    ]
    return "\n".join([said, "Traceback (most recent call last):", *drawn, exception])


HEAD = f"{'-' * 75}\nOutOfMemoryError                          Traceback (most recent call last)"


def notebook(frames: list[Frame], exception: str) -> str:
    """IPython 8."""
    drawn = [
        f"File {at.path}:{at.line}, in {at.function}(self, *args)\n   {at.line - 1} x = 1\n--> {at.line} {at.code}\n"
        for at in [*TRAINING[1:], *frames]
    ]
    return "\n".join([HEAD, "Cell In[12], line 3\n----> 3 trainer.train()\n", *drawn, exception])


def old_notebook(frames: list[Frame], exception: str) -> str:
    """IPython before 8."""
    drawn = [
        f"{at.path} in {at.function}(self, *args, **kwargs)\n   {at.line - 1}     x = 1\n--> {at.line}     {at.code}\n"
        for at in [*TRAINING[1:], *frames]
    ]
    return "\n".join([HEAD, "<ipython-input-7-3d62a> in <module>()\n----> 3 trainer.train()\n", *drawn, exception])


def colab(frames: list[Frame], exception: str) -> str:
    drawn = [
        f"[{at.path}](https://localhost:8080/#) in {at.function}(self, *args)\n-> {at.line}     {at.code}\n"
        for at in [*TRAINING[1:], *frames]
    ]
    cell = "[<ipython-input-12-abc>](https://localhost:8080/#) in <cell line: 0>()\n----> 1 trainer.train()\n"
    return "\n".join([HEAD, cell, "13 frames", *drawn, exception])


def box(width: int, sides: str = "─│╭╮╰╯❱") -> Callable[[list[Frame], str], str]:
    """As rich draws it: paths that are too long go on in the next row."""
    rule, side, *corners, arrow = sides

    def draw(frames: list[Frame], exception: str) -> str:
        rows = [f"{corners[0]}{' Traceback (most recent call last) ':{rule}^{width - 2}}{corners[1]}"]
        for at in [*TRAINING, *frames]:
            source = [f"  {at.line - 1} {side}   x = 1", f"{arrow} {at.line} {side}   {at.code}", ""]
            for text in [f"{at.path}:{at.line} in {at.function}", "", *source]:
                rows += [f"{side} {row:<{width - 4}} {side}" for row in textwrap.wrap(text, width - 4) or [""]]
        rows.append(f"{corners[2]}{rule * (width - 2)}{corners[3]}")
        return "\n".join([*rows, *textwrap.wrap(exception, width)])

    return draw


DRAWINGS: dict[str, Callable[[list[Frame], str], str]] = {
    "loguru": loguru,
    "notebook": notebook,
    "notebook, coloured": lambda frames, exception: each("\x1b[0;31m")(notebook(frames, exception)),
    "old notebook": old_notebook,
    "colab": colab,
    "box of 80": box(80),
    "box of 100": box(100),
    "box of 130": box(130),
    "box of ASCII": box(100, "-|++++>"),
    "box, rank": lambda frames, exception: each("[rank0]: ")(box(80)(frames, exception)),
}
