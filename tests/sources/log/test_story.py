"""Which failure counts: the one that ended the run; what was survived, and whose memory the others hold."""

from __future__ import annotations

import pytest

from oomdoctor.case import Crash
from oomdoctor.sources.log.clean import clean_lines
from oomdoctor.sources.log.progress import step_of
from oomdoctor.sources.log.sheet import sheet_of
from oomdoctor.sources.log.sieve import Region
from oomdoctor.sources.log.story import tell

GIB = 1024**3
USE = " memory in use."


def read(text: str) -> Crash | None:
    return tell(sheet_of(clean_lines([Region(1, text.encode())])))


def oom(requested: str = "1.00 GiB", gpu: int = 0, holders: str = "") -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {requested}. GPU {gpu} has a total capacity of "
        f"24.00 GiB of which 0.50 GiB is free. {holders}Of the allocated memory 20.00 GiB is allocated by PyTorch, and "
        "1.00 GiB is reserved by PyTorch but unallocated."
    )


def test_the_first_failing_rank_counts() -> None:
    crash = read(f"[rank2]: {oom('2.00 GiB', 2)}\n[rank0]: {oom('3.00 GiB', 0)}\n")
    assert crash is not None
    assert (crash.gpu_index, crash.requested_bytes, crash.ranks_failed) == (2, 2 * GIB, 2)


def test_an_exception_while_handling_another_of_the_same_rank_ended_the_run() -> None:
    crash = read(
        f"{oom('2.00 GiB')}\n\nDuring handling of the above exception, another exception occurred:\n\n{oom()}\n"
    )
    assert crash is not None
    assert crash.requested_bytes == GIB


def test_a_failure_printed_by_logger_and_traceback_is_one() -> None:
    crash = read(f"2024-08-21 22:56:04 | ERROR | a:b:1 - {oom()}\n{oom()}\n")
    assert crash is not None
    assert crash.ranks_failed == 1


def test_a_card_that_two_hosts_name_alike_is_two_ranks() -> None:
    crash = read(f"10.0.0.1: {oom(gpu=3)}\n10.0.0.2: {oom(gpu=3)}\n")
    assert crash is not None
    assert crash.ranks_failed == 2


def test_of_survived_failures_the_largest_counts_and_none_is_fatal() -> None:
    warning = "/x.py:1: UserWarning: Failed to clone() tensor with name a. Error: "
    crash = read(
        f"{warning}{oom('0.10 GiB')}\n{warning}{oom('0.30 GiB')}\n{warning}{oom('0.20 GiB')}\nTraining completed.\n"
    )
    assert crash is not None
    assert (crash.fatal, crash.line, crash.ranks_failed) == (False, 2, 0)
    assert crash.recovered == (1, 2, 3)
    assert crash.phase == "checkpoint_save"


def test_training_that_goes_on_has_survived() -> None:
    bars = "\n".join(f" 10%|█ | {step}/1000 [01:00<09:00,  1.67it/s]" for step in (101, 102, 103))
    crash = read(f" 10%|█ | 100/1000 [01:00<09:00,  1.67it/s]\n{oom()}\n{bars}\n")
    assert crash is not None
    assert not crash.fatal


@pytest.mark.parametrize(
    "advice", ["Try reducing batch size", "CUDA OOM, please reduce the batch", "Set X=1 to fall back to CPU"]
)
def test_advice_after_a_message_is_no_sign_of_survival(advice: str) -> None:
    crash = read(f"{oom()}\n{advice}\n")
    assert crash is not None
    assert crash.fatal


@pytest.mark.parametrize(
    "words",
    [
        "| WARNING: ran out of memory with exception: {};\nSkipping batch",
        "{}\nOOM Detected, reducing batch/grad size to 6/1.",
        "{}\nWARNING ⚠️ CUDA out of memory with batch=16. Reducing to batch=8 and retrying (1/3).",
        "/x.py:1: UserWarning: Failed to clone() tensor with name a. Error: {}\n  warnings.warn(",
        "{}\n------------CPU Mode for This Batch-------------",
    ],
)
def test_words_beside_a_message_say_that_it_was_survived(words: str) -> None:
    crash = read(words.format(oom()) + "\n")
    assert crash is not None
    assert not crash.fatal


def test_one_more_step_of_another_rank_proves_nothing() -> None:
    crash = read(f" 10%|█ | 100/1000 [01:00<09:00,  1.67it/s]\n{oom()}\n 10%|█ | 101/1000 [01:00<09:00,  1.67it/s]\n")
    assert crash is not None
    assert crash.fatal


def test_a_word_about_a_survived_failure_is_enough() -> None:
    crash = read(
        "WARNING ⚠️ CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU\n300 epochs completed in 2.1 hours.\n"
    )
    assert crash is not None
    assert (crash.kind, crash.fatal, crash.recovered) == ("cuda_oom", False, (1,))


def test_a_survived_failure_is_listed_beside_the_fatal_one() -> None:
    crash = read(f"WARNING CUDA OutOfMemoryError in TaskAlignedAssigner, using CPU\nx\n{oom()}\n")
    assert crash is not None
    assert crash.fatal
    assert crash.recovered == (1,)


def banner(batch: str, examples: str = "9,861") -> str:
    total = "  Total train batch size (w. parallel, distributed & accumulation) ="
    return f"***** Running training *****\n  Num examples = {examples}\n  Num Epochs = 2\n{total} {batch}\n"


def test_a_banner_that_comes_again_with_a_smaller_batch_is_a_failure_that_was_swallowed() -> None:
    crash = read(banner("64") + banner("57") + banner("51") + "{'train_runtime': 85.9}\n")
    assert crash is not None
    assert (crash.kind, crash.fatal, crash.recovered) == ("cuda_oom", False, (8, 12))


@pytest.mark.parametrize(
    "text",
    [
        banner("64") + banner("64"),
        banner("32") + banner("64"),
        banner("64") + banner("32", examples="77"),
        banner("64") + "{'train_runtime': 85.9}\n" + banner("32"),
        banner("64") + banner("0"),
    ],
)
def test_a_second_run_with_another_batch_is_no_failure(text: str) -> None:
    assert read(text) is None


def test_a_killed_process_is_no_cause_where_a_card_ran_out() -> None:
    crash = read(f"{oom()}\n[launch.py:321:sigkill_handler] ['python'] exits with return code = -9\n")
    assert crash is not None
    assert crash.kind == "cuda_oom"


def test_a_rank_that_was_killed_explains_a_timeout_of_the_others() -> None:
    crash = read(
        "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
        "E0102 10:22:12.120000 881 x/api.py:869] failed (exitcode: -9) local_rank: 1 (pid: 902) of binary: python\n"
    )
    assert crash is not None
    assert crash.kind == "host_oom_killed"


def test_a_fault_before_a_kill_explains_it() -> None:
    crash = read("RuntimeError: CUDA error: device-side assert triggered\nrun.sh: line 3: 71 Killed   python x.py\n")
    assert crash is not None
    assert crash.kind == "not_oom"


def test_cublas_after_an_assertion_is_no_lack_of_memory() -> None:
    crash = read(
        "x.cu:1: indexSelect: block: [1,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n"
    )
    assert crash is not None
    assert (crash.kind, crash.signature) == ("not_oom", "device-assert")


@pytest.mark.parametrize(
    ("holders", "others"),
    [
        # 20 + 1 GiB and a context: the program itself, seen from a container
        ("Process 2116 has 21.60 GiB memory in use. ", {}),
        (f"Process 62 has 398.00 MiB{USE} Process 61 has 22.0 GiB{USE} ", {62: "sibling"}),
        (
            f"Process 7 has 1.40 GiB{USE} Including non-PyTorch memory, this process has 22.0 GiB{USE} ",
            {7: "other"},
        ),
        ("Process 4101 has 2.10 GiB memory in use. ", {4101: "other"}),
        ("Including non-PyTorch memory, this process has 17179869184.00 GiB memory in use. ", {}),
    ],
)
def test_the_program_itself_is_none_of_the_others(holders: str, others: dict[int, str]) -> None:
    crash = read(oom(holders=holders))
    assert crash is not None
    assert {holder.pid: holder.what for holder in crash.other_processes} == others


def test_the_figure_of_this_process_comes_only_from_its_own_words() -> None:
    crash = read(oom(holders="Process 2116 has 21.60 GiB memory in use. "))
    assert crash is not None
    assert crash.own_process_bytes is None


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("  3%|▎ | 9/352 [40:55<25:10:16, 264.19s/it]", 9),
        ("Epoch 3:  45%|████      | 450/1000 [01:00<01:10,  7.5it/s, v_num=0]", 450),
        ("Epoch:   0%|          | 0/83 [00:00<?, ?it/s]", None),
        ("Loading checkpoint shards:  50%|█████     | 1/2 [00:09<00:09,  9.80s/it]", None),
        ("Downloading shards:  50%|█████     | 1/2 [00:09<00:09,  9.80s/it]", None),
        ("1|37|Loss: 0.6124:   3%|▎         | 37/1250 [01:14<40:27,  2.00s/it]", 37),
        ("iter 15 step 3: loss 10.96", 3),
        (" iteration       12/  500000 | consumed samples: 768 |", 12),
        ("'global_step/max_steps': '5/45'", 5),
        ("[2025-03-28] [INFO] [Rank 0] step=100, skipped=0, lr=[9.1e-06]", 100),
        ("[ 31/1035 04:50 < 2:36:41, 0.11 it/s, Epoch 0.03/1]", 31),
        ("INFO: iter: 7, lr: 0.000012", 7),
        ("Running... 12 / 240 ... 31.20 s/it", 12),
        ("  Gradient Accumulation steps = 4", None),
        ("warmup_steps: 100", None),
        ('  File "/a/step 3/b.py", line 12, in step', None),
    ],
)
def test_the_step_is_read_off_a_line(text: str, step: int | None) -> None:
    assert step_of(text) == step


def progress(trials: range) -> str:
    return "".join(f"trial {n} epoch 10/10  train 0.4{n}  val 0.3{n}  26.{n}s\n" for n in trials)


def test_progress_that_comes_again_shows_that_the_failure_was_survived_whatever_it_looks_like() -> None:
    crash = read(f"A new study begins\n{progress(range(1, 5))}Trial 5 failed: {oom()}\n{progress(range(6, 9))}")
    assert crash is not None and not crash.fatal


@pytest.mark.parametrize(
    "after",
    [
        progress(range(6, 8)),  # too few to tell it from lines that were still on their way
        "A new study begins\n" + progress(range(6, 9)),  # the next run of a script
        "trial 6 epoch 10/10  train nan\n" * 3,  # another kind of line
    ],
)
def test_a_few_lines_or_another_run_after_a_failure_prove_nothing(after: str) -> None:
    crash = read(f"A new study begins\n{progress(range(1, 5))}Trial 5 failed: {oom()}\n{after}")
    assert crash is not None and crash.fatal


def test_where_ranks_cannot_be_told_apart_the_progress_of_others_proves_nothing() -> None:
    crash = read(f"torchrun --nproc_per_node 4 hpo.py\n{progress(range(1, 5))}{oom()}\n{progress(range(5, 9))}")
    assert crash is not None and crash.fatal
