"""Runs the script of a patient on its card. What it prints goes where this process's output goes."""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import transformers
from transformers import TrainerCallback

from benchmarks.clinic import kernels, loops, material, scripts
from benchmarks.clinic.card import Memory
from benchmarks.clinic.cuda_ways import as_on_cuda, ways_of
from benchmarks.clinic.patient import Patient
from benchmarks.clinic.storages import Storages, moves_seen
from benchmarks.clinic.thinning import Course, course_of

_SCRIPTS: Mapping[str, Callable[[Any], None]] = {
    "trainer": scripts.train_with_trainer,
    "sft": scripts.train_with_sft,
    "dpo": scripts.train_with_dpo,
    "loop": loops.train_with_loop,
}
_OF_THE_CARD = ("attention", "autocast", "blank", "card", "cuda_ways", "kernels", "storages")
_OWN_FILES = tuple(os.path.join(os.path.dirname(__file__), f"{name}.py") for name in _OF_THE_CARD)
_ON_THE_WAY = ("torch/_compile.py", "torch/_dynamo/eval_frame.py", "torch/_ops.py")  # from an operator to the mode
_NOT_OF_A_CARD = (
    "Warning only once for all operators",
    ".*'pin_memory' argument is set as true but no accelerator is found",
    ".*os.fork\\(\\) was called",
    "Paged optimizers are not supported on CPU",
)


class Script(NamedTuple):
    """What a script finds when it begins."""

    auto: Any
    path: str
    output: str
    places: Mapping[str, Mapping[str, Any]]
    samples: list[dict[str, Any]]
    eval_samples: list[dict[str, Any]]
    faults: frozenset[str]
    task: str
    steps: int
    accumulation: int
    callbacks: list[Any]
    device: str = "cpu"


class End(NamedTuple):
    """How a run ended. error: the last line of an error that is not the card's."""

    ended: str
    peak_bytes: int
    error: str = ""


def run(patient: Patient, capped: bool, shelf: str, output: str, computes: bool = True) -> End:
    """The run of a patient. shelf: of checkpoints; output: a folder of its own. computes: with all its arithmetic."""
    torch.set_num_threads(1)
    path = material.checkpoint(patient, shelf)
    begin_log(patient.says)
    script = script_of(patient, path, output)
    memory = Memory(patient.card, capped)
    with counted(patient, memory, computes):
        error = attempt(patient.script, script)
    return End(ending(error), memory.peak, last_line(error))


@contextmanager
def counted(patient: Patient, memory: Memory, computes: bool = True) -> Iterator[None]:
    """What a script does inside takes the memory of a card that is counted, in CUDA's ways."""
    capability = patient.card.capability
    with as_on_cuda(capability):
        arrived = _loads_onto_the_card(patient)
        storages = Storages(memory, ways_of(capability, computes), arrived, computes)
        kernels.stand_in(storages)
        gc.collect()
        with storages, moves_seen(storages):
            yield


def attempt(name: str, script: Script) -> Exception | None:
    """Run a script to its end, or to the error whose traceback it shows."""
    try:
        _SCRIPTS[name](script)
    except Exception as raised:
        _show(raised)
        return raised
    return None


def ending(error: Exception | None) -> str:
    """An outcome's `ended`."""
    if error is None:
        return "ran"
    return "out_of_memory" if isinstance(error, torch.OutOfMemoryError) else "failed"


def last_line(error: Exception | None) -> str:
    """Of an error that is not the card's."""
    if ending(error) != "failed":
        return ""
    return traceback.format_exception_only(error)[-1].strip()


def begin_log(says: str) -> None:
    for message in _NOT_OF_A_CARD:
        warnings.filterwarnings("ignore", message)
    transformers.set_seed(42)
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", datefmt="%m/%d/%Y %H:%M:%S")
    logging.getLogger("train").setLevel(logging.ERROR if says == "little" else logging.INFO)
    if says == "all":
        transformers.utils.logging.set_verbosity_info()
        transformers.utils.logging.enable_explicit_format()
        print(f"torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}", file=sys.stderr)


def script_of(patient: Patient, path: str, output: str, device: str = "cpu") -> Script:
    words = int(patient.model["vocab_size"])
    course = course_of(patient)
    return Script(
        auto=material.auto_class(patient),
        path=path,
        output=output,
        places=_places(patient, device),
        samples=_samples(patient, course.lengths, words),
        eval_samples=_samples(patient, patient.data.eval_lengths, words),
        faults=patient.faults,
        task=patient.task,
        steps=course.steps,
        accumulation=course.accumulation,
        callbacks=[_Enough(course, bool(patient.data.eval_lengths), patient.says)],
        device=device,
    )


def _places(patient: Patient, device: str) -> dict[str, Mapping[str, Any]]:
    """As they stand; only the card is named as it is called here."""
    places = {name: dict(settings) for name, settings in patient.places.items()}
    if places.get("from_pretrained", {}).get("device_map") is not None:
        places["from_pretrained"]["device_map"] = {"": device}
    return dict(places)


def _loads_onto_the_card(patient: Patient) -> bool:
    loads = patient.places.get("from_pretrained", {}).get("device_map") is not None
    return loads or "BitsAndBytesConfig" in patient.places


def _samples(patient: Patient, lengths: tuple[int, ...], words: int) -> list[dict[str, Any]]:
    if patient.task == "dpo":
        return [_pair(length, words) for length in lengths]
    texts = material.texts(lengths, words)
    if patient.task == "classification":
        return [{"text": text, "label": number % 2} for number, text in enumerate(texts)]
    return [{"text": text} for text in texts]


def _pair(length: int, words: int) -> dict[str, str]:
    """A prompt of a quarter of the tokens and two answers of the rest."""
    prompt = length // 4
    question, chosen, rejected = material.texts((prompt, length - prompt, length - prompt), words)
    return {"prompt": question + " ", "chosen": chosen, "rejected": rejected}


class _Enough(TrainerCallback):  # type: ignore[misc]
    """Ends the training when its peak has been seen, and evaluates before where the script does so at all."""

    def __init__(self, course: Course, evaluates: bool, says: str) -> None:
        self._course, self._evaluates, self._says = course, evaluates, says

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        args.max_steps = self._course.steps
        if args.train_sampling_strategy == "random":
            args.train_sampling_strategy = "sequential"
        if self._says == "some":
            transformers.utils.logging.set_verbosity_info()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        args.gradient_accumulation_steps = self._course.accumulation

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = False
        if state.global_step >= self._course.steps:
            control.should_evaluate = self._evaluates and args.eval_strategy != "no"
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = control.should_evaluate = False


# The traceback ------------------------------------------------------------------------------------------------------


def _show(error: BaseException) -> None:
    """The traceback of the script: from its first line to the last of torch's Python."""
    sys.stdout.flush()
    shown = traceback.TracebackException(type(error), error, error.__traceback__)
    frames = [frame for frame in shown.stack if frame.filename != __file__]
    for place, frame in enumerate(frames):
        if frame.filename in _OWN_FILES and isinstance(error, torch.OutOfMemoryError):
            frames = frames[:place]
            break
    while isinstance(error, torch.OutOfMemoryError) and frames[-1].filename.endswith(_ON_THE_WAY):
        frames.pop()
    shown.stack = traceback.StackSummary.from_list(frames)
    print("".join(shown.format()), end="", file=sys.stderr, flush=True)
