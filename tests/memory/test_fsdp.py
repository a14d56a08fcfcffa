"""Torch's own FSDP over a group of two pretended cards, with every storage counted, beside the bill's moments."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from oomdoctor.case import Linear, Run
from oomdoctor.memory import exchange, resting
from oomdoctor.memory.job import job_of
from oomdoctor.memory.peak import moments, step_of
from tests.memory import llamas
from tests.memory.runs import full

HIDDEN, WIDTH, BLOCKS, WORDS, CARDS = 64, 256, 6, 512, 2
PARAMETERS = BLOCKS * 2 * HIDDEN * WIDTH + 2 * WORDS * HIDDEN
NET = llamas.LLAMA2_7B._replace(
    hidden_size=HIDDEN,
    num_hidden_layers=BLOCKS,
    vocab_size=WORDS,
    intermediate_size=WIDTH,
    norms_per_layer=0,
    gated_mlp=False,
    linears=(Linear("up", HIDDEN, WIDTH, "mlp_in"), Linear("down", WIDTH, HIDDEN, "mlp_mid")),
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(HIDDEN, WIDTH, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(WORDS, HIDDEN), nn.Linear(HIDDEN, WORDS, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Live(TorchDispatchMode):
    """The most bytes of storages that were alive. FSDP empties storages that it keeps, so each is looked at anew."""

    def __init__(self, held: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.most = 0
        self._known: dict[int, Any] = {}
        for tensor in held:
            self._hold(tensor)

    def _hold(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._known.setdefault(storage._cdata, weakref.ref(storage))

    def now(self) -> int:
        alive = {key: storage for key, known in self._known.items() if (storage := known()) is not None}
        self._known = {key: self._known[key] for key in alive}
        return sum(storage.nbytes() for storage in alive.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._hold(leaf)
        self.most = max(self.most, self.now())
        return out


@pytest.fixture(scope="module", autouse=True)
def cards() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=CARDS, store=FakeStore())
    yield
    dist.destroy_process_group()


def divided(version: int, mixed: bool, reshard: bool) -> nn.Module:
    half = torch.bfloat16
    if version == 1:
        from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return FullyShardedDataParallel(
            Net(),
            auto_wrap_policy=ModuleWrapPolicy({Block}),
            mixed_precision=MixedPrecision(half, half) if mixed else None,
            sharding_strategy=ShardingStrategy.FULL_SHARD if reshard else ShardingStrategy.SHARD_GRAD_OP,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    net = Net()
    policy = MixedPrecisionPolicy(half, half) if mixed else MixedPrecisionPolicy()
    for module in (*net.blocks, net):
        fully_shard(module, mesh=init_device_mesh("cpu", (CARDS,)), mp_policy=policy, reshard_after_forward=reshard)
    return net


def most_of_backward(net: nn.Module, micro_batches: int) -> int:
    """Bytes at the worst moment of a step, with four tokens."""
    local = (getattr(parameter, "_local_tensor", parameter) for parameter in net.parameters())
    live, tokens = Live(local), torch.randint(0, WORDS, (1, 4))
    with live:
        for done in range(micro_batches):
            last = done == micro_batches - 1
            if hasattr(net, "set_requires_gradient_sync"):
                net.set_requires_gradient_sync(last)
            quiet = nullcontext() if last or not hasattr(net, "no_sync") else net.no_sync()
            with quiet:
                net(tokens).sum().backward()
    return live.most


@pytest.mark.parametrize(
    ("version", "mixed", "reshard", "micro_batches"),
    [(1, False, True, 1), (1, True, True, 2), (1, True, False, 1), (1, False, False, 1), (2, True, True, 1)],
)
def test_the_worst_moment_of_backward_is_that_of_fsdp(
    version: int, mixed: bool, reshard: bool, micro_batches: int
) -> None:
    seen = most_of_backward(divided(version, mixed, reshard), micro_batches)
    run = full(
        torch_dtype="float32",
        mixed_precision="bf16" if mixed else "no",
        parallelism="fsdp",
        gpu_count=CARDS,
        fsdp_version=version,
        fsdp_reshard_after_forward=reshard,
        gradient_accumulation_steps=micro_batches,
        max_length=4,
    )
    assert worst(run) == pytest.approx(seen, rel=0.06)


def worst(run: Run) -> int:
    """The bill's figure, without what four tokens make."""
    job = job_of(run, NET)
    step = step_of(job)
    found = (exchange.at(step, moment) for moment in moments(step))
    moved = max(
        moment.gathered + moment.reducing + moment.gradients for moment in found if moment.phase != "optimizer_step"
    )
    return resting.weights(job).size.likely + moved


def test_whole_gradients_wait_in_the_dtype_that_they_are_reduced_in() -> None:
    net = divided(1, mixed=True, reshard=True)
    with net.no_sync():
        net(torch.randint(0, WORDS, (1, 4))).sum().backward()
    kept = sum(parameter.grad.nbytes for parameter in net.parameters() if parameter.grad is not None)
    assert kept == 2 * PARAMETERS
    run = full(torch_dtype="float32", mixed_precision="bf16", parallelism="fsdp", gpu_count=CARDS)
    step = step_of(job_of(run._replace(gradient_accumulation_steps=2), NET))
    assert step.earlier == pytest.approx(kept, rel=0.001)
    assert step.gradients == pytest.approx(4 * PARAMETERS / CARDS, rel=0.001)  # at the optimizer's step
