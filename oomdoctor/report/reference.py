"""The reference of all remedies as Markdown: when each helps, what it changes, its price, its edits per framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from oomdoctor import knowledge
from oomdoctor.case import Text, Value
from oomdoctor.edits.how import How
from oomdoctor.edits.places import words_of
from oomdoctor.edits.render import hows
from oomdoctor.ladder import LAST_RUNG
from oomdoctor.remedies.changes import apply
from oomdoctor.remedies.conditions import SILENT, check
from oomdoctor.remedies.rule import Rule
from oomdoctor.report.basis import value_text
from oomdoctor.report.page import Page
from oomdoctor.report.steps import cost_text

FRAMEWORKS = (
    "transformers", "trl", "accelerate", "deepspeed", "axolotl", "llamafactory", "ms-swift", "unsloth", "torchtune",
    "lightning", "pytorch",
)  # fmt: skip
# A run on which every remedy has something to change; what it says is replaced by what a rule asks for.
_EXAMPLE: Mapping[str, Value] = {
    "model": "meta-llama/Llama-2-7b-hf",
    "task": "sft",
    "method": "full",
    "torch_dtype": "float32",
    "trainable_dtype": "float32",
    "mixed_precision": "no",
    "quantization": "none",
    "kbit_prepare": True,
    "optim": "adamw_torch",
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 2,
    "max_length": 2048,
    "gradient_checkpointing": "none",
    "attn_implementation": "eager",
    "loss_kernel": "plain",
    "parallelism": "none",
    "offload": "none",
    "gpus.count": 2,
    "gpus.compute_capability": 8.6,
    "per_device_eval_batch_size": 8,
    "reference_model": "full",
    "lora.r": 64,
    "lora.target_modules": ("all-linear",),
    "lora.lora_dropout": 0.05,
    "lora.use_dora": True,
    "lora.modules_to_save": ("lm_head",),
}


class Edit(NamedTuple):
    """The edits of a rule that several frameworks share."""

    frameworks: tuple[str, ...]
    hows: tuple[How, ...]


def reference(page: Page, rules: Iterable[Rule]) -> str:
    """All rules in the page's language, in the order of their rungs, as one Markdown document."""
    rules = tuple(rules)
    parts = [f"# {page.word('docs_title')}", page.word("docs_about")]
    for heading, group in _grouped(rules):
        parts += [f"## {page.word(heading)}", *(rule_reference(page, rule) for rule in group)]
    parts += [f"## {page.word('docs_shared')}", page.word("docs_shared_about"), *_shared(page)]
    parts += [f"## {page.word('docs_conflicts')}", page.word("docs_conflicts_about"), *_conflicts(page)]
    return "\n\n".join(parts) + "\n"


def _grouped(rules: tuple[Rule, ...]) -> Iterator[tuple[str, list[Rule]]]:
    yield "docs_repairs", [rule for rule in rules if rule.rung < 1]
    yield "docs_ladder", [rule for rule in rules if 1 <= rule.rung <= LAST_RUNG]
    yield "docs_beyond", [rule for rule in rules if rule.rung > LAST_RUNG]


def rule_reference(page: Page, rule: Rule) -> str:
    """One rule, as a section of the document."""
    entry = knowledge.lookup(f"fixes/{rule.id}")
    lines = [f"### {page.say(rule.title)}", "", f"`{rule.id}` · {page.word('docs_rung', rung=f'{rule.rung:g}')}"]
    if rule.origin is not None:
        lines += ["", f"{page.word('step_from')}: `{rule.origin}`"]
    lines += ["", page.say(rule.why), "", f"**{page.word('docs_when')}**", *_condition(page, entry["when"])]
    if rule.change:
        lines += ["", f"**{page.word('docs_change')}**", *_changes(page, rule)]
    lines += ["", f"**{page.word('step_costs')}**: {cost_text(page, rule.cost)}"]
    if rule.loses is not None:
        lines += ["", f"**{page.word('step_loses')}**: {page.say(rule.loses)}"]
    if rule.afterwards:
        lines += ["", f"**{page.word('step_next')}**", *(f"- {page.say(text)}" for text in rule.afterwards)]
    lines += ["", f"**{page.word('docs_evidence')}**"]
    lines += [f"- {page.say(each['source'])}: {page.say(each['figure'])}" for each in entry["evidence"]]
    for edit in edits_of(rule):
        lines += ["", *_edit(page, edit)]
    return "\n".join(lines)


def _changes(page: Page, rule: Rule) -> list[str]:
    return [f"- `{key}`: {_operand(page, value)}" for key, value in rule.change.items()]


def _condition(page: Page, when: Mapping[str, Any], indent: str = "") -> list[str]:
    """A condition as a list: all points of one level must hold."""
    lines = []
    for key, content in when.items():
        if key == "use":
            names = content if isinstance(content, list) else [content]
            lines += [f"{indent}- {page.word('docs_use', names=', '.join(f'`{name}`' for name in names))}"]
        elif key in ("all", "any"):
            lines.append(f"{indent}- {page.word(f'docs_{key}')}")
            for part in content:
                lines += _part(page, part, indent + "  ")
        elif key == "not":
            lines += [f"{indent}- {page.word('docs_not')}", *_condition(page, content, indent + "  ")]
        else:
            lines += [f"{indent}- `{key}` {test}" for test in _tests(page, content)]
    return lines


def _part(page: Page, when: Mapping[str, Any], indent: str) -> list[str]:
    """A part of a junction: one point, with points below where several things must hold together."""
    lines = _condition(page, when, indent)
    if len(when) == 1:
        return lines
    return [f"{indent}- {page.word('docs_all')}", *_condition(page, when, indent + "  ")]


def _tests(page: Page, content: Any) -> list[str]:
    tests = content if isinstance(content, dict) else {"is": content}
    return [
        page.word("docs_known" if operand else "docs_unknown")
        if operator == "known"
        else page.word(f"docs_test_{operator}", operand=_operand(page, operand))
        for operator, operand in tests.items()
    ]


def _operand(page: Page, value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(_operand(page, each) for each in value) or page.word("docs_nothing")
    return f"`{value_text(value)}`" if not isinstance(value, str) else f"`{value}`"


def edits_of(rule: Rule) -> list[Edit]:
    """What the rule says in each framework that it can apply to; frameworks with the same edits share one."""
    found: dict[tuple[tuple[str | None, ...], ...], Edit] = {}
    for framework in FRAMEWORKS:
        said = _hows(rule, framework)
        if said:
            words = tuple((how.file, how.before, how.after) for how in said)
            same = found.get(words, Edit((), said))
            found[words] = same._replace(frameworks=(*same.frameworks, framework))
    return list(found.values())


def _hows(rule: Rule, framework: str) -> tuple[How, ...]:
    """The rule's edits of the example, of the first case of its own that applies in this framework."""
    cases = knowledge.lookup(f"fixes/{rule.id}").get("cases", ())
    for facts in ({}, *(case["facts"] for case in cases if case["expect"] == "applies")):
        run: dict[str, Value] = {
            **_EXAMPLE,
            **{key: _typed(value) for key, value in facts.items()},
            "framework": framework,
        }
        if check(rule.when, run).outcome == SILENT:
            continue
        applied = apply(rule, run, lambda tried: None)
        if applied is not None:
            return hows(applied.change, applied.before, run, rule.id)
    return ()


def _typed(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def _edit(page: Page, edit: Edit) -> Iterator[str]:
    yield f"**{', '.join(edit.frameworks)}**"
    for how in edit.hows:
        yield ""
        yield f"{page.say(words_of(how.file))}"
        if how.before:
            yield from _block(page.word("step_before"), how.before)
            yield from _block(page.word("step_after"), how.after)
        else:
            yield from _block("", how.after)


def _block(label: str, text: str) -> Iterator[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    yield from ("", label) if label else ()
    yield from ("", fence, text, fence)


def _shared(page: Page) -> Iterator[str]:
    for name, when in knowledge.load("conditions").items():
        yield "\n".join([f"### `{name}`", "", *_condition(page, when)])


def _conflicts(page: Page) -> Iterator[str]:
    for name, entry in knowledge.load("conflicts").items():
        lines = [f"### `{name}`", "", page.say(Text(f"conflicts/{name}/why")), "", *_condition(page, entry["when"])]
        if "mend" in entry:
            mend = ", ".join(f"`{key}`: {_operand(page, value)}" for key, value in entry["mend"].items())
            lines += ["", page.word("docs_mend", mend=mend)]
        yield "\n".join(lines)
