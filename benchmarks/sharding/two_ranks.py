"""FSDP2 over two processes on a CPU (gloo), beside the bill: weights, gradients and Adam's states of each rank.

    python benchmarks/sharding/two_ranks.py

A tiny Llama takes one real training step with torch's `fully_shard` on each block and on the whole; each rank then
counts the bytes of its own shards. The bill is asked for the same run with parallelism fsdp on two cards. 20 s of CPU
time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

RANKS = 2
SHAPE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 2048,
    "tie_word_embeddings": False,
}
LINES = ("weights", "gradients", "optimizer_states")
# name -> what FSDP computes in (None: as the weights are), and how a run card says it
RUNS = {"fp32": (None, "no"), "fp32 shards, bf16 in use": ("bfloat16", "bf16")}


def of_rank(rank: int, compute: str | None, results: Any) -> None:
    """One process: a step, and then the bytes of its shards by line of the bill."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29577", GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    shape = {key: value for key, value in SHAPE.items() if key != "model_type"}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **shape)).float()
    policy = MixedPrecisionPolicy(param_dtype=getattr(torch, compute)) if compute else MixedPrecisionPolicy()
    mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS,))
    for block in model.model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(SHAPE["vocab_size"], (2, 32))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    parameters = list(model.parameters())
    states = [state for of_one in optimizer.state.values() for state in of_one.values() if state.numel() > 1]
    results.put(
        (
            rank,
            {
                "weights": sum(map(_own_bytes, parameters)),
                "gradients": sum(_own_bytes(each.grad) for each in parameters),
                "optimizer_states": sum(map(_own_bytes, states)),
            },
        )
    )
    dist.barrier()
    dist.destroy_process_group()


def _own_bytes(tensor: Any) -> int:
    """Bytes of the part that this rank holds."""
    local = tensor.to_local()
    return int(local.numel() * local.element_size())


def billed(mixed: str) -> dict[str, int]:
    """The bill's lines for the same run on two cards, in bytes."""
    from oomdoctor import doctor
    from oomdoctor.case import Case, Fact

    facts = {
        **{f"architecture.{key}": value for key, value in SHAPE.items()},
        "framework": "pytorch", "method": "full", "torch_dtype": "float32", "mixed_precision": mixed,
        "quantization": "none", "optim": "adamw_torch", "per_device_train_batch_size": 2, "max_length": 32,
        "gradient_accumulation_steps": 1, "gradient_checkpointing": "none", "attn_implementation": "sdpa",
        "loss_kernel": "plain", "parallelism": "fsdp", "offload": "none", "gpus.count": RANKS,
    }  # fmt: skip
    bill = doctor.examine(Case().know(Fact(key, value, "set") for key, value in facts.items()), with_plan=False).bill
    assert bill is not None
    step = next(phase for phase in bill.phases if phase.phase == "optimizer_step")
    return {key: sum(line.size.likely for line in step.lines if line.key == key) for key in LINES}


def measured(compute: str | None) -> list[dict[str, int]]:
    """What each rank holds after a step, by rank."""
    import torch.multiprocessing as workers

    context = workers.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=of_rank, args=(rank, compute, results)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    found = dict(results.get(timeout=300) for _ in ranks)
    for process in ranks:
        process.join()
    return [found[rank] for rank in sorted(found)]


def main() -> int:
    """Print the table; 1 where a rank holds more than 1 % more or less than the bill says."""
    print(f"{'run':26} {'line':18} {'bill':>12} " + " ".join(f"{f'rank {rank}':>12}" for rank in range(RANKS)))
    worst = 0.0
    for name, (compute, mixed) in RUNS.items():
        bill, ranks = billed(mixed), measured(compute)
        for line in LINES:
            print(f"{name:26} {line:18} {bill[line]:12,} " + " ".join(f"{rank[line]:12,}" for rank in ranks))
            worst = max(worst, *(abs(rank[line] / bill[line] - 1) for rank in ranks))
    print(f"largest difference: {100 * worst:.2f} %")
    return 1 if worst > 0.01 else 0


if __name__ == "__main__":
    sys.exit(main())
