"""Reads the frames of Python tracebacks: plain, IPython, Colab, rich boxes, loguru."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomdoctor.sources.log.figures import whole
from oomdoctor.sources.log.lines import Line

# Lines between two frames that belong to neither: source lines of IPython and rich (about seven), other ranks' bars.
GAP = 16
FARTHEST = 1500  # lines of one traceback: the deepest have about 200 frames of a few lines each
BELOW = 4  # lines between a message and a traceback that is printed after it


class Frame(NamedTuple):
    """One frame. path: of the file, as printed. line: 0 where it is not printed. code: the source line, if printed."""

    path: str
    line: int
    function: str
    code: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} in {self.function}"


_FRAMES = [
    re.compile(pattern)
    for pattern in (
        r"""^[ >│|]*File ["'](?P<path>[^"'\n]{1,400})["'], line (?P<line>\d+)(?:, in (?P<function>[^\n]{1,200}))?""",
        r"^ *File (?P<path>[^\n\"']{1,300}?):(?P<line>\d+)(?:, in (?P<function>[^\n(:]{1,200})(?:\(.{0,300})?)?$",
        r"^\[(?P<path>[^\]\n]{1,300})\]\(https?://[^)\n]{0,100}\) in (?P<function>[^\n(]{1,200})",
        r"^(?P<path>(?:<ipython-input|[~/]|[A-Za-z]:\\)[^\n:]{1,300}?) in (?P<function>[\w.<>]+)(?:\(|$)",
        r"^(?P<path>[\w./\\~-][\w./\\~ -]{0,300}\.py):(?P<line>\d+): in (?P<function>[\w.<>]{1,120})$",
        r"^ *(?:Cell|Input) ?In ?\[\d*\],? ?(?:line (?P<line>\d+)|in (?P<function>[^\n(]{1,100}))",
        r"^[ |❱>]*+(?P<path>(?:[~/]|[A-Za-z]:\\)?[\w./\\~@+ -]{0,300}\.\w{1,4}):(?P<line>\d+)"
        r" in (?P<function>[\w.<>]{1,120})",
    )
]
_HEADER = "Traceback (most recent call last"
_ARROW = re.compile(r"^ *(?:-+> ?\d*|❱ ?\d+) +(?P<code>\S.*)")
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|OutOfResources)(?:\(\w+\))?(?::|$)"
)


def frame_at(lines: Sequence[Line], index: int) -> Frame | None:
    """The frame that starts on this line, if one does."""
    text = lines[index].text
    if "File" not in text and " in " not in text and "In" not in text:
        return None
    for pattern in _FRAMES:
        if found := pattern.match(text[:600]):
            groups = found.groupdict()
            function = (groups.get("function") or "<module>").strip()
            path = groups.get("path") or "<notebook>"
            return Frame(path.strip(), whole(groups.get("line")) or 0, function.split("(")[0], _code(lines, index))
    return None


def _code(lines: Sequence[Line], index: int) -> str:
    """The source line of a frame: the line after it, or the one that an arrow points at."""
    following = lines[index + 1 : index + 8]
    for line in following:
        if found := _ARROW.match(line.text):
            return found["code"].strip()
    return following[0].text.strip() if following and following[0].text.startswith("    ") else ""


class Traceback(NamedTuple):
    """frames: innermost last. places: the index of each frame's line. head: the line that it starts under."""

    frames: tuple[Frame, ...] = ()
    places: tuple[int, ...] = ()
    head: str = ""

    def line_of(self, frame: Frame) -> int:
        """Index of the line on which a frame stands."""
        return self.places[next(at for at, one in enumerate(self.frames) if one is frame)]


def traceback_of(lines: Sequence[Line], index: int) -> Traceback:
    """The traceback that ends in the message on this line, or else the one that follows it."""
    above = _above(lines, index)
    return above if above.frames else _below(lines, index)


def _above(lines: Sequence[Line], index: int) -> Traceback:
    frames: list[Frame] = []
    places: list[int] = []
    gap, heads, head = 0, 0, ""
    for at in _same_writer(lines, range(index - 1, max(-1, index - FARTHEST), -1), index):
        head = lines[at].text
        frame = frame_at(lines, at)
        if frame is not None:
            frames.append(frame)
            places.append(at)
            gap = 0
            continue
        if _HEADER in head:
            break
        if _EXCEPTION.match(head):
            heads += 1
            if frames or heads > 1:
                break
        gap += not _is_detail(head)
        if gap > GAP:
            break
    return Traceback(tuple(frames[::-1]), tuple(places[::-1]), head)


def _below(lines: Sequence[Line], index: int) -> Traceback:
    frames: list[Frame] = []
    places: list[int] = []
    gap = 0
    for at in _same_writer(lines, range(index + 1, min(len(lines), index + FARTHEST)), index):
        frame = frame_at(lines, at)
        if frame is not None:
            frames.append(frame)
            places.append(at)
            gap = 0
            continue
        if frames and (_HEADER in lines[at].text or _EXCEPTION.match(lines[at].text)):
            break
        gap += 1
        if gap > (GAP if frames else BELOW):
            break
    return Traceback(tuple(frames), tuple(places))


def _same_writer(lines: Sequence[Line], order: range, index: int) -> Iterator[int]:
    """The lines that the same rank or process wrote."""
    mine = lines[index]
    return (at for at in order if lines[at].rank == mine.rank and lines[at].writer == mine.writer)


def _is_detail(text: str) -> bool:
    """Part of a traceback beside its frames: source lines, carets, values that loguru and rich print."""
    return text.startswith(("    ", "│", "└", "├", "╭", "╰", "  [Previous line", " ", "❱")) or not text.strip(" ^~│└")
