"""Completion for bash, zsh and fish: scripts worked out from the command line as it is."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from oomdoctor import knowledge, options
from oomdoctor.fields import FIELDS

SHELLS = ("bash", "zsh", "fish")
_FILES = ("FILE", "DIR", "CARD", "DATA", "script")  # a value whose name has one of these is a path


class Option(NamedTuple):
    """name: with its dashes. values: the words it takes; files: it takes a path; takes: it takes a value at all."""

    name: str
    about: str
    takes: bool
    files: bool
    values: tuple[str, ...]


class Command(NamedTuple):
    """name: empty for what may be said without a command. words: what may stand behind it; files: a path may."""

    name: str
    about: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    files: bool


def commands(lang: str) -> tuple[Command, ...]:
    """The command line without a command, then each command."""
    parser = options.whole_parser(lang)
    inner = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    about = {action.dest: action.help or "" for action in inner._choices_actions}
    return (
        _command("", "", parser),
        *(_command(name, about.get(name, ""), command) for name, command in inner.choices.items()),
    )


def _command(name: str, about: str, parser: argparse.ArgumentParser) -> Command:
    shown = [action for action in parser._actions if action.help is not argparse.SUPPRESS]
    own = [
        action for action in shown if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    return Command(
        name=name,
        about=about,
        options=tuple(_option(action) for action in shown if action.option_strings),
        words=tuple(str(word) for action in own for word in action.choices or ()),
        files=any(_is_path(action) for action in own),
    )


def _option(action: argparse.Action) -> Option:
    values = tuple(str(value) for value in action.choices or ())
    if action.dest.startswith("set"):
        values = tuple(f"{key}=" for key in FIELDS)
    if action.dest.startswith("without"):
        values = tuple(knowledge.load("fixes"))
    about = (action.help or "").replace("%%", "%")
    return Option(action.option_strings[-1], about, action.nargs != 0, _is_path(action), values)


def _is_path(action: argparse.Action) -> bool:
    return any(word in str(action.metavar or "") for word in _FILES)


def script(shell: str, lang: str) -> str:
    """The script that teaches a shell of SHELLS to complete `oomdoctor`."""
    found = commands(lang)
    if shell == "fish":
        return "\n".join(_fish(found)) + "\n"
    head = (
        "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    )
    return head + _bash(found)


def _bash(found: tuple[Command, ...]) -> str:
    every = {option.name: option for command in found for option in command.options}
    values = "\n".join(_bash_value(option) for option in every.values() if option.takes)
    cases = "\n".join(_bash_case(command) for command in found[1:])
    names = " ".join(command.name for command in found[1:])
    bare = " ".join(option.name for option in found[0].options)
    return f"""_oomdoctor() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" word command="" said="{bare}" files=""
  case "$prev" in
{values}
  esac
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {names} " in *" $word "*) command="$word"; break ;; esac
  done
  case "$command" in
    "") [[ "$cur" == -* ]] || said="{names}" ;;
{cases}
  esac
  COMPREPLY=($(compgen -W "$said" -- "$cur"))
  [[ -n "$files" && "$cur" != -* ]] && COMPREPLY+=($(compgen -f -- "$cur"))
}}
complete -o bashdefault -o default -F _oomdoctor oomdoctor
"""


def _bash_value(option: Option) -> str:
    if option.values:
        reply = f'COMPREPLY=($(compgen -W "{" ".join(option.values)}" -- "$cur"))'
    else:
        reply = 'COMPREPLY=($(compgen -f -- "$cur"))' if option.files else "COMPREPLY=()"
    return f"    {option.name}) {reply}; return ;;"


def _bash_case(command: Command) -> str:
    flags = " ".join(option.name for option in command.options)
    words = f'[[ "$cur" == -* ]] && said="{flags}" || said="{" ".join(command.words)}"'
    return f"    {command.name}) {words}{'; files=1' if command.files else ''} ;;"


def _fish(found: tuple[Command, ...]) -> Iterator[str]:
    yield "complete -c oomdoctor -f"
    for option in found[0].options:
        yield _fish_option(option, "__fish_use_subcommand")
    for command in found[1:]:
        there = f"__fish_seen_subcommand_from {command.name}"
        yield f"complete -c oomdoctor -n __fish_use_subcommand -a {command.name} -d {shlex.quote(command.about)}"
        for option in command.options:
            yield _fish_option(option, there)
        if command.words:
            yield f"complete -c oomdoctor -n {shlex.quote(there)} -a {shlex.quote(' '.join(command.words))}"
        if command.files:
            yield f"complete -c oomdoctor -n {shlex.quote(there)} -F"


def _fish_option(option: Option, when: str) -> str:
    parts = [
        "complete -c oomdoctor",
        "-n",
        shlex.quote(when),
        "-l",
        option.name.lstrip("-"),
        "-d",
        shlex.quote(option.about),
    ]
    if option.takes:
        parts.append("-r" if option.files else "-x")
    if option.values:
        parts += ["-a", shlex.quote(" ".join(option.values))]
    elif option.files:
        parts.append("-F")
    return " ".join(parts)
