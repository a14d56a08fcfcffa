"""A shell script, or one pasted command, as words with their places. Nothing is run; a variable is followed where the
script itself sets it to a plain value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

# One piece of the text at a time, so that each character is looked at once: blanks with line ends that a backslash
# hides, a comment, the end of a command, or one part of a word.
_PIECE = re.compile(
    r"(?P<blank>(?:[ \t\r]|\\\r?\n)+)|(?P<end>\n|;;?|&&?|\|\|?|\(\(?|\)\)?)|(?P<redirect>[<>]+&?)"
    r"|(?P<comment>#[^\n]*)|(?P<calculated>\$\([^()\n]*\)|`[^`\n]*`)|(?P<single>'[^']*'?)|(?P<double>\"(?:[^\"\\]|\\.)*\"?)|(?P<escaped>\\.?)|(?P<plain>(?:[^\s\\'\"`;&|()<>$]|\$(?!\())+)",
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}$]*))?\}|(\w+))")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CALCULATED = re.compile(r"\$\(|`|\$[^\w{]|\$\{")
_BEFORE = ("export", "env", "exec", "nohup", "time", "sudo", "then", "do", "else", "if", "while", "{", "local")
_INSIDE = ("calculated", "single", "double", "escaped", "plain")
_UNESCAPED = re.compile(r'\\(["\\$`])')
_MOST_WORDS = 20_000  # of one script; commands of real ones have some hundred
_LONGEST_VALUE = 4096


class Word(NamedTuple):
    """text: without quotes, variables filled in; line, start, end: its place; known: nothing in it is left open
    (`$1`, `$(nproc)`); quoted: it stood in quotes."""

    text: str
    line: int
    start: int
    end: int
    known: bool = True
    quoted: bool = False


class Command(NamedTuple):
    """words: of one command, its program first. environment: what was set before it on the line or in the script."""

    words: tuple[Word, ...]
    environment: Mapping[str, Word]

    @property
    def line(self) -> int:
        return self.words[0].line


def commands(text: str) -> Iterator[Command]:
    """The commands of a script, in order. A variable that is set in two ways keeps the last."""
    known: dict[str, Word] = {}
    for words in _split(text, known):
        rest = list(words)
        while rest and (_sets(rest[0]) or rest[0].text in _BEFORE):
            word = rest.pop(0)
            match = _sets(word)
            if match:
                known[match[1]] = word._replace(text=match[2][:_LONGEST_VALUE])
        if rest:
            yield Command(tuple(rest), dict(known))


def _sets(word: Word) -> re.Match[str] | None:
    return _ASSIGNED.fullmatch(word.text)


def _split(text: str, known: Mapping[str, Word]) -> Iterator[list[Word]]:
    """The words of each command. Variables are filled in by what is known when the word is read."""
    words: list[Word] = []
    parts: list[_Part] = []  # of the word that is being read
    count, line, counted, redirected = 0, 1, 0, False
    for piece in _PIECE.finditer(text):
        kind = str(piece.lastgroup)
        if kind in _INSIDE:
            parts.append(_part(kind, piece, known))
            continue
        if parts:
            start = parts[0].start
            line, counted, count = line + text.count("\n", counted, start), start, count + 1
            if not redirected and not (kind == "redirect" and parts[0].text.isdigit()):  # > file and 2>
                words.append(_word(parts, line, piece.start()))
            parts, redirected = [], False
        redirected = redirected or kind == "redirect"
        if kind == "end" and words:
            yield words
            words = []
        if count > _MOST_WORDS:
            return
    if parts and not redirected:
        words.append(_word(parts, line + text.count("\n", counted, parts[0].start), len(text)))
    if words:
        yield words


class _Part(NamedTuple):
    """A part of a word. known: nothing is left open in it."""

    text: str
    start: int
    known: bool = True
    quoted: bool = False


def _word(parts: list[_Part], line: int, end: int) -> Word:
    text, known = "".join(part.text for part in parts), all(part.known for part in parts)
    return Word(text, line, parts[0].start, end, known, any(part.quoted for part in parts))


def _part(kind: str, piece: re.Match[str], known: Mapping[str, Word]) -> _Part:
    raw = piece[0]
    if kind == "single":
        return _Part(raw.strip("'"), piece.start(), quoted=True)
    if kind == "calculated":
        return _Part(raw, piece.start(), known=False)
    if kind == "escaped":
        return _Part(raw[1:], piece.start())
    if kind == "double":
        raw = _UNESCAPED.sub(r"\1", raw[1:-1] if len(raw) > 1 and raw.endswith('"') else raw[1:])
    text, sure = _filled(raw, known)
    return _Part(text, piece.start(), sure, kind == "double")


def _filled(text: str, known: Mapping[str, Word]) -> tuple[str, bool]:
    """A text with its variables filled in, and whether all of them are known."""
    open_ends = bool(_CALCULATED.search(_VARIABLE.sub("", text)))

    def value(found: re.Match[str]) -> str:
        nonlocal open_ends
        word = known.get(found[1] or found[3])
        if word is not None and word.known:
            return word.text
        if found[2] is not None and word is None:
            return found[2]
        open_ends = True
        return found[0]

    return _VARIABLE.sub(value, text)[:_LONGEST_VALUE], not open_ends
