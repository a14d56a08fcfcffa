"""How well a requested size alone tells the model: the catalogue's own tensors, sizes at random, and logs.

    python benchmarks/suggestions/measure.py [LOGS...]

Hides each language model of the catalogue in turn, prints its tensors as torch would print the request, and looks
whether the model is among what is suggested. Sizes at random say how often something is suggested by chance. LOGS are
files whose log names the model: the name is hidden, and looked for among the suggestions.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from oomdoctor import knowledge
from oomdoctor.case import Architecture, Crash, Fact, Facts, UserError
from oomdoctor.doctor import read_log
from oomdoctor.memory import weights
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model
from oomdoctor.suggestions.search import suggested
from oomdoctor.suggestions.suggestion import Suggestion
from oomdoctor.units import GIB, MIB, parse_size, show_bytes

FRAMES = ("/env/site-packages/transformers/trainer.py:1 in train",)
TRIES = 300


def printed(size: int) -> int:
    """What the message gives back of a tensor of so many bytes: whole blocks, two decimals."""
    block = -(-size // (2 * MIB)) * 2 * MIB
    return parse_size(show_bytes(block))


def suggestions(size: int, phase: str, **facts: object) -> tuple[Suggestion, ...]:
    used = facts.pop("allocated", None)
    crash = Crash("cuda_oom", phase, requested_bytes=printed(size), allocated_bytes=used, frames=FRAMES)  # type: ignore
    return suggested(crash, Facts().add(Fact(key.replace("__", "."), value, "log:1") for key, value in facts.items()))


def tensors(arch: Architecture) -> Iterator[tuple[str, int, str, dict[str, object]]]:
    """A kind, bytes, the phase in which they are asked for, and what else the log says."""
    for size in (2, 4):
        for linear in arch.linears:
            yield "a weight while loading", linear.inputs * linear.outputs * size, "model_load", {}
            if weights.parameters(arch) * size > 23 * GIB:
                full = {"allocated": 23 * GIB}
                yield "the same, on a full card of 24 GiB", linear.inputs * linear.outputs * size, "model_load", full
            yield "a weight's state", linear.inputs * linear.outputs * size, "optimizer_step", {}
        table = arch.vocab_size * (arch.embedding_size or arch.hidden_size)
        yield "the embedding while loading", table * size, "model_load", {}
    for tokens in (1024, 2048, 4096, 8192, 16384):
        yield "logits in the loss", tokens * arch.vocab_size * 4, "loss", {}
        if tokens * arch.vocab_size * 4 >= GIB:
            yield "logits of a GiB and more in forward", tokens * arch.vocab_size * 4, "forward", {}
    for world in (2, 4, 8):
        facts: dict[str, object] = {"parallelism": "zero2", "log__world_size": world, "method": "full"}
        yield "a ZeRO partition", -(-weights.parameters(arch) // world) * 4, "optimizer_step", facts


def hide_the_catalogue() -> None:
    """How often each kind of tensor is suggested, with the right model, and beside how many others."""
    found: dict[str, list[tuple[bool, bool, int]]] = {}
    for name, entry in knowledge.load("models").items():
        arch = architecture_of(entry["config"], name, name)
        if entry["config"]["model_type"] in knowledge.lookup("architecture/sizes/no_logits"):
            continue
        for kind, size, phase, facts in dict.fromkeys(_hashable(tensors(arch))):
            if printed(size) <= 20 * MIB:
                continue
            shown = suggestions(size, phase, **dict(facts))
            right = [name in suggestion.models for suggestion in shown]
            found.setdefault(kind, []).append((any(right), bool(right) and right[0], len(shown)))
    print("| tensor | cases | the model is named | silent | the model is in the first group | groups shown |")
    print("|---|---|---|---|---|---|")
    for kind, cases in found.items():
        spoken = [case for case in cases if case[2]]
        shares = [sum(column) / len(cases) for column in zip(*[(c[0], not c[2], c[1]) for c in cases], strict=True)]
        groups = statistics.mean(case[2] for case in spoken)
        named, silent, first = (f"{share:.0%}" for share in shares)
        print(f"| {kind} | {len(cases)} | {named} | {silent} | {first} | {groups:.1f} |")


def _hashable(
    cases: Iterator[tuple[str, int, str, dict[str, object]]],
) -> Iterator[tuple[str, int, str, tuple[tuple[str, object], ...]]]:
    return ((kind, size, phase, tuple(facts.items())) for kind, size, phase, facts in cases)


def random_sizes() -> None:
    """How often a size that means nothing is given a meaning."""
    rng = random.Random(1)
    print("\n| sizes at random | phase | something is suggested |")
    print("|---|---|---|")
    for low, high in ((22, 200), (200, 1000), (1024, 16384)):
        for phase in ("model_load", "loss", "forward"):
            sizes = (rng.randint(low, high) * MIB for _ in range(TRIES))
            hits = sum(bool(suggestions(size, phase)) for size in sizes)
            print(f"| {low} to {high} MiB | {phase} | {hits / TRIES:.0%} |")


def hide_in_logs(paths: list[str]) -> None:
    """Logs that name their model, without the name."""
    print()
    for path in paths:
        case = read_log(path)
        named, crash = case.facts.get("model"), case.crash
        if crash is None or named is None or not crash.requested_bytes:
            continue
        try:
            model = find_model(str(named)).name
        except UserError:
            continue
        known = {key: fact for key, fact in case.facts.won.items() if not key.startswith(("model", "architecture."))}
        shown = suggested(crash, Facts(known))
        places = [place for place, suggestion in enumerate(shown, 1) if model in suggestion.models]
        verdict = f"{places[0]} of {len(shown)}" if places else ("silent" if not shown else f"wrong, {len(shown)}")
        print(f"{Path(path).name}: {crash.phase}, {show_bytes(crash.requested_bytes)}, {model}: {verdict}")


def cost() -> None:
    """Milliseconds of a search, with everything loaded."""
    for phase, size in (("model_load", 172 * MIB), ("loss", 1000 * MIB), ("forward", 172 * MIB)):
        times = []
        for _ in range(50):
            start = time.process_time()
            suggestions(size, phase)
            times.append(time.process_time() - start)
        print(f"{phase}, {show_bytes(size)}: {1000 * min(times):.1f} ms")


def main() -> None:
    hide_the_catalogue()
    random_sizes()
    hide_in_logs(sys.argv[1:])
    print()
    cost()


if __name__ == "__main__":
    main()
