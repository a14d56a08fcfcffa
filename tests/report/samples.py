"""Hand-made findings: a LoRA run of LLaMA-2-7B on a 3090 that died in the backward pass. All figures are made up."""

from __future__ import annotations

from oomdoctor import knowledge
from oomdoctor.case import Case, Crash, Fact, Facts, Gpu, Holder, Machine, Text
from oomdoctor.diagnosis import Diagnosis
from oomdoctor.doctor import Findings
from oomdoctor.edits.how import How
from oomdoctor.memory.lines import Bill, Line, PhaseBill, Range
from oomdoctor.plan import Plan, Skip, Step
from oomdoctor.questions import Question
from oomdoctor.remedies.rule import Cost, Rule
from oomdoctor.units import GIB, MIB

knowledge.load("texts")["test.words"] = {"en": "{words}", "zh": "{words}"}  # type: ignore[index]

TOTAL, USABLE = 24135 * MIB, 23800 * MIB
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 23.57 GiB "
    "of which 312.00 MiB is free."
)


def words(en: str, zh: str) -> Text:
    """A text that stands in no file of rules/."""
    return Text("texts/test.words", {"words": {"en": en, "zh": zh}})


def rule(name: str, rung: float, cost: Cost | None = None, loses: Text | None = None) -> Rule:
    return Rule(
        id=name,
        rung=rung,
        title=words(f"Title of {name}", f"{name} 的标题"),
        why=words("Because activations grow with the batch.", "因为激活随 batch 增长。"),
        when={},
        change={},
        cost=cost or Cost(),
        loses=loses,
        afterwards=(words("The loss may look different.", "loss 看起来可能不同。"),),
    )


def bill(*gib: float) -> Bill:
    """weights, activations, logits, context in GiB; the first has no spread, the others 10 % each way."""
    keys = ("weights", "activations", "logits", "context")
    lines = tuple(
        Line(
            key,
            _range(size, key != "weights"),
            words(*2 * (f"{size} GiB worked out for {key}",)),
            words(*2 * ("tests",)),
        )
        for key, size in zip(keys, gib, strict=True)
    )
    torch_own = PhaseBill("backward", lines[:-1]).total
    phase = PhaseBill("backward", lines)
    return Bill((phase,), "backward", torch_own, torch_own, phase.total, 8_388_608, 6_746_804_224)


def _range(size: float, spread: bool) -> Range:
    likely = round(size * GIB)
    return Range(likely * 9 // 10, likely, likely * 11 // 10) if spread else Range(likely, likely, likely)


def how() -> How:
    return How(
        framework="transformers",
        file="TrainingArguments",
        settings={"per_device_train_batch_size": 1},
        before="per_device_train_batch_size=4,",
        after="per_device_train_batch_size=1,\ngradient_accumulation_steps=4,  # [bold]not markup[/bold] " + "x" * 100,
    )


def step(after: Bill | None = None, fits: bool | None = True, saves: int | None = 9 * GIB) -> Step:
    return Step(
        rule=rule("smaller-batch", 1, Cost(time=(0.0, 0.15))),
        change={"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4},
        before={"per_device_train_batch_size": 4, "gradient_accumulation_steps": None},
        bill_after=after,
        saves_bytes=saves,
        fits=fits,
        how=(how(),),
        notes=(words("The effective batch stays 4.", "有效 batch 仍是 4。"),),
    )


def plan(*steps: Step, prefer: str = "ladder", fits: bool | None = True) -> Plan:
    skip = Skip(rule("adamw-8bit", 4), words("would save 24.00 MiB of 27.35 GiB", "峰值 27.35 GiB，只能省 24.00 MiB"))
    return Plan(prefer, fits, steps, (skip,))


def facts() -> Facts:
    guess = words("a guess; the longest sample decides", "这是猜的，由最长的样本决定")
    return Facts().add(
        [
            Fact("model", "meta-llama/Llama-2-7b-hf", "log:3"),
            Fact("framework", "transformers", "log:5"),
            Fact("method", "lora", "log:6"),
            Fact("per_device_train_batch_size", 4, "log:17"),
            Fact("lora.target_modules", ("q", "v"), "config:train.yaml:7"),
            Fact("gpus.memory_mib", 24135, "log:132"),
            Fact("max_length", 2048, "assumed", guess),
            Fact("optim", "adamw_torch", "set"),
            Fact("optim", "adamw_bnb_8bit", "log:18"),
        ]
    )


def crash(**changes: object) -> Crash:
    values: dict[str, object] = {
        "kind": "cuda_oom",
        "phase": "backward",
        "confidence": "high",
        "line": 132,
        "text": MESSAGE,
        "requested_bytes": 500 * MIB,
        "free_bytes": 312 * MIB,
        "total_bytes": TOTAL,
        "allocated_bytes": 22 * GIB,
        "step": 1200,
        "frames": ("train.py:41 in main",),
        "other_processes": (Holder(4242, 335 * MIB),),
    }
    return Crash(**{**values, **changes})  # type: ignore[arg-type]


def question() -> Question:
    return Question(
        key="max_length",
        ask=Text("questions/max_length/ask"),
        choices=(),
        default=2048,
        reason=words("a guess", "这是猜的"),
        help=Text("questions/max_length/help"),
    )


def findings(**changes: object) -> Findings:
    good = step(bill(12.55, 2.7, 0.75, 0.6))
    two = plan(
        good, Step(rule("quantized-weights", 6, Cost((0.25, 0.4))), {"quantization": "nf4"}, {}), prefer="fastest"
    )
    values: dict[str, object] = {
        "case": Case(facts=facts(), crash=crash(), machine=Machine((Gpu(0, "RTX 3090", TOTAL),)), origin="train.log"),
        "diagnosis": Diagnosis(
            "activations",
            words("Activations are what fills the card", "占满显存的是激活"),
            (words("Activations take 12.00 GiB, 44 % of the peak.", "激活占 12.00 GiB，是峰值的 44 %。"),),
            "medium",
        ),
        "bill": bill(12.55, 11.2, 3.0, 0.6),
        "usable_bytes": USABLE,
        "plan": plan(good),
        "alternatives": (plan(good, prefer="lossless"), two),
        "questions": (question(),),
        "notes": (words("The live card was left aside.", "没有采用本机显卡的读数。"),),
    }
    return Findings(**{**values, **changes})  # type: ignore[arg-type]
