"""Many bills in one process: `oomdoctor bill CARD... --json` on 10 000 run cards, no two of them alike.

    python benchmarks/bills/measure.py [--cards 10000] [--runs 3]

Prints the CPU time of the whole run, and of one card more: reading its YAML, the bill, and the document written as
JSON. Both also as a ratio to bare `python -c pass`, which a busy machine changes less. Exits 1 where a card takes more
of it than is allowed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
MODELS = (
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-13b-hf",
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3.2-1B",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen2.5-7B",
    "google/gemma-2-2b",
    "google/gemma-2-9b",
    "microsoft/phi-2",
)
METHODS = {
    "full": "method: full\nquantization: none\n",
    "lora": "method: lora\nlora: {r: 8, target_modules: [q_proj, k_proj, v_proj, o_proj]}\nquantization: none\n",
    "all-linear": "method: lora\nlora: {r: 16, target_modules: all-linear}\nquantization: none\n",
    "qlora": "method: lora\nlora: {r: 64, target_modules: all-linear}\nquantization: nf4\nkbit_prepare: true\n",
}
ALLOWED = 0.15  # of bare Python's CPU time, for each card


def cards() -> Iterator[str]:
    """Run cards as a person writes them, each a different run."""
    lengths, batches, attentions = range(256, 8193, 640), (1, 2, 4, 8, 16), ("sdpa", "flash_attention_2")
    grid = itertools.product(lengths, batches, attentions, ("none", "full"), METHODS.values(), MODELS)
    for length, batch, attention, checkpointing, method, model in grid:
        yield (
            f"model: {model}\ntask: sft\nframework: trl\nversions: {{torch: 2.6.0, transformers: 4.50.0}}\n{method}"
            f"torch_dtype: bfloat16\nmixed_precision: bf16\noptim: adamw_torch\n"
            f"per_device_train_batch_size: {batch}\ngradient_accumulation_steps: {16 // batch}\n"
            f"max_length: {length}\ngradient_checkpointing: {checkpointing}\nattn_implementation: {attention}\n"
            "gpus: {count: 1, name: RTX 3090}\nparallelism: none\n"
        )


def cpu_seconds(command: list[str], folder: str | None = None) -> float:
    """User and system time of one run of this checkout. Raises CalledProcessError where it fails."""
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cards", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    program = [sys.executable, "-m", "oomdoctor", "bill"]
    bare, all_cards, one_card = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{number}.yaml" for number in range(args.cards)]
        for name, text in zip(names, itertools.islice(cards(), args.cards), strict=True):
            Path(folder, name).write_text(text)
        for _ in range(args.runs):  # interleaved, so that a busy machine is busy for all of them
            bare += [cpu_seconds([sys.executable, "-c", "pass"]) for _ in range(5)]
            one_card.append(cpu_seconds([*program, names[0], "--json"], folder))
            all_cards.append(cpu_seconds([*program, *names, "--json"], folder))
    python, one, total = (statistics.median(times) for times in (bare, one_card, all_cards))
    each = (total - one) / (args.cards - 1)
    print(f"bare python: {1000 * python:.1f} ms; one card: {1000 * one:.0f} ms, {one / python:.1f} x bare")
    print(f"{args.cards} cards: {total:.2f} s, {total / python:.0f} x bare")
    print(f"a card more: {1000 * each:.2f} ms, {each / python:.3f} x bare (at most {ALLOWED})")
    return int(each > ALLOWED * python)


if __name__ == "__main__":
    sys.exit(main())
