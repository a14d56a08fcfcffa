"""The dialogue: how it starts, the few questions that matter, then the plan, one step at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from oomdoctor.case import Case, Fact, Text, UserError, Value
from oomdoctor.doctor import Findings
from oomdoctor.plan import Plan, Step
from oomdoctor.questions import Question
from oomdoctor.report.basis import facts_section, notes_section
from oomdoctor.report.crash import crash_section, why_section
from oomdoctor.report.now import now_section
from oomdoctor.report.others import differ, plan_words
from oomdoctor.report.page import WARN, Page
from oomdoctor.report.steps import change_text, step_section, usable_after
from oomdoctor.report.terminal import bill_of_findings, used_facts
from oomdoctor.wizard.asking import Reply, ask, question_of
from oomdoctor.wizard.ports import Choice, Port

# Sizes that the log gives of a crash, which no longer hold once the run has been changed.
_FIGURES = (
    "requested_bytes", "free_bytes", "allocated_bytes", "reserved_bytes", "reserved_unallocated_bytes",
    "own_process_bytes",
)  # fmt: skip


class Interrupted(Exception):
    """The person pressed Ctrl-C or closed the input; what was answered has been saved."""


class Examine(Protocol):
    """Works a case out anew. Raises UserError for a model or card that nobody knows."""

    def __call__(self, case: Case, prefer: str | None = None) -> Findings: ...


def walk(  # noqa: PLR0913 - the door of the dialogue: what it may do is handed in by name
    case: Case,
    port: Port,
    lang: str,
    *,
    examine: Examine,
    read_log: Callable[[str], Case],
    save: Callable[[Case], str],
    ask_plan: bool = True,
) -> Findings | None:
    """The whole dialogue. Gives the findings it ended with, None where the run was made to work.

    ask_plan: ask which plan to follow where they differ; False where `--prefer` has decided.

    Raises Interrupted after Ctrl-C, once the case has been saved and the way back been printed.
    """
    dialogue = Dialogue(case, port, lang, examine, read_log, save, ask_plan)
    try:
        return dialogue.run()
    except (KeyboardInterrupt, EOFError):
        dialogue.interrupted()
        raise Interrupted from None
    except Exception:
        dialogue.keep()  # a fault of ours must not cost the person their answers
        raise


@dataclass(slots=True)
class Dialogue:
    """The state of one dialogue. case: what is known, without assumptions; done: the steps that were taken."""

    case: Case
    port: Port
    lang: str
    examine: Examine
    read_log: Callable[[str], Case]
    save: Callable[[Case], str]
    ask_plan: bool = True
    prefer: str | None = None
    done: list[Step] = field(default_factory=list)

    @property
    def page(self) -> Page:
        return Page(self.port.console, self.lang)

    def run(self) -> Findings | None:
        """From the greeting to the summary."""
        if self.case.origin is None and self.case.crash is None and not self.case.facts.won:
            self.page.paragraph(self.word("greeting"))
            self.start()
        findings = self.tell(self.examined())
        findings = self.questions(findings)
        bill_of_findings(self.page, findings)
        facts_section(self.page, used_facts(findings), findings.questions)
        notes_section(self.page, findings.notes)
        findings = self.choose_plan(findings)
        return self.follow(findings)

    def start(self) -> None:
        """How the person wants to begin; asked again until a log holds a failure."""
        ways = [Choice(way, self.word(f"start_{way}")) for way in ("log", "paste", "plan")]
        while True:
            way = self.port.select(self.word("start"), ways, "log")
            if way == "plan":
                return
            found = self.read_path() if way == "log" else self.read_paste()
            if found is not None and _is_failure(found):
                self.case = found
                return
            if found is not None:
                self.page.signed(self.word("no_failure"), WARN)

    def read_path(self) -> Case | None:
        """The case of a log that the person names; None where it cannot be read."""
        path = self.port.text(self.word("path"), validate=self._no_such_path)
        found: Case | None = self.careful(lambda: self.read_log(os.path.expanduser(path)))
        return found

    def read_paste(self) -> Case | None:
        """The case of what the person pastes."""
        text = self.port.paste(self.word("paste"))
        found: Case | None = self.careful(lambda: _read_text(text, self.read_log))
        return None if found is None else replace(found, origin=None)

    def examined(self) -> Findings:
        """The first findings. Where nobody knows the model or the card that the log names, the person is asked."""
        while True:
            try:
                return self.examine(self.case)
            except UserError as error:
                self.refuse(error)
                question = question_of("gpus.name" if error.message.path.startswith("texts/gpu.") else "model")
                answer = ask(question, self.port, self.lang)
                if isinstance(answer, Reply):
                    raise
                self.case = self.with_answer(question, answer)

    def tell(self, findings: Findings) -> Findings:
        """What died and why, before anything is asked."""
        if findings.case.crash is not None:
            crash_section(self.page, findings.case.crash)
            why_section(self.page, findings.diagnosis)
        return findings

    def questions(self, findings: Findings) -> Findings:
        """Ask what would change the plan, one at a time, working everything out anew after each answer."""
        before: list[Case] = []
        while (question := self.next_question(findings)) is not None:
            self.page.line("")
            answer = ask(question, self.port, self.lang)
            if answer is Reply.ENOUGH:
                break
            if answer is Reply.BACK:
                self.case = before.pop() if before else self._first()
            else:
                before.append(self.case)
                self.case = self.with_answer(question, answer)
            findings = self.careful(lambda: self.examine(self.case)) or self._take_back(before)
        return findings

    def next_question(self, findings: Findings) -> Question | None:
        """The first open question that was not answered with "I don't know"; else which card it is for."""
        unknown = self.case.unknown_answers
        for question in findings.questions:
            if question.key not in unknown:
                return question
        card = findings.bill is not None and findings.usable_bytes is None and "gpus.name" not in unknown
        return question_of("gpus.name") if card else None

    def with_answer(self, question: Question, answer: Value | Reply) -> Case:
        """The case with one more answer, or one more thing that the person does not know."""
        if isinstance(answer, Reply):
            return replace(self.case, unknown_answers=(*self.case.unknown_answers, question.key))
        return self.case.know([Fact(question.key, answer, "answer")])

    def choose_plan(self, findings: Findings) -> Findings:
        """Ask which plan to follow, where they differ."""
        plan = findings.plan
        if not self.ask_plan or plan is None or not differ(plan, findings.alternatives):
            return findings
        plans = _different([plan, *findings.alternatives])
        choices = [Choice(one.prefer, self._plan_words(one)) for one in plans]
        self.page.line("")
        self.prefer = self.port.select(self.word("prefer"), choices, plan.prefer)
        return findings if self.prefer == plan.prefer else self.examine(self.case, self.prefer)

    def follow(self, findings: Findings) -> Findings | None:
        """Walk the steps. A new failure starts a new plan; None where the run works now."""
        while findings.plan is not None and findings.plan.steps:
            outcome = self.follow_plan(findings, findings.plan)
            if not isinstance(outcome, Findings):
                self.summary()
                return None if outcome == "runs" else findings
            findings = outcome
            self.tell(findings)
            bill_of_findings(self.page, findings)
        now_section(self.page, findings)
        self.summary()
        return findings

    def follow_plan(self, findings: Findings, plan: Plan) -> Findings | str:
        """One step after the other: `runs`, `stop`, or the findings of a new failure."""
        usable = findings.usable_bytes
        for number, step in enumerate(plan.steps, 1):
            usable = usable_after(step, usable)
            self.page.line("")
            step_section(self.page, number, step, usable)
            answer = self.does_it_run(step, last=number == len(plan.steps))
            if answer in ("runs", "stop"):
                if answer == "runs":
                    self.apply(step)
                return answer
            self.apply(step)
            if answer == "another":
                new = self.another_error(step)
                if new is not None:
                    return new
        return self.out_of_steps(plan)

    def does_it_run(self, step: Step, last: bool) -> str:
        """What happened after the change: runs | same | another | next | stop."""
        enough = step.fits is not False or last
        words = self.word("does_it_run") if enough else self.word("more_steps")
        names = ["runs", "same", "another", *(() if last else ("next",)), "stop"]
        choices = [Choice(name, self.word(name)) for name in names]
        return str(self.port.select(words, choices, "runs" if enough else "next"))

    def apply(self, step: Step) -> None:
        """The step's change is in the run now: it becomes known, and the figures of the crash are of an older run."""
        self.done.append(step)
        crash = self.case.crash
        self.case = replace(
            self.case.know(Fact(key, value, "answer") for key, value in step.change.items()),
            tried=(*self.case.tried, step.rule.id),
            crash=None if crash is None else replace(crash, **dict.fromkeys(_FIGURES)),  # type: ignore[arg-type]
        )

    def another_error(self, step: Step) -> Findings | None:
        """Read the new error: findings where memory failed again, else what this step is known to cause."""
        found = self.read_paste()
        if found is not None and _is_failure(found):
            self.page.paragraph(self.word("new_failure"))
            return self.relapse(found)
        known = step.rule.afterwards
        self.page.paragraph(self.word("other_error" if known else "other_error_unknown"))
        for text in known:
            self.page.bullet(self.page.say(text))
        return None

    def relapse(self, found: Case) -> Findings:
        """The new crash in place of the old one; what its log tells loses against what the person said."""
        self.case = replace(self.case.know(found.facts.won.values()), crash=found.crash)
        return self.examine(self.case, self.prefer)

    def out_of_steps(self, plan: Plan) -> Findings | str:
        """After the last step without success: a new message corrects the figures."""
        if not plan.fits:
            self.page.paragraph(self.word("no_more_steps"))
            return "stop"
        choices = [Choice(name, self.word(name)) for name in ("another", "stop")]
        if self.port.select(self.word("out_of_steps"), choices, "another") == "stop":
            return "stop"
        found = self.read_paste()
        return self.relapse(found) if found is not None and _is_failure(found) else "stop"

    def summary(self) -> None:
        """What was changed, and where the case is kept."""
        self.page.line("")
        self.page.paragraph(self.word("done" if self.done else "done_nothing"), style="bold")
        for step in self.done:
            self.page.bullet(self.page.say(step.rule.title))
            for key, value in step.change.items():
                self.page.paragraph(change_text(self.page, step, key, value), indent=4)
        self.keep()

    def interrupted(self) -> None:
        """Save what is known and say how to go on."""
        self.page.line("")
        self.page.paragraph(self.word("interrupted"))
        self.keep()

    def keep(self) -> None:
        """Save the case and print the way back to it."""
        try:
            self.page.paragraph(self.word("saved", path=self.save(self.case)))
        except UserError as error:
            self.page.signed(self.word("not_saved", reason=self.page.say(error.message)), WARN)

    def careful(self, act: Callable[[], Any]) -> Any:
        """The result, or None after saying what is wrong with the input."""
        try:
            return act()
        except UserError as error:
            self.refuse(error)
            return None

    def refuse(self, error: UserError) -> None:
        """Say what is wrong with the input, and what to do."""
        words = " ".join(part for part in (self.page.say(error.message), self.page.say(error.hint)) if part)
        self.page.signed(f"{error.reference}{self.page.mark('colon')}{words}", WARN)

    def word(self, name: str, /, **values: Any) -> str:
        return self.page.say(Text(f"texts/wizard.{name}", values))

    def _take_back(self, before: list[Case]) -> Findings:
        """The answer before the last one, after an answer that cannot be used."""
        if before:
            self.case = before.pop()
        return self.examine(self.case)

    def _first(self) -> Case:
        self.page.paragraph(self.word("nothing_before"))
        return self.case

    def _plan_words(self, plan: Plan) -> str:
        return self.word(f"prefer_{plan.prefer}", **plan_words(self.page, plan))

    def _no_such_path(self, path: str) -> str | None:
        return None if os.path.exists(os.path.expanduser(path)) else self.word("bad_path")


def _is_failure(case: Case) -> bool:
    return case.crash is not None and case.crash.kind != "not_oom"


def _different(plans: Iterable[Plan]) -> list[Plan]:
    """Plans with different rules, the first of each."""
    found: dict[tuple[str, ...], Plan] = {}
    for plan in plans:
        found.setdefault(plan.rules, plan)
    return list(found.values())


def _read_text(text: str, read_log: Callable[[str], Case]) -> Case:
    """Read pasted text the way a log is read, by way of a file that only this user can open."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="oomdoctor-") as folder:
        path = os.path.join(folder, "pasted.log")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return read_log(path)
