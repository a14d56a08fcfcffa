"""The command line: what may be said, in the person's language."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NoReturn

from oomdoctor import __version__
from oomdoctor.case import Text, UserError
from oomdoctor.plan import PREFERENCES, SHARDED
from oomdoctor.texts import LANGUAGES, render

# Every command takes the common options. These change nothing in it, and it says so; what they say is checked anyway.
WITHOUT_EFFECT: Mapping[str, tuple[str, ...]] = {
    "bill": ("full", "prefer", "without", "rules"),
    "plan": (),
    "gpu": ("full", "prefer", "without", "rules", "run", "set", "config", "gpus", "nodes"),
    "snapshot": ("full", "prefer", "without", "rules", "run", "set", "config", "gpus", "nodes"),
    "lengths": ("full", "prefer", "without", "rules", "run", "set", "config", "gpus", "nodes"),
    "learn": ("full", "prefer", "without", "rules"),
    "dry-run": ("full", "prefer", "without", "rules"),
    "claims": ("full", "prefer", "without", "rules"),
    "cards": ("full", "gpus", "nodes"),
    "resume": (),
    "report": ("full",),
    "completion": ("full", "prefer", "without", "rules", "run", "set", "config", "gpus", "nodes"),
    "schema": ("full", "prefer", "without", "rules", "run", "set", "config", "gpus", "nodes"),
    "rules": ("full", "prefer", "without", "run", "set", "config", "gpus", "nodes"),
}
COMMANDS = tuple(WITHOUT_EFFECT)
_ONCE = ("--run", "--rules")
TAKES_LOG = ("claims", "report")  # the figures may be those of a log's run

Words = Callable[[str], str]


class _Formatter(argparse.HelpFormatter):
    """argparse makes one for each option that is added, and asks shutil for the width: with its archives the slowest of
    all modules here."""

    def __init__(self, prog: str, head: str = "") -> None:
        """head: what stands before the usage, empty for argparse's own word."""
        super().__init__(prog, width=_width() - 2)
        self._head = head

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, (self._head or None) if prefix is None else prefix)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """argparse takes a Chinese character for one column."""
        from oomdoctor.report.wrap import wrap

        return wrap(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(indent + line for line in self._split_lines(text, width - len(indent)))


def _width() -> int:
    """Columns of the screen: the variable's, else the terminal's, else 80."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


class _Parser(argparse.ArgumentParser):
    """words: for the heads of the help; argparse has its own in English only."""

    def __init__(self, words: Words = lambda name: "", **how: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **how})
        self._head = words("head_usage")
        self._positionals.title, self._optionals.title = words("head_arguments"), words("head_options")

    def _get_formatter(self) -> _Formatter:
        return _Formatter(self.prog, self._head)

    def error(self, message: str) -> NoReturn:
        command = self.prog.partition(" ")[2]
        raise UserError(command or self.prog, Text("texts/cli.usage", {"message": message}), Text("texts/cli.see_help"))


def language(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """The language of `--lang`, else of the locale, else English. Looked at before anything is parsed.

    A Chinese locale on an output that has no Chinese letters gets English, which it can show.
    """
    for index, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--lang":
            asked = value or "".join(arguments[index + 1 : index + 2])
            return asked if asked in LANGUAGES else "en"
    locale = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    return "zh" if locale.lower().startswith("zh") and _has_chinese(sys.stdout) else "en"


def _has_chinese(output: IO[str] | None) -> bool:
    try:
        "中文".encode(getattr(output, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def parse(arguments: Sequence[str], lang: str) -> argparse.Namespace:
    """The options of a command line. Raises UserError; `--help` prints and ends the program."""
    asks_help = bool({"-h", "--help"} & set(arguments))
    named = [name for name in COMMANDS if asks_help or name in arguments]  # each one's options take time to set up
    parser = _parser(lang, named, asks_help)
    chosen, left = _parsed(parser, arguments, lang)
    if left:
        raise _unknown(left[0], chosen.command)
    for name in ("set", "config", "without"):
        setattr(chosen, name, [*getattr(chosen, name), *vars(chosen).pop(f"{name}_after", [])])
    if "cards" in chosen and not isinstance(chosen.cards, list):  # `plan` takes one
        chosen.cards = [chosen.cards] if chosen.cards is not None else []
    _check(chosen, arguments)
    return chosen


def _parsed(parser: _Parser, arguments: Sequence[str], lang: str) -> tuple[argparse.Namespace, list[str]]:
    """What was said, and the words that mean nothing. Raises UserError, in words of the person's language."""
    try:
        return parser.parse_known_args(arguments)
    except UserError:
        from oomdoctor.usage import spoken_in  # most command lines have no need of it

        with spoken_in(lang):
            return parser.parse_known_args(arguments)


def _unknown(word: str, command: str | None) -> UserError:
    """What to say of a word that means nothing where it stands, with what looks like it."""
    if word.startswith("-"):
        name = word.partition("=")[0]
        return UserError(name, Text("texts/cli.unknown_option"), _closest(name, _option_names(command)))
    if command is not None:
        return UserError(word, Text("texts/cli.takes_no_word", {"command": command}), Text("texts/cli.see_help"))
    if os.path.exists(word):
        return UserError(word, Text("texts/cli.unknown_command"), Text("texts/cli.is_a_log", {"path": word}))
    return UserError(word, Text("texts/cli.unknown_command"), _closest(word, list(COMMANDS)))


def _closest(word: str, names: list[str]) -> Text:
    from oomdoctor.fields import nearest

    near = nearest(word, names)
    return Text("texts/cli.closest", {"near": near[0]}) if near else Text("texts/cli.see_help")


def _option_names(command: str | None) -> list[str]:
    parser = _parser("en", [command] if command else [], False)
    parsers = [parser]
    if command is not None:
        inner = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
        parsers.append(inner.choices[command])
    return [name for each in parsers for action in each._actions for name in action.option_strings]


def unused(chosen: argparse.Namespace) -> list[str]:
    """The options that were given and change nothing in this command, such as `--set` of `gpu`."""
    names = WITHOUT_EFFECT.get(chosen.command, ())
    return [f"--{name}" for name in names if getattr(chosen, name)]


def _check(chosen: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Raises UserError for options that are each right, but not together."""
    for option in _ONCE:
        if sum(argument == option or argument.startswith(f"{option}=") for argument in arguments) > 1:
            raise UserError(option, Text("texts/cli.twice"), Text("texts/cli.see_help"))
    _check_logs(chosen)
    if chosen.command == "rules":
        if chosen.action in ("list", "docs") and chosen.target is not None:
            raise UserError(f"rules {chosen.action} {chosen.target}", Text("texts/cli.list_takes_nothing"))
        if chosen.out is not None and chosen.action != "docs":
            raise UserError("--out", Text("texts/cli.out_of_docs"))
        if chosen.action == "show" and not chosen.target:
            raise UserError("rules show", Text("texts/cli.show_which"), Text("texts/cli.show_which_hint"))


def _check_logs(chosen: argparse.Namespace) -> None:
    """Raises UserError for a log beside a command, and for standard input that would have to be read twice.

    A command right after a log reads like a second log; a log of such a name is written as `./plan`.
    """
    misplaced = next((name for name in chosen.config if name in COMMANDS), None)
    if misplaced is not None and chosen.command is None:
        raise UserError("--config", Text("texts/cli.config_before_command", {"command": misplaced}))
    logs = chosen.from_log or []
    if chosen.command in TAKES_LOG:
        return
    command = chosen.command or next((name for name in logs[1:] if name in COMMANDS), None)
    if logs and command is not None:
        raise UserError("--from-log", Text("texts/cli.log_beside_command", {"command": command}))
    if logs.count("-") > 1:
        raise UserError("--from-log -", Text("texts/cli.twice"), Text("texts/cli.see_help"))


def whole_parser(lang: str) -> argparse.ArgumentParser:
    """The parser with all its commands, for who wants to know what may be said."""
    return _parser(lang, COMMANDS, True)


def _parser(lang: str, named: Sequence[str], helps: bool) -> _Parser:
    """helps: with the words of `--help`, which cost time."""

    def words(name: str) -> str:
        if not helps:
            return ""
        return render(Text(f"texts/cli.{name}"), lang).replace("%", "%%")

    usual: dict[str, Any] = {"words": words, "add_help": False, "allow_abbrev": False}
    parser = _Parser(prog="oomdoctor", description=words("about"), parents=[_common(words)], **usual)
    parser.add_argument("-h", "--help", action="help", help=words("help"))
    parser.add_argument("--version", action="version", version=f"oomdoctor {__version__}", help=words("version"))
    parser.add_argument("--from-log", nargs="+", action="extend", metavar="FILE|DIR|-", help=words("from_log"))
    if not named:
        parser.set_defaults(command=None)
        return parser
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title=words("commands"), parser_class=_Parser)
    for name in named:
        about = words(f"command_{name.replace('-', '_')}")
        parents = [_common(words, name)]
        command = commands.add_parser(name, parents=parents, help=about, description=about, **usual)
        command.add_argument("-h", "--help", action="help", help=words("help"))
        _arguments(command, name, words)
    return parser


def _arguments(command: argparse.ArgumentParser, name: str, words: Words) -> None:
    """What a command takes beside the common options."""
    if name in TAKES_LOG:
        logs = 1 if name == "claims" else "+"
        command.add_argument("--from-log", nargs=logs, default=None, metavar="FILE|DIR|-", help=words("log_of_run"))
    else:  # refused, in plain words
        command.add_argument("--from-log", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    if name == "claims":
        command.add_argument("words", nargs="*", metavar="WORDS|ID", help=words("claims_words"))
    if name == "report":
        kind = command.add_mutually_exclusive_group()
        kind.add_argument("--md", action="store_true", help=words("md"))
        kind.add_argument("--html", action="store_true", help=words("html"))
        command.add_argument("--keep-private", action="store_true", help=words("keep_private"))
    if name in ("bill", "plan", "cards"):
        command.add_argument("cards", nargs="*" if name == "bill" else "?", metavar="CARD.yaml", help=words("card"))
        _to_apply(command, name, words)
    if name == "dry-run":
        command.add_argument("target", metavar="CARD.yaml|script.py:step", help=words("dry_run_target"))
    _to_wait(command, name, words)
    if name == "snapshot":
        command.add_argument("file", metavar="FILE", help=words("snapshot"))
    if name == "lengths":
        command.add_argument("data", metavar="DATA", help=words("lengths"))
        command.add_argument("--tokenizer", metavar="FILE", help=words("tokenizer"))
    if name == "resume":
        command.add_argument("case", nargs="?", metavar="list|ID", help=words("resume"))
    if name == "completion":
        command.add_argument("shell", choices=("bash", "zsh", "fish"), help=words("shell"))
    if name == "learn":
        command.add_argument("topic", nargs="*", metavar="LESSON|WORD", help=words("learn"))
    if name == "rules":
        command.add_argument("action", choices=("list", "show", "lint", "docs"), help=words("rules_action"))
        command.add_argument("target", nargs="?", metavar="ID|DIR", help=words("rules_target"))
        command.add_argument("--out", metavar="DIR", help=words("rules_out"))


def _to_wait(command: argparse.ArgumentParser, name: str, words: Words) -> None:
    if name == "gpu":
        command.add_argument("--wait", metavar="SIZE", help=words("wait"))
        command.add_argument("--timeout", metavar="SECONDS", help=words("timeout"))
        command.add_argument("--any", action="store_true", help=words("any"))


def _to_apply(command: argparse.ArgumentParser, name: str, words: Words) -> None:
    if name == "plan":
        command.add_argument("--apply", nargs="*", metavar="FILE", help=words("apply"))
        command.add_argument("--yes", action="store_true", help=words("yes"))


def _common(words: Words, command: str | None = None) -> _Parser:
    """The options that all take. A default in a command's own parser would hide what stood before the command."""
    quiet: dict[str, Any] = {} if command is None else {"default": argparse.SUPPRESS}
    parser = _Parser(words, add_help=False)

    def add(name: str, **how: Any) -> None:
        shown = name not in WITHOUT_EFFECT.get(command or "", ())
        text = words(name.replace("-", "_")) if shown else argparse.SUPPRESS
        parser.add_argument(f"--{name}", help=text, **{**how, **quiet})

    for flag in ("json", "no-input", "no-gpu", "plain", "full", "hub"):
        add(flag, action="store_true")
    add("lang", choices=LANGUAGES)
    add("prefer", choices=(*PREFERENCES, SHARDED))
    add("run", metavar="CARD.yaml")
    add("rules", metavar="DIR")
    add("gpus", metavar="2x RTX 3090")
    add("nodes", metavar="N")
    after = "" if command is None else "_after"  # what stands before the command counts too
    add("config", metavar="FILE", action="extend", nargs="+", default=[], dest=f"config{after}")
    add("without", metavar="RULE", action="append", default=[], dest=f"without{after}")
    add("set", metavar="KEY=VALUE", action="append", default=[], dest=f"set{after}")
    return parser
