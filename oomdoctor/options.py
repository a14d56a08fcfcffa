"""The command line: what may be said, in the person's language."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from oomdoctor import __version__
from oomdoctor.case import Text, UserError
from oomdoctor.plan import PREFERENCES
from oomdoctor.texts import LANGUAGES, render

COMMANDS = ("bill", "plan", "gpu", "resume", "schema", "rules")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(self.prog, Text("texts/cli.usage", {"message": message}), Text("texts/cli.see_help"))


def language(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """The language of `--lang`, else of the locale, else English. Looked at before anything is parsed."""
    for index, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name == "--lang":
            asked = value or "".join(arguments[index + 1 : index + 2])
            return asked if asked in LANGUAGES else "en"
    locale = next((environment[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environment.get(name)), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def parse(arguments: Sequence[str], lang: str) -> argparse.Namespace:
    """The options of a command line. Raises UserError; `--help` prints and ends the program."""
    asks_help = {"-h", "--help"} & set(arguments)
    named = [name for name in COMMANDS if asks_help or name in arguments]  # each one's options take time to set up
    return _parser(lang, named).parse_args(arguments)


def _parser(lang: str, named: Sequence[str]) -> _Parser:
    def words(name: str) -> str:
        return render(Text(f"texts/cli.{name}"), lang).replace("%", "%%")

    common = _common(words)
    parser = _Parser(prog="oomdoctor", description=words("about"), parents=[common], add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="help", help=words("help"))
    parser.add_argument("--version", action="version", version=f"oomdoctor {__version__}", help=words("version"))
    parser.add_argument("--from-log", metavar="FILE|DIR|-", help=words("from_log"))
    if not named:
        parser.set_defaults(command=None)
        return parser
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title=words("commands"), parser_class=_Parser)

    def add(name: str) -> Any:
        quiet = _common(words, quiet=True)  # a default here would hide what stood before the command
        return commands.add_parser(
            name,
            parents=[quiet],
            help=words(f"command_{name}"),
            description=words(f"command_{name}"),
            allow_abbrev=False,
        )

    for name in named:
        command = add(name)
        if name in ("bill", "plan"):
            command.add_argument("cards", nargs="+" if name == "bill" else 1, metavar="CARD.yaml", help=words("card"))
        if name == "rules":
            command.add_argument("action", choices=("list", "show", "lint"), help=words("rules_action"))
            command.add_argument("target", nargs="?", metavar="ID|DIR", help=words("rules_target"))
    return parser


def _common(words: Any, quiet: bool = False) -> _Parser:
    default: Any = {"default": argparse.SUPPRESS} if quiet else {}
    parser = _Parser(add_help=False)
    parser.add_argument("--json", action="store_true", help=words("json"), **default)
    parser.add_argument("--no-input", action="store_true", help=words("no_input"), **default)
    parser.add_argument("--no-gpu", action="store_true", help=words("no_gpu"), **default)
    parser.add_argument("--plain", action="store_true", help=words("plain"), **default)
    parser.add_argument("--full", action="store_true", help=words("full"), **default)
    parser.add_argument("--lang", choices=LANGUAGES, help=words("lang"), **default)
    parser.add_argument("--prefer", choices=PREFERENCES, help=words("prefer"), **default)
    parser.add_argument("--run", metavar="CARD.yaml", help=words("run"), **default)
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", help=words("set"), **(default or {"default": []})
    )
    return parser
