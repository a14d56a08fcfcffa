"""What the commands print: documents, reports, and a sentence where something cannot be done."""

from __future__ import annotations

import errno
import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from oomdoctor.case import Text, UserError
from oomdoctor.doctor import Findings
from oomdoctor.exits import INTERNAL
from oomdoctor.report import document
from oomdoctor.report.document import Document
from oomdoctor.texts import joined, plain, render

if TYPE_CHECKING:
    from rich.console import Console

    from oomdoctor.applying import Written
    from oomdoctor.patching import Patches

PROGRAM = "oomdoctor"  # what each line on stderr begins with
# What writing fails with where the output takes no more: a full disk or quota, a size limit, a device that is gone.
_OF_OUTPUT = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def prepare_output() -> None:
    """Let nothing that is printed fail for its letters: where a terminal has no Chinese, question marks stand."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def finish_output() -> None:
    """Hand over all that was printed. Raises OSError where the output takes no more."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon_output() -> None:
    """Drop what could not be printed, so that the interpreter does not try it again at its end."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_of_output(error: Exception) -> bool:
    """Whether it was printing that failed: an error about a file that was opened names the file."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _OF_OUTPUT


def refuse_to_print(error: Exception, lang: str) -> int:
    """One sentence on stderr: standard output takes no more. Gives the exit code."""
    abandon_output()
    complain(render(Text("texts/cli.cannot_print", {"error": os.strerror(getattr(error, "errno", 0))}), lang))
    return INTERNAL


def someone_looks() -> bool:
    """Whether standard error is a terminal."""
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except (OSError, ValueError):
        return False


def complain(words: str) -> None:
    """One line on stderr. Where that takes nothing either, the exit code must say it all."""
    with suppress(OSError, ValueError):
        print(f"{PROGRAM}:", words, file=sys.stderr)


@contextmanager
def progress(path: str, lang: str, plain: bool = False) -> Iterator[Callable[[str], None]]:
    """One line on stderr that says how far it is, `PATH_NAME` of the texts; nothing where that is no terminal.

    plain: a line for each stage, as a terminal can show it that has no other way.
    """
    shown, plain = someone_looks(), plain or os.environ.get("TERM") == "dumb"
    last = ""

    def show(name: str) -> None:
        nonlocal last
        words, before, last = render(Text(f"{path}_{name}"), lang), last, name
        if shown and not plain:
            _overwrite(words)
        elif shown and name != before:
            _write(f"{words}\n")

    try:
        yield show
    finally:
        if shown and not plain:
            _overwrite("")


def _overwrite(words: str) -> None:
    """These words in the place of the line that the cursor is in."""
    _write(f"\r\x1b[K{words}")


def _write(words: str) -> None:
    with suppress(OSError, ValueError):
        print(words, end="", file=sys.stderr, flush=True)


def refuse(error: UserError, lang: str, as_json: bool) -> int:
    """One sentence on stderr, under `--json` the error document as well. Gives the exit code."""
    if as_json:
        print_json(document.error_document(error, lang))
    about = "" if error.reference == PROGRAM else f"{plain(error.reference)}:"
    complain(joined(about, render(error.message, lang), render(error.hint, lang)))
    return error.exit_code


def print_findings(
    findings: Findings,
    chosen: Namespace,
    lang: str,
    patches: Patches | None = None,
    written: Sequence[Written] | None = None,
) -> None:
    """The document, or the report on the screen; with the patches of the configs that the case was read from.

    patches: where they are worked out already, as they must be before files are written. written: files that the
    patches were written to, for the document.
    """
    if patches is None and findings.case.configs:
        from oomdoctor.patching import patches_for

        patches = patches_for(findings)
    if chosen.json:
        content = document.document(findings, lang)
        if patches is not None:
            from oomdoctor.report.patches import patches_document

            content["patches"] = patches_document(patches, lang)
        if written is not None:
            content["written"] = [each._asdict() for each in written]
        print_json(content)
        return
    from oomdoctor.report import terminal

    terminal.show(findings, lang, console_of(chosen), full=chosen.full)
    if patches is not None and patches.steps:
        from oomdoctor.report.patches import patches_section

        patches_section(console_of(chosen), lang, patches)


def print_bill(findings: Findings, chosen: Namespace, lang: str) -> None:
    """The document, or the bill alone on the screen."""
    if chosen.json:
        print_json(document.document(findings, lang))
    elif findings.bill is not None:
        from oomdoctor.report import terminal

        terminal.show_bill(findings.bill, findings.usable_bytes, lang, console_of(chosen))


def print_json(content: Document, indent: int | None = None) -> None:
    """One document on one line, unless indented; all of it ASCII."""
    import json

    text = json.dumps(content, allow_nan=False, indent=indent)
    if "\\ud" in text:  # maybe half a character, of a file name that is not UTF-8, which no reader of JSON takes
        whole = json.dumps(content, ensure_ascii=False).encode(errors="replace").decode()
        text = json.dumps(json.loads(whole), indent=indent)
    print(text)


def console_of(chosen: Namespace) -> Console:
    """The screen, as the options want it."""
    from oomdoctor.report.terminal import console

    return console(plain=chosen.plain)
