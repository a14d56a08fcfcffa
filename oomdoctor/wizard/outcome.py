"""What came of a step: it runs, it failed again, another error came up, or the person passes it over."""

from __future__ import annotations

from oomdoctor import refusals
from oomdoctor.doctor import Findings
from oomdoctor.followups import cure_of
from oomdoctor.plan import Step
from oomdoctor.remedies.rules import all_rules
from oomdoctor.report.basis import value_text
from oomdoctor.report.others import plan_words
from oomdoctor.report.page import WARN
from oomdoctor.wizard import learning
from oomdoctor.wizard.dialogue import Dialogue
from oomdoctor.wizard.opening import Message, is_failure, read_message
from oomdoctor.wizard.ports import Choice
from oomdoctor.wizard.telling import tell, tell_bill

_PASSES = ("skip", "cannot")  # answers of someone who does not make the change
_FAILED = ("same", "another")


def take(talk: Dialogue, findings: Findings, step: Step, last: bool) -> Findings | str:
    """What came of a step: runs | same | next | stop, or findings with other steps.

    An error that is no memory failure is mended first; then the same is asked again. Until that is over the step does
    not count as taken: whoever is interrupted here stands here again.
    """
    made = False
    while True:
        answer = _does_it_run(talk, step, last)
        if answer in _PASSES:
            others = _pass_over(talk, step, answer)
            if others is not None:
                return others
            continue
        message = read_message(talk) if answer in _FAILED else None
        if (message is None and answer == "another") or (message is not None and not is_failure(message.case)):
            tell_cure(talk, message, step)
            made = True
            continue
        if made or answer != "stop":
            talk.done.append((step, findings.case))
            talk.case = learning.changed(talk.case, findings, step, failed_again=answer == "same")
        return answer if message is None else relapse(talk, message, step)


def _does_it_run(talk: Dialogue, step: Step, last: bool) -> str:
    """What happened after the change: runs | same | another | next | skip | cannot | stop."""
    enough = step.fits is not False or last
    names = ["runs", "same", "another", *(() if last else ("next",)), *_PASSES, "stop"]
    choices = [Choice(name, talk.word(name)) for name in names]
    words = talk.word("does_it_run" if enough else "more_steps")
    return str(talk.port.select(words, choices, "runs" if enough else "next"))


def relapse(talk: Dialogue, message: Message, step: Step | None = None) -> Findings:
    """The findings of a new crash of the changed run. step: that was taken last, and that the new log should show."""
    talk.page.paragraph(talk.word("new_failure"))
    if step is not None:
        _say_without_effect(talk, message, step)
    talk.case = learning.crashed_again(talk.case, message.case)
    findings = plan_anew(talk)
    tell(talk, findings)
    tell_bill(talk, findings)
    return findings


def _say_without_effect(talk: Dialogue, message: Message, step: Step) -> None:
    """The settings of the step that the new log states otherwise: then it was not the changed run that failed."""
    for key, value in step.change.items():
        said = message.case.facts.won.get(key)
        if said is not None and not said.assumed and said.value != value:
            shown = {"key": key, "said": value_text(said.value), "value": value_text(value)}
            talk.page.signed(talk.word("without_effect", **shown), WARN)


def tell_cure(talk: Dialogue, message: Message | None, step: Step | None) -> None:
    """What mends an error that is no memory failure: of this message, else what the step is known to cause."""
    cure = cure_of(message.text) if message is not None else None
    if cure is not None:
        talk.page.paragraph(talk.word("known_error"))
        talk.page.bullet(talk.page.say(cure))
        return
    known = step.rule.afterwards if step is not None else ()
    talk.page.paragraph(talk.word("other_error" if known else "other_error_unknown"))
    for text in known:
        talk.page.bullet(talk.page.say(text))


def _pass_over(talk: Dialogue, step: Step, answer: str) -> Findings | None:
    """The findings without a step, for now or for good; None where the person thinks better of it."""
    if answer == "skip":
        talk.case = refusals.passed_over(talk.case, step.rule)
        talk.page.paragraph(talk.word("skipped"))
    else:
        choices = [Choice(why, talk.word(f"cannot_{why}")) for why in (*refusals.ANSWERS, "back")]
        why = talk.port.select(talk.word("cannot_why"), choices, refusals.ANSWERS[0])
        if why == "back":
            return None
        _rule_out(talk, step, str(why))
    findings = plan_anew(talk)
    if findings.plan is not None and findings.plan.steps:
        talk.page.paragraph(talk.word("plan_now", **plan_words(talk.page, findings.plan)))
    return findings


def _rule_out(talk: Dialogue, step: Step, why: str) -> None:
    """The step for good, and what the same reason rules out."""
    refused = refusals.refusals_for(step.rule, why, all_rules())
    talk.case = talk.case.refuse(refused)
    talk.page.paragraph(talk.word("ruled_out" if len(refused) == 1 else "ruled_out_alike", count=len(refused) - 1))


def plan_anew(talk: Dialogue) -> Findings:
    """The findings of the case as it is now; where nothing is left but steps that were skipped, they come back."""
    findings = talk.examine(talk.case, talk.prefer)
    waiting = refusals.brought_back(talk.case)
    if waiting == talk.case or (findings.plan is not None and findings.plan.steps):
        return findings
    talk.case = waiting
    talk.page.paragraph(talk.word("skipped_again"))
    return talk.examine(talk.case, talk.prefer)
