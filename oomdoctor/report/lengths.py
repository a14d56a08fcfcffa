"""The lengths of a data set on the screen and as JSON."""

from __future__ import annotations

from typing import Any

from oomdoctor.case import Text
from oomdoctor.lengths import QUANTILES, Distribution, card_settings, cuts, histogram, quantile
from oomdoctor.report.document import SCHEMA
from oomdoctor.report.page import DIM, WARN, Page
from oomdoctor.texts import render

_BAR = 24  # columns of the longest bar


def lengths_section(page: Page, found: Distribution) -> None:
    """How long the samples are, what each limit cuts off, the longest ones, and the lines for the run card."""
    page.heading(_word(page, "heading"))
    _counted(page, found)
    _quantiles(page, found)
    _bars(page, found)
    _limits(page, found)
    _longest(page, found)
    page.heading(_word(page, "heading_card"))
    page.paragraph(_word(page, "card"))
    page.code(card_lines(found))
    if found.estimated:
        page.paragraph(_word(page, "card_longest", high=found.factors[1]), style=DIM)


def card_lines(found: Distribution) -> str:
    """The lines of a run card that say how long the samples are."""
    values = ", ".join(f"{key.partition('.')[2]}: {value}" for key, value in card_settings(found).items())
    return f"lengths: {{{values}}}"


def lengths_document(found: Distribution, path: str, lang: str) -> dict[str, Any]:
    """The JSON document. Lengths are tokens; shares are between 0 and 1."""
    low, high = found.factors
    return {
        "schema": SCHEMA,
        "lengths": {
            "file": path,
            "samples": found.samples,
            "without_text": found.skipped,
            "columns": list(found.keys),
            "tokenizer": found.tokenizer,
            "estimated": {"low": low, "high": high} if found.estimated else None,
            "tokens": found.tokens,
            "mean": round(found.mean, 1),
            "quantiles": {f"p{percent}": quantile(found, percent) for percent in QUANTILES},
            "max": found.most,
            "histogram": [{"from": first, "to": last, "samples": count} for first, last, count in histogram(found)],
            "cut": [{"max_length": each.limit, "samples": each.samples, "tokens": each.tokens} for each in cuts(found)],
            "longest": [{"tokens": each.tokens, "place": render(each.place, lang)} for each in found.longest],
            "settings": card_settings(found),
        },
    }


def _word(page: Page, name: str, /, **values: object) -> str:
    return page.say(Text(f"texts/lengths.{name}", values))


def _counted(page: Page, found: Distribution) -> None:
    page.paragraph(_word(page, "counted", samples=found.samples, tokens=found.tokens, mean=round(found.mean)))
    page.paragraph(_word(page, "columns", keys=found.keys) if found.keys else _word(page, "each_line"))
    if found.estimated:
        low, high = found.factors
        page.signed(_word(page, "estimated", low=low, high=high), WARN)
    else:
        page.paragraph(_word(page, "by_tokenizer", name=found.tokenizer))
    if found.skipped:
        page.signed(_word(page, "skipped", count=found.skipped), WARN)


def _quantiles(page: Page, found: Distribution) -> None:
    page.heading(_word(page, "heading_quantiles"))
    rows = [(_word(page, "percent_up_to", percent=percent), f"{quantile(found, percent):,}") for percent in QUANTILES]
    rows.append((_word(page, "all_up_to"), f"{found.most:,}"))
    page.table([(name, length, "") for name, length in rows])


def _bars(page: Page, found: Distribution) -> None:
    page.line("")
    rows = histogram(found)
    most = max(1, *(count for _, _, count in rows))
    width = max(6, min(_BAR, page.width - 44))
    page.table(
        [
            (f"{first:,} - {last:,}", f"{count:,}", "#" * (-(-count * width // most)) if count else "")
            for first, last, count in rows
        ]
    )


def _limits(page: Page, found: Distribution) -> None:
    page.heading(_word(page, "heading_limits"))
    head = (_word(page, "limit"), _word(page, "samples_cut"), _word(page, "tokens_lost"), "")
    rows = [(f"{each.limit:,}", _share(each.samples), _share(each.tokens), "") for each in cuts(found)]
    page.table([head, *rows])


def _share(share: float) -> str:
    return "0 %" if share == 0 else "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _longest(page: Page, found: Distribution) -> None:
    page.heading(_word(page, "heading_longest"))
    for each in found.longest:
        page.bullet(_word(page, "long_sample", place=each.place, tokens=each.tokens), indent=2)
    page.paragraph(_word(page, "longest_matter"), style=DIM)
