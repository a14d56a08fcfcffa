"""A folder that looks like /proc, and the program run with it in place of the real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOOTED = 1_700_000_000  # seconds since 1970
HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532999]"
TICKS = os.sysconf("SC_CLK_TCK")
PROGRAM = """
import sys
from oomdoctor.sources import procfs
procfs.ROOT = sys.argv.pop(1)
from oomdoctor.cli import main
sys.exit(main())
"""


def make(root: Path, namespace: str = HOST) -> Path:
    """The folder with process 1 and nothing else."""
    (root / "self" / "ns").mkdir(parents=True)
    (root / "self" / "ns" / "pid").symlink_to(namespace)
    (root / "stat").write_text(f"cpu 1 2 3\nbtime {BOOTED}\nprocesses 7\n")
    add(root, 1, ["/sbin/init"], uid=0)
    return root


def add(  # noqa: PLR0913 - what the kernel tells of a process
    root: Path, pid: int, words: Sequence[str], *, uid: int | None = None, after: float = 0, state: str = "S",
    parent: int = 1, card: bool = False,
) -> None:  # fmt: skip
    """A process. after: seconds from the start of the machine to its own. card: it has a card open."""
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    uid = os.getuid() if uid is None else uid
    name = os.path.basename(words[0]) if words else "defunct"
    (folder / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "comm").write_text(name + "\n")
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    rest = f"{state} {parent} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {round(after * TICKS)} 0 0"
    (folder / "stat").write_text(f"{pid} ({name}) a) b) {rest}\n")
    if card:
        (folder / "fd" / "5").symlink_to("/dev/nvidia0")


def run(proc: Path, environment: Mapping[str, str], *arguments: object, cwd: Path = ROOT) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the program that sees this folder as /proc."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(proc), *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, check=False, timeout=60,
        env={**environment, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
