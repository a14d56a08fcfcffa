"""All dialogues in a terminal, in two languages and two widths, left at every prompt and taken up again; once in tmux.

    python -m benchmarks.dialogues [NAME ...] [--jobs 2]

Each dialogue of tests/wizard/dialogues is walked through: at every prompt it is left, by Ctrl-C, and once more by
Ctrl-D, SIGTERM, SIGHUP, after the window was made smaller, or under --plain. It must end with 130 and say the way
back, and `oomdoctor resume` must stand at that prompt again. On every screen: nothing wider than the window, no half
character, no escapes, no traceback, one language.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.wizard.driving import NAMES, dialogue
from tests.wizard.interrupting import STOPS, Interrupted
from tests.wizard.prompts import squeezed
from tests.wizard.terminal import ROOT

LANGUAGES, WIDTHS = ("en", "zh"), (60, 100)
PLAIN = "plain"  # numbers are typed in place of arrow keys, and it is left by Ctrl-C


class Walk(NamedTuple):
    """One dialogue in a language and a width, and how it is left at its prompts."""

    name: str
    lang: str
    columns: int
    stop: str


class Result(NamedTuple):
    walk: Walk
    prompts: int
    seconds: float
    found: list[str]


def walks(names: list[str]) -> Iterator[Walk]:
    """Every dialogue in every language and width; the ways to leave take turns, Ctrl-C comes everywhere."""
    ways = [*(name for name in STOPS if name != "ctrl-c"), PLAIN]
    places = [(name, lang, columns) for name in names for lang in LANGUAGES for columns in WIDTHS]
    for number, place in enumerate(places):
        yield Walk(*place, "ctrl-c")
        yield Walk(*place, ways[number % len(ways)])


def walked(walk: Walk) -> Result:
    """What was found in one walk."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        options = ("--plain",) if walk.stop == PLAIN else ()
        through = Interrupted(dialogue(walk.name), walk.lang, Path(folder), (walk.columns, 24), options)
        try:
            found = through.walk(STOPS.get(walk.stop, STOPS["ctrl-c"]))
        except AssertionError as error:
            found = [*through.found, str(error)]
        return Result(walk, through.prompts, time.monotonic() - begun, found)


def in_tmux(lang: str, columns: int) -> list[str]:
    """The question after a log in a real terminal program, as tmux shows it, and the way back after Ctrl-C."""
    name = f"oomdoctor-{lang}-{columns}"
    words = {"en": ("arrow keys", "Interrupted."), "zh": ("用方向键选择", "已中断。")}[lang]
    with tempfile.TemporaryDirectory() as folder:
        program = f"{sys.executable} -m oomdoctor --no-gpu --lang {lang} --from-log examples/llama2-7b-lora-3090.log"
        run = f"cd {shlex.quote(str(ROOT))}; XDG_DATA_HOME={folder} {program}; sleep 30"
        tmux(
            "new-session",
            "-d",
            "-s",
            name,
            "-x",
            str(columns),
            "-y",
            "40",
            "env LC_ALL=C.UTF-8 bash -c " + shlex.quote(run),
        )
        try:
            asked = wait_for(name, words[0])
            tmux("send-keys", "-t", name, "C-c")
            left = wait_for(name, words[1])
        finally:
            tmux("kill-session", "-t", name)
    lines = (*asked.split("\n"), *left.split("\n"))
    lacking = [word for word, shown in zip(words, (asked, left), strict=True) if squeezed(word) not in squeezed(shown)]
    return [f"not shown: {word}" for word in lacking] + [line for line in lines if "\ufffd" in line or "^[" in line]


def wait_for(name: str, words: str) -> str:
    """What tmux shows, as soon as the words are there; after 20 s whatever there is."""
    until = time.monotonic() + 20
    shown = ""
    while time.monotonic() < until and squeezed(words) not in squeezed(shown):
        time.sleep(0.2)
        shown = tmux("capture-pane", "-p", "-t", name)
    return shown


def tmux(*arguments: str) -> str:
    return subprocess.run(["tmux", "-u", *arguments], capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args()
    failed = prompts = 0
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for result in pool.map(walked, walks(chosen.names or list(NAMES))):
            prompts += result.prompts
            failed += bool(result.found)
            verdict, walk = "FAILED" if result.found else "ok", " ".join(map(str, result.walk))
            print(f"{verdict:6} {walk}: {result.prompts} prompts, {result.seconds:.0f} s", flush=True)
            for each in result.found:
                print(f"       {each}", flush=True)
    if shutil.which("tmux"):
        for lang in LANGUAGES:
            found = in_tmux(lang, 60)
            failed += bool(found)
            print(f"{'FAILED' if found else 'ok':6} tmux {lang} 60", *found, flush=True)
    print(f"{prompts} prompts left and taken up again, {failed} walks failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
