"""The exact edit of one change in one framework."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from oomdoctor.case import EMPTY, Text
from oomdoctor.edits.versions import Ranges


class Spelling(NamedTuple):
    """The same edit as the releases of `versions` take it, where the person's version is not known."""

    versions: Ranges
    settings: Mapping[str, Any]
    after: str


class How(NamedTuple):
    """framework: transformers, trl, peft, bitsandbytes, accelerate, deepspeed, pytorch, shell.

    file: where it belongs (`TrainingArguments`, `BitsAndBytesConfig`, `ds_config.json`, `shell`). settings: key and
    value as that framework takes them. before, after: the lines, ready to paste; before is None where it is unknown.
    versions: where the version is unknown and decides, the releases that take this spelling (package to range), and
    otherwise those of the other releases. needs: what the person's packages must be brought to first. note: what
    cannot be done here and what to do instead; then there may be nothing to paste.
    """

    framework: str
    file: str
    settings: Mapping[str, Any] = EMPTY
    before: str | None = None
    after: str = ""
    versions: Ranges = EMPTY
    otherwise: tuple[Spelling, ...] = ()
    needs: Ranges = EMPTY
    note: Text | None = None
