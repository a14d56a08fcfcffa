"""Adds up a formula of the bill, as a reader would."""

from __future__ import annotations

import re

from oomdoctor.units import GIB, KIB, MIB

UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
NUMBER = re.compile(r"(?<![\w.-])(\d[\d.]*(?:e[+-]?\d+)?)(?: ?(%|B|KiB|MiB|GiB)(?![A-Za-z]))?")
SIGNS = re.compile(r"(?<= )x(?= )|(?<= )[-+/](?= )|(?<=% )of(?= )|[()]")


def added_up(formula: str) -> float:
    """The value of a formula: its numbers, units, signs and brackets, without the words."""
    found = [*NUMBER.finditer(formula), *SIGNS.finditer(formula)]
    tokens = []
    for match in sorted(found, key=lambda match: match.start()):
        if match.re is SIGNS:
            tokens.append({"x": "*", "of": "*"}.get(match.group(), match.group()))
        else:
            factor = 0.01 if match.group(2) == "%" else UNITS[match.group(2) or "B"]
            tokens.append(f"({match.group(1)} * {factor})")
    return float(eval(" ".join(tokens), {"__builtins__": {}}))  # digits and signs alone
