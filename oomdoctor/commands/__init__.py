"""Each command: from its options to what is printed and the exit code. One file a command, with a function `run`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module

from oomdoctor import doctor, options, printing
from oomdoctor.case import Fact, Text, UserError
from oomdoctor.exits import DONE, INTERNAL, INTERRUPTED
from oomdoctor.fields import facts_of_settings
from oomdoctor.printing import complain, refuse
from oomdoctor.texts import render

_OWN_RULES = "oomdoctor-rules"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code: one sentence for bad input, never a traceback."""
    lang = options.language(arguments)
    printing.prepare_output()
    try:
        code = _answered(arguments, lang)
        printing.finish_output()
        return code
    except BrokenPipeError:  # whoever read us has gone; nothing is left to say
        printing.abandon_output()
        return DONE
    except KeyboardInterrupt:
        complain(render(Text("texts/cli.interrupted"), lang))
        return INTERRUPTED
    except Exception as error:
        if printing.is_of_output(error):
            return printing.refuse_to_print(error, lang)
        return _internal(lang, "--json" in arguments, error)


def _answered(arguments: Sequence[str], lang: str) -> int:
    try:
        chosen = options.parse(arguments, lang)
        chosen.stated = _stated(chosen)
        _take_up_own_rules(chosen, lang)
        chosen.without = _ruled_out(chosen.without)
        _say_unused(chosen, lang)
        return _command(chosen.command)(chosen, lang)
    except UserError as error:
        return refuse(error, lang, "--json" in arguments)
    except SystemExit as end:  # argparse has printed its help
        return int(end.code or DONE)


def _command(name: str | None) -> Callable[[Namespace, str], int]:
    """What runs a command, from the file that is named after it; without a command it is `consult`."""
    found: Callable[[Namespace, str], int] = import_module(
        f"oomdoctor.commands.{(name or 'consult').replace('-', '_')}"
    ).run
    return found


def _stated(chosen: Namespace) -> list[Fact]:
    """What `--run` and `--set` say, in this order. Raises UserError, in a command that has no use for it as well."""
    card = doctor.read_card(chosen.run).facts.won.values() if chosen.run is not None else ()
    facts = facts_of_settings(chosen.set, card)
    if chosen.gpus is None:
        if chosen.nodes is not None:
            raise UserError(f"--nodes {chosen.nodes}", Text("texts/cli.nodes_of_what"))
        return facts
    from oomdoctor.sources.config.gpus import facts_of_option

    return [*facts_of_option(chosen.gpus, chosen.nodes), *facts]


def _take_up_own_rules(chosen: Namespace, lang: str) -> None:
    """The team's own remedies: of `--rules`, else of a folder in the current directory, where they change something."""
    changes_something = "rules" not in options.WITHOUT_EFFECT.get(chosen.command, ())
    if vars(chosen).get("action") == "lint":  # whatever is broken there is to be seen
        return
    folder = chosen.rules or (_OWN_RULES if changes_something and os.path.isdir(_OWN_RULES) else None)
    if folder is None:
        return
    from oomdoctor.remedies.own import take_up

    names = take_up(folder)
    if not chosen.json:  # there each rule says where it comes from
        complain(render(Text("texts/cli.own_rules", {"count": len(names), "folder": folder}), lang))


def _ruled_out(said: Sequence[str]) -> list[str]:
    """The ids of rules that `--without` names, each by itself or several with commas. Raises UserError."""
    names = [name.strip() for part in said for name in part.split(",") if name.strip()]
    if names:
        from oomdoctor.remedies.rules import known_rule

        for name in names:
            known_rule(name, f"--without {name}")
    return names


def _say_unused(chosen: Namespace, lang: str) -> None:
    names = options.unused(chosen)
    if names:
        said = render(Text("texts/cli.without_effect", {"command": chosen.command, "options": names}), lang)
        complain(said)


def _internal(lang: str, as_json: bool, error: Exception) -> int:
    import traceback

    if os.environ.get("OOMDOCTOR_DEBUG"):
        traceback.print_exception(error)
    trouble = UserError("oomdoctor", Text("texts/cli.internal", {"error": type(error).__name__}), exit_code=INTERNAL)
    try:
        return refuse(trouble, lang, as_json)
    except Exception:  # even the words cannot be read
        complain(f"its own rules cannot be read: {error}")
        return INTERNAL
