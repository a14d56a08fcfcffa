"""Damaged logs and odd run cards, thrown at the program in one process: nothing may break, and no sum may be wrong.

    python benchmarks/fuzz/fuzz.py [--seed 1] [--runs 3000] [--keep DIR]

Half of the runs are logs of tests/corpus with parts cut, doubled, swapped and numbers replaced; half are run cards made
of values that each key takes and of some that none does. Prints each kind of trouble with the first input that shows
it, kept in DIR. Ends with 1 if there was any.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from glob import glob
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, ROOT)

from oomdoctor import cli, knowledge  # noqa: E402
from oomdoctor.fields import FIELDS  # noqa: E402
from oomdoctor.report.document import schema  # noqa: E402

LARGEST_LOG = 200_000  # bytes of a log that is damaged; more only takes time
NUMBER = re.compile(rb"\d[\d.,]*")
NUMBERS = [
    "0", "-1", "1", "7", "3.5", "0.00", "1024", "1,000,000", "99999999999999999999", "17179869184.00", "1e999", "nan",
    "²", "٣", "1_000", ".", "1..2", "9" * 400, "1" * 5000,
]  # fmt: skip
PIECES = [
    "\x1b[31m", "\0", "\r", "[/bold]", "[link=http://x]", "\u202e", "①", "99999999999999999999 GiB", "NaN GiB",
    "-5.00 GiB", "0 bytes", '"hidden_size": 0,', '"vocab_size": 1e999,', '"num_attention_heads": 7,',
    "--per_device_train_batch_size 0 ", "--max_length -1 ", "--source_max_len 1e999 ", "--lora_r 99999999 ",
    "--model_name_or_path some/model-0b ", "--optim lomo ", "world_size=99999999999 ", "world_size=0 ", "zero3",
    "Process 1,000,000 has 5.00 GiB memory in use. ", "[rank99999999999999999999]: ", "24564MiB", "0MiB / 0MiB",
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 0 bytes of which 0 bytes is free.\n",
    '{"log": "CUDA out of memory. Tried to allocate 2.00 GiB"}\n', "Traceback (most recent call last):\n",
    '  File "x.py", line 99999999999999999999, in f\n', "trainable params: 0 || all params: 0 || trainable%: nan\n",
    "trainable params: 99999999999999 || all params: 1\n", "  0%|  | 1488/99999999999 [", "Num examples = 1e999\n",
    "  Total train batch size (w. parallel, distributed & accumulation) = 0\n", "  Gradient Accumulation steps = 0\n",
]  # fmt: skip
ODD = [
    "0", "-1", "1e999", "nan", ".inf", "99999999999999999999", "1.5", "[]", "[a, b]", "{}", "{a: b}", "~", '""', "yes",
    "no", '"\\0"', "²", "١٢", "显存", "[[1]]", "!!int 3", "'1'", "0x10", "1_000", '"\\e[31m"', '"\\u202e"', "a" * 1200,
    "1e-5", "+3", "|", "1e12",
]  # fmt: skip
VALUES = {
    "optim": ["adamw_torch", "adamw_8bit", "paged_adamw_32bit", "adafactor", "sgd", "lion_8bit", "galore_adamw", "x"],
    "framework": ["transformers", "trl", "deepspeed", "axolotl", "llamafactory", "unsloth", "lightning", "pytorch"],
    "gpus.count": ["1", "2", "3", "8", "1024"],
    "gpus.memory_mib": ["1", "100", "8192", "24135", "81920", "1000000", "1000000000000"],
    "gpus.compute_capability": ["3.5", "7.5", "8.0", "9.0", "12.0", "0", "99"],
    "max_length": ["1", "2", "127", "512", "2048", "8192", "131072", "10000000"],
    "lora.r": ["1", "8", "64", "4096", "1000000"],
    "lora.target_modules": ["all-linear", "[q, v]", "[q_proj]", "[c_attn]", "[nonsense]", "[]", "[lm_head]"],
    "lora.modules_to_save": ["[embed_tokens, lm_head]", "[x]", "[]"],
    "measured.phase": ["backward", "forward", "xyz", "eval"],
}
SHAPE = {
    "model_type": ["llama", "gpt2", "mixtral", "t5", "nonsense", "deepseek_v2"],
    "hidden_size": ["4096", "64", "100", "0", "10000000000"],
    "num_hidden_layers": ["32", "1", "0", "10000000000"],
    "num_attention_heads": ["32", "7", "1", "0"],
    "num_key_value_heads": ["8", "1", "33", "0"],
    "vocab_size": ["32000", "1", "10000000000"],
    "intermediate_size": ["11008", "1", "10000000000"],
    "tie_word_embeddings": ["true", "false", "x"],
    "rope_theta": ["1e6", "1e999", "null"],
    "num_local_experts": ["8", "0", "x"],
}
COLOURS = re.compile(r"\x1b\[(?:0|[1-7]|[39][0-7]|;)*m")
Pick = random.Random


def logs() -> list[bytes]:
    """The logs that are damaged."""
    paths = glob(os.path.join(ROOT, "tests", "corpus", "**", "*.log"), recursive=True)
    paths += glob(os.path.join(ROOT, "examples", "*.log"))
    return [_content(path) for path in sorted(paths) if os.path.getsize(path) < LARGEST_LOG]


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def damaged(log: bytes, others: list[bytes], pick: Pick) -> bytes:
    """A log with one to thirty things done to it."""
    text = bytearray(log)
    for _ in range(pick.choice([1, 1, 2, 3, 5, 10, 30])):
        at = pick.randrange(len(text) + 1)
        what = pick.randrange(8)
        if what == 0:
            del text[at : at + pick.randrange(200)]
        elif what == 1:
            text[at:at] = pick.choice(PIECES).encode()
        elif what == 2:
            text[at : at + 1] = bytes([pick.randrange(256)])
        elif what == 3:
            start = pick.randrange(len(text) + 1)
            text[at:at] = text[start : start + pick.randrange(2000)]
        elif what == 4:
            other = pick.choice(others)
            start = pick.randrange(len(other) + 1)
            text[at:at] = other[start : start + pick.randrange(6000)]
        else:
            _change_a_number(text, pick)
    return bytes(text)


def _change_a_number(text: bytearray, pick: Pick) -> None:
    """Half of the time one of the message about memory."""
    place = text.rfind(b"ut of memory") if pick.random() < 0.5 else -1
    found = [*NUMBER.finditer(text, place, place + 600)] if place >= 0 else [*NUMBER.finditer(text)]
    if found:
        start, end = pick.choice(found).span()
        text[start:end] = pick.choice(NUMBERS).encode()


def card(pick: Pick) -> str:
    """A run card: mostly sensible values, some that no key takes."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    must = ("model", "method", "per_device_train_batch_size", "max_length", "gpus.count", "gpus.name")
    keys = dict.fromkeys([key for key in must if pick.random() < 0.9] + pick.sample(list(FIELDS), pick.randrange(22)))
    if "gpus.name" in keys and pick.random() < 0.8:
        keys.pop("gpus.memory_mib", None)
    for key in keys:
        section, dot, name = key.partition(".")
        value = _value(key, pick)
        if dot:
            sections.setdefault(section, []).append(f"{name}: {value}")
        else:
            lines.append(f"{key}: {value}")
    if pick.random() < 0.25:
        shape = {key: pick.choice(values) for key, values in SHAPE.items() if pick.random() < 0.9}
        sections["architecture"] = [f"{key}: {value}" for key, value in shape.items()]
    for section, inner in sections.items():
        lines += [f"{section}:", *(f"  {line}" for line in inner)]
    return "\n".join(lines) + "\n"


def _value(key: str, pick: Pick) -> str:
    field = FIELDS[key]
    if pick.random() < 0.03:
        return pick.choice(ODD)
    if key in ("model", "gpus.name"):
        return pick.choice(list(knowledge.load("models" if key == "model" else "gpus")))
    if key in VALUES:
        return pick.choice(VALUES[key])
    kinds = {
        "choice": [*field.choices, *(alias for alias, _ in field.aliases)],
        "flag": ["true", "false"],
        "count": ["1", "2", "3", "4", "8", "17", "64", "1000", "1000000"],
        "number": ["0", "0.1", "1", "17.4", "64", "1e9"],
    }
    return pick.choice(kinds.get(field.kind, ODD))


def troubles(arguments: list[str], codes: set[int]) -> list[str]:
    """What is wrong with what the program does with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(arguments)
    said = out.getvalue()
    if code not in codes:
        return [f"exit code {code}: {err.getvalue().strip()[-300:]}"]
    if "--json" not in arguments:
        return [f"prints U+{ord(char):04X}" for char in unsafe(said)]
    document = json.loads(said)
    if ("error" in document) != (code in (2, 4)):
        return [f"exit code {code} and an error document do not go together"]
    if code == 2 and "--from-log" in arguments and not re.search("binary|二进制", document["error"]["message"]):
        return [f"a log is refused: {document['error']['message']}"]
    return list(dict.fromkeys(wrong(document)))


def unsafe(said: str) -> list[str]:
    """The characters on the screen that only a log can have brought there: all but text, line feeds and the program's
    own colours (SGR, of the sixteen that it uses, and no links)."""
    text = COLOURS.sub("", said)
    return sorted({char for char in text if not char.isprintable() and char != "\n"})


def wrong(document: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a document: its form, its signs, its sums."""
    for error in _validator().iter_errors(document):
        yield f"schema: {'/'.join(map(str, error.path))}: {error.message[:100]}"
    if "error" not in document:
        yield from _signs(document, "")
        yield from _sums(document)
        yield from _steps(document)


def _validator() -> Any:
    import jsonschema

    if not hasattr(_validator, "made"):
        _validator.made = jsonschema.Draft202012Validator(schema())  # type: ignore[attr-defined]
    return _validator.made  # type: ignore[attr-defined]


def _signs(value: Any, path: str) -> Iterator[str]:
    """No size is negative but what a step may cost, and ranges are in order."""
    if isinstance(value, list):
        for part in value:
            yield from _signs(part, path)
    if isinstance(value, dict):
        if {"low", "likely", "high"} <= value.keys() and not 0 <= value["low"] <= value["likely"] <= value["high"]:
            yield f"order of {path} {value.get('key', '')}"
        for key, part in value.items():
            is_size = key.endswith("bytes") and key != "saves_bytes" and isinstance(part, int)
            if is_size and part < 0:
                yield f"negative {path}/{key}"
            yield from _signs(part, f"{path}/{key}")


def _sums(document: dict[str, Any]) -> Iterator[str]:
    bill = document["bill"]
    if bill and sum(line["likely"] for line in bill["lines"]) != bill["peak"]["device"]["likely"]:
        yield "the lines of the bill do not sum to the peak"


def _steps(document: dict[str, Any]) -> Iterator[str]:
    crash, plan, bill = document["crash"], document["plan"], document["bill"]
    if plan is None:
        return
    if crash and crash["kind"] != "not_oom" and not plan["steps"] and not plan["fits"]:
        yield f"no advice for {crash['kind']}"
    needed, usable, fits = (bill or {}).get("needed_bytes"), document["machine"]["usable_bytes"], None
    for step in plan["steps"]:
        after = step["bill_after"] and step["bill_after"]["needed_bytes"]
        fits = step["fits"]
        if None not in (after, step["usable_bytes"]) and fits is not (after <= step["usable_bytes"]):
            yield f"{step['rule']} fits: {fits}, which its figures do not say"
        if step["saves_bytes"] is not None:
            freed = 0 if None in (usable, step["usable_bytes"]) else step["usable_bytes"] - usable
            if None in (needed, after) or step["saves_bytes"] != needed - after + freed:
                yield f"{step['rule']} saves what the bills do not say"
        needed, usable = after, step["usable_bytes"]
    if plan["fits"] and (fits is False or (None not in (needed, usable) and needed > usable)):
        yield "the plan fits, its last step does not"
    if any(low > high for low, high in (each["time_factor"] for each in (plan, *document["alternatives"]))):
        yield "order of time_factor"


def fuzz(seed: int, runs: int, keep: str) -> dict[str, str]:
    """Each kind of trouble that so many inputs show, and the first input that does, kept in a folder."""
    pick, all_logs = random.Random(seed), logs()
    found: dict[str, str] = {}
    for run in range(runs):
        is_log = run % 2 == 0
        content = damaged(pick.choice(all_logs), all_logs, pick) if is_log else card(pick).encode()
        path = os.path.join(keep, f"{seed}-{run}.{'log' if is_log else 'yaml'}")
        with open(path, "wb") as file:
            file.write(content)
        form = ["--json"] if pick.random() < 0.85 else ["--full", "--plain"]
        order = ["--prefer", pick.choice(["ladder", "lossless", "fastest"]), "--lang", pick.choice(["en", "zh"])]
        command = ["--from-log", path] if is_log else pick.choice([["plan", path], ["--run", path]])
        arguments = [*command, *form, *order, "--no-input", "--no-gpu"]
        new = [trouble for trouble in _tried(arguments, is_log) if kind_of(trouble) not in map(kind_of, found)]
        found.update({trouble: " ".join(arguments) for trouble in new})
        if not new:
            os.remove(path)
    return found


def _tried(arguments: list[str], is_log: bool) -> list[str]:
    try:
        return troubles(arguments, {0, 2, 3, 10} if is_log else {0, 2, 4, 10})
    except Exception as error:
        return [f"{type(error).__name__}: {error}"[:300]]


def kind_of(trouble: str) -> str:
    """A trouble without its figures and paths."""
    return re.sub(r"\d+|/\S+", "#", trouble)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--keep", default=None)
    chosen = parser.parse_args()
    keep = chosen.keep or tempfile.mkdtemp(prefix="fuzz-")
    os.makedirs(keep, exist_ok=True)
    found = fuzz(chosen.seed, chosen.runs, keep)
    for trouble, arguments in found.items():
        print(f"{trouble}\n    oomdoctor {arguments}")
    print(f"{chosen.runs} runs, {len(found)} kinds of trouble")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
