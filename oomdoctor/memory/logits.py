"""What every loss is made of: bytes for each logit, at three moments, and the words for them."""

from typing import NamedTuple

from oomdoctor.case import Text


class Loss(NamedTuple):
    """Bytes. kept: from the loss until its backward; forward, backward: alive at the peak of each, kept included.

    forward_formula, formula: of the second and of the third.
    """

    kept: int
    forward: int
    backward: int
    forward_formula: Text
    formula: Text


def per_logit(tokens: int, words: int, kept: float, forward: float, backward: float) -> Loss:
    """A loss that takes so many bytes for each logit."""
    logits = tokens * words
    return Loss(
        kept=round(kept * logits),
        forward=round(forward * logits),
        backward=round(backward * logits),
        forward_formula=in_words(tokens, words, forward),
        formula=in_words(tokens, words, backward),
    )


def in_words(tokens: int, words: int, each: float) -> Text:
    """`2048 tokens x 32000 words x 12 B`."""
    return Text("texts/bill.logits", {"tokens": tokens, "words": words, "each": each})


def and_chunk(before: Text, tokens: int, words: int, each: float) -> Text:
    """The same of a chunk, on top of what stands before."""
    return Text("texts/bill.and_chunk", {"before": before, "tokens": tokens, "words": words, "each": each})
