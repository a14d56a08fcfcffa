"""Sizes in and out."""

import pytest

from oomdoctor.units import parse_size, show_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("172.00 MiB", 172 * 1024**2),
        ("3.14 GiB", round(3.14 * 1024**3)),
        ("512 bytes", 512),
        ("11.14 GB", round(11.14 * 1024**3)),  # MPS prints GB and divides by 1024
        ("1900,00 MiB", 1900 * 1024**2),  # llama.cpp under a German locale
        ("2.39GiB", round(2.39 * 1024**3)),
        ("1,900.00 MiB", 1900 * 1024**2),  # thousands, as an English locale prints them
        ("1.900,00 MiB", 1900 * 1024**2),  # and a German one
        ("1,572,864.00 KiB", 1536 * 1024**2),
        ("16,384,000 bytes", 16384000),
        ("16,384 bytes", 16384),
        ("1,5 GiB", 1536 * 1024**2),
    ],
)
def test_sizes_are_read_as_tools_print_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "12 parsecs", "1.2.3 GiB", "nan MiB MiB", ",", "1,2,3.4.5 GiB", "1.2,3,4 GiB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (90177536, "86.00 MiB"),
        (25769803776, "24.00 GiB"),
        (-1024, "-1.00 KiB"),
    ],
)
def test_sizes_are_shown_in_powers_of_1024(size: int, shown: str) -> None:
    assert show_bytes(size) == shown
