"""The child process: reads what to run on standard input, runs it on the meta device, writes messages on the old
standard output. What the libraries or a person's code print goes to standard error."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import IO, Any

from oomdoctor.exits import INTERRUPTED

# Packages that transformers and PEFT look for, and that would only take time to import, or insist on a GPU.
LEFT_OUT = (
    "apex", "auto_gptq", "awq", "bitsandbytes", "datasets", "deepspeed", "flash_attn", "gptqmodel", "kernels",
    "liger_kernel", "mlflow", "optimum", "pandas", "sklearn", "tensorboard", "tensorflow", "torchao", "trl", "wandb",
    "xformers",
)  # fmt: skip


def main() -> None:
    """Run the order on standard input. The exit code is 0 once a message has said what came of it."""
    messages = _own_channel()
    warnings.simplefilter("ignore")

    def say(**message: object) -> None:
        print(json.dumps(message), file=messages, flush=True)

    try:
        order = sys.stdin.read()
        say(progress="imports")
        found = _script(order, say) if sys.argv[1] == "script" else _card(order, say)
        say(found=found)
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)
    except Exception as error:
        _say_why(error, say)


def _own_channel() -> IO[str]:
    """Standard output for messages alone: what others print goes to standard error from now on."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return channel


def _say_why(error: Exception, say: Callable[..., None]) -> None:
    if os.environ.get("OOMDOCTOR_DEBUG"):
        import traceback

        traceback.print_exc()
    reason, values = getattr(error, "reason", "failed"), getattr(error, "values", None)
    if values is None:
        values = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    say(refused=reason, values=dict(values))


def _card(text: str, say: Callable[..., None]) -> str:
    """A run card's step, simulated, as JSON."""
    from oomdoctor.trace.spec import from_json

    spec = from_json(text)
    leave_out()
    if spec.quantized:
        from oomdoctor.trace import quantized

        quantized.install()
    from oomdoctor.trace.result import to_json
    from oomdoctor.trace.whole import Simulator

    return to_json(Simulator().simulate(spec, lambda what: say(progress=what)))


def _script(text: str, say: Callable[..., None]) -> str:
    """A person's own function, simulated, as JSON."""
    from oomdoctor.trace import script

    order: Mapping[str, Any] = json.loads(text)
    return script.simulate(order["path"], order["function"], order["capability"], lambda what: say(progress=what))


def leave_out(names: tuple[str, ...] = LEFT_OUT) -> None:
    """Nobody finds these packages in this process, installed or not."""
    modules: dict[str, ModuleType | None] = sys.modules  # type: ignore[assignment]
    for name in names:
        modules[name] = None


if __name__ == "__main__":
    main()
