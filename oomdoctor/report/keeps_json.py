"""What a step keeps, as JSON: for whoever fills in figures of the run that the program does not know."""

from __future__ import annotations

from typing import Any

from oomdoctor.edits.keeping import ACCUMULATION, Keeps


def keeps_document(keeps: Keeps | None) -> dict[str, Any] | None:
    """None where the step's change says it all."""
    if keeps is None:
        return None
    old = [{"key": key, "value": value, "assumed": key in keeps.assumed} for key, value in keeps.old.items()]
    where = [{"framework": told.framework, "file": told.file, "key": told.key} for told in keeps.where]
    product = {"key": ACCUMULATION, "old": old, "times": keeps.times, "divided_by": keeps.divided_by}
    return {"effective_batch": {**product, "where": where}}
