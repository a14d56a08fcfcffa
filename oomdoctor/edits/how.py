"""The exact edit of one change in one framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from oomdoctor.case import EMPTY


class How(NamedTuple):
    """framework: transformers, trl, peft, bitsandbytes, accelerate, deepspeed, pytorch, shell.

    file: where it belongs (`TrainingArguments`, `BitsAndBytesConfig`, `ds_config.json`, `shell`). settings: key and
    value as that framework takes them. before, after: the lines, ready to paste; before is None where it is unknown.
    """

    framework: str
    file: str
    settings: Mapping[str, Any] = EMPTY
    before: str | None = None
    after: str = ""
