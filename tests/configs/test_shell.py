"""Words of shell scripts, with their places, without running anything."""

import time

import pytest

from oomdoctor.configs.shell import commands


def _texts(script: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in commands(script)]


def test_a_command_over_several_lines_with_comments_quotes_and_redirections() -> None:
    script = """#!/bin/bash
# don't stop
torchrun --nproc_per_node 2 train.py \\
    --name 'it is "x"' --path "a b" \\
    --lr=1e-4 > out.log 2>&1 &
echo done
"""
    assert _texts(script) == [
        ["torchrun", "--nproc_per_node", "2", "train.py", "--name", 'it is "x"', "--path", "a b", "--lr=1e-4"],
        ["echo", "done"],
    ]


def test_each_word_knows_its_line_and_place() -> None:
    script = "A=1\npython x.py \\\n  --bs 'four'\n"
    word = next(iter(commands(script))).words[3]
    assert (word.line, script[word.start : word.end], word.text, word.quoted) == (3, "'four'", "four", True)


def test_variables_that_the_script_sets_are_filled_in_and_others_are_left_open() -> None:
    script = 'MODEL="org/m-7b"\nexport BS=${BS:-4}\npython t.py --model $MODEL --bs ${BS} --out $1/x --n $(nproc)\n'
    words = {word.text: word.known for command in commands(script) for word in command.words}
    assert words == {
        "python": True, "t.py": True, "--model": True, "org/m-7b": True, "--bs": True, "4": True, "--out": True,
        "$1/x": False, "--n": True, "$(nproc)": False,
    }  # fmt: skip


def test_what_stands_before_a_command_is_its_environment() -> None:
    (command,) = commands("CUDA_VISIBLE_DEVICES=0,1 FOO=1 python t.py")
    assert command.environment["CUDA_VISIBLE_DEVICES"].text == "0,1"
    assert [word.text for word in command.words] == ["python", "t.py"]


@pytest.mark.parametrize(
    "hostile",
    [
        "'" * 300_000,
        '"' * 299_999,
        "a " * 150_000,
        "$((" * 100_000,
        "\\" * 300_000,
        "x=$x$x\n" * 40_000,
        "${a" * 100_000,
    ],
)
def test_hostile_scripts_take_little_time(hostile: str) -> None:
    before = time.process_time()
    assert sum(1 for _ in commands(hostile)) < 100_000
    assert time.process_time() - before < 3
