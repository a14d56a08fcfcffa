"""What the parts of the dialogue share: what is known so far, the port, and what the program can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from oomdoctor.case import Case, Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.plan import Step
from oomdoctor.report.page import WARN, Page
from oomdoctor.wizard.ports import Port

T = TypeVar("T")


class Examine(Protocol):
    """Works a case out anew. Raises UserError for a model or card that nobody knows."""

    def __call__(self, case: Case, prefer: str | None = None) -> Findings: ...


@dataclass(slots=True)
class Dialogue:
    """The state of one dialogue. case: what is known, without what rules/questions assume.

    done: the steps that were taken, each with the case that it was made for. closed: the run works now.

    ask_plan: ask which plan to follow where they differ; full: show formulas and sources.
    read_log: the case of a log's path; save: keeps a case and gives its path; both raise UserError. forget: undoes
    the keeping.
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
    prefer: str | None = None
    done: list[tuple[Step, Case]] = field(default_factory=list)
    closed: bool = False

    @property
    def page(self) -> Page:
        return Page(self.port.console, self.lang, brief=not self.full)

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
        words = " ".join(part for part in (self.page.say(error.message), self.page.say(error.hint)) if part)
        self.page.signed(f"{error.reference}{self.page.mark('colon')}{words}", WARN)

    def keep(self) -> None:
        """Save the case and print the way back to it. Of a case that is closed, nothing is left to take up."""
        if self.closed:
            self.forget()
            return
        try:
            self.page.paragraph(self.word("saved", path=self.save(self.case)))
        except UserError as error:
            self.page.signed(self.word("not_saved", reason=self.page.say(error.message)), WARN)
