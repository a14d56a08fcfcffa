"""One process with the libraries loaded, for all that runs patients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.clinic.beds import Beds


@pytest.fixture(scope="session")
def beds() -> Iterator[Beds]:
    with Beds(workers=2) as beds:
        yield beds
