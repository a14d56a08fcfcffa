"""What the parts of the dialogue share: what is known so far, the port, and what the program can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from oomdoctor.case import Case, Machine, Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.plan import Step
from oomdoctor.report.page import WARN, Page
from oomdoctor.texts import joined, plain
from oomdoctor.whatif import WhatIf
from oomdoctor.wizard.ports import Port

T = TypeVar("T")


class Examine(Protocol):
    """Works a case out anew. Raises UserError for a model or card that nobody knows."""

    def __call__(self, case: Case, prefer: str | None = None) -> Findings: ...


@dataclass(slots=True)
class Dialogue:
    """The state of one dialogue. case: what is known, without what rules/questions assume.

    done: the steps that were taken, each with the case that it was made for. closed: the run works now.
    unread: much was told since the person last chose something.

    ask_plan: ask which plan to follow where they differ; full: show formulas and sources.
    read_log: the case of a log's path; save: keeps a case and gives its path; both raise UserError. forget: undoes
    the keeping. look: reads the GPU of this machine anew, for what is examined from then on.
    """

    case: Case
    port: Port
    lang: str
    examine: Examine
    read_log: Callable[[str], Case]
    save: Callable[[Case], str]
    forget: Callable[[], None] = lambda: None
    ask_plan: bool = True
    full: bool = False
    look: Callable[[], Machine | None] | None = None
    what_if: WhatIf | None = None
    done: list[tuple[Step, Case]] = field(default_factory=list)
    closed: bool = False
    unread: bool = False

    @property
    def page(self) -> Page:
        return Page(self.port.console, self.lang, brief=not self.full)

    @property
    def prefer(self) -> str | None:
        """Whose plan the person chose to follow; None where none is chosen, or `--prefer` has decided."""
        return self.case.prefer if self.ask_plan else None

    def stands_at(self, *stages: str) -> bool:
        """Whether the dialogue is as far as one of STAGES."""
        return self.case.stage in stages

    def go_to(self, stage: str) -> None:
        """From here an interrupted dialogue goes on."""
        self.case = self.case._replace(stage=stage)

    def word(self, name: str, /, **values: Any) -> str:
        """The words `texts/wizard.NAME`."""
        return self.page.say(Text(f"texts/wizard.{name}", values))

    def careful(self, act: Callable[[], T]) -> T | None:
        """The result, or None after saying what is wrong with the input."""
        try:
            return act()
        except UserError as error:
            self.refuse(error)
            return None

    def refuse(self, error: UserError) -> None:
        """Say what is wrong with the input, and what to do."""
        words = joined(self.page.say(error.message), self.page.say(error.hint))
        self.page.signed(f"{plain(error.reference)}{self.page.mark('colon')}{words}", WARN)

    def keep(self, first: str = "") -> None:
        """Save the case, then print a sentence and the way back to it: where the window was closed, nothing can be
        printed. Of a case that is closed, nothing is left to take up."""
        path, trouble = self._saved()
        if first:
            self.page.line("")
            self.page.paragraph(first)
        if path is not None:
            self.page.paragraph(self.word("saved"))
            self.page.code(path, style="dim")
        if trouble is not None:
            self.page.signed(self.word("not_saved", reason=self.page.say(trouble.message)), WARN)

    def _saved(self) -> tuple[str | None, UserError | None]:
        """The path of the case that is kept now, or why it is not."""
        if self.closed:
            self.forget()
            return None, None
        try:
            return self.save(self.case), None
        except UserError as error:
            return None, error
