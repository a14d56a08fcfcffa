"""Evaluation against transformers' own Trainer, run on the CPU with every tensor counted."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor.memory.bill import bill_of
from oomdoctor.memory.evaluation import kept_batches, loss_of_a_batch
from oomdoctor.memory.job import job_of
from oomdoctor.memory.lines import PhaseBill, Range
from oomdoctor.units import GIB
from tests.memory import llamas, tiny
from tests.memory.runs import full, lora

NO_TENSORS = ("workspaces", "allocator_slack", "context", "nccl")
METRICS = {"per_device_eval_batch_size": 2, "compute_metrics": True}


def evaluation(bill: Any) -> PhaseBill:
    return next(phase for phase in bill.phases if phase.phase == "eval")


def moving(phase: PhaseBill) -> int:
    """Bytes that come and go, without weights and optimizer states."""
    apart = (*NO_TENSORS, "weights", "optimizer_states")
    return sum(line.size.likely for line in phase.lines if line.key not in apart)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("samples", "changes"),
    [
        (4, {"compute_metrics": False}),  # the loss alone
        (2, {}),  # one batch
        (4, {}),  # the second is joined to the first
        (12, {}),
        (12, {"eval_do_concat_batches": False}),  # a list, nothing is joined
        (12, {"preprocess_logits_for_metrics": True}),  # one number a token is kept
    ],
)
def test_trainer_holds_what_the_bill_says(dtype: str, samples: int, changes: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    run = full(**{**METRICS, "torch_dtype": dtype, "max_length": tiny.LENGTH, "eval_samples": samples, **changes})
    held = evaluated(getattr(torch, dtype), samples, changes)
    assert moving(evaluation(bill_of(run, tiny.ARCH))) == pytest.approx(held, rel=0.03)


def evaluated(dtype: Any, samples: int, changes: dict[str, Any]) -> int:
    """The most bytes that Trainer's evaluation holds beside the weights, before the results leave the card."""
    import tempfile

    from transformers import Trainer, TrainingArguments, trainer

    from tests.memory.counted import Counted

    class Leaving(trainer.EvalLoopContainer):  # type: ignore[misc]
        def to_cpu_and_numpy(self) -> None:
            on_the_card.append(counted.phase())
            super().to_cpu_and_numpy()

    model, on_the_card = tiny.model(dtype), []
    rows = [{"input_ids": list(range(tiny.LENGTH)), "labels": list(range(tiny.LENGTH))} for _ in range(samples)]
    concat = {key: value for key, value in changes.items() if key == "eval_do_concat_batches"}
    metrics = changes.get("compute_metrics", True)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "EvalLoopContainer", Leaving)
        settings = TrainingArguments(
            folder, per_device_eval_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True, **concat
        )
        best = _best if changes.get("preprocess_logits_for_metrics") else None
        loop = Trainer(model, settings, eval_dataset=rows, preprocess_logits_for_metrics=best)
        with Counted([weight.data for weight in model.parameters()]) as counted:
            loop.evaluation_loop(loop.get_eval_dataloader(), "Evaluation", prediction_loss_only=not metrics)
    return int(on_the_card[0])


def _best(logits: Any, labels: Any) -> Any:
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)


def test_a_set_of_unknown_size_gives_a_wide_range_and_says_so() -> None:
    # One sample, a hundred or a thousand, in batches of 2 x 2048 tokens; all of them twice while the last is joined.
    bill = bill_of(full(**METRICS), llamas.LLAMA2_7B)
    line = next(line for line in evaluation(bill).lines if line.key == "collected_logits")
    batch = 2 * 2048 * 32000 * 2
    assert line.size == Range(1 * batch, 2 * 50 * batch, 2 * 500 * batch)
    assert line.formula.path == "texts/bill.collected_of_unknown"


def test_a_batch_size_is_no_evaluation_where_there_is_none() -> None:
    bills = {does: bill_of(full(**METRICS, do_eval=does), llamas.LLAMA2_7B) for does in (False, True, None)}
    evaluates = {does: any(phase.phase == "eval" for phase in bill.phases) for does, bill in bills.items()}
    assert evaluates == {False: False, True: True, None: True}


def test_predictions_leave_the_card_every_so_many_steps() -> None:
    job = job_of(full(**METRICS, eval_accumulation_steps=4), llamas.LLAMA2_7B)
    assert kept_batches(job).joined == Range(1, 8, 8)


def test_every_process_gathers_the_predictions_of_all() -> None:
    alone, four = (
        bill_of(full(**METRICS, eval_samples=16, parallelism="ddp", gpu_count=cards), llamas.LLAMA2_7B)
        for cards in (1, 4)
    )
    kept = [next(line.size.likely for line in evaluation(bill).lines if line.key == "collected_logits")
            for bill in (alone, four)]  # fmt: skip
    assert kept == [2 * 16 * 2048 * 32000 * 2] * 2  # all 16 samples, twice, whoever worked them out


def test_under_autocast_predictions_are_kept_in_fp32() -> None:
    half, cast = (
        job_of(full(**METRICS, mixed_precision=mixed), llamas.LLAMA2_7B) for mixed in ("no", "bf16")
    )  # accelerate's convert_outputs_to_fp32
    from oomdoctor.memory.evaluation import bytes_of_a_batch

    assert bytes_of_a_batch(cast) == 2 * bytes_of_a_batch(half)


@pytest.mark.parametrize(
    "changes",
    [{"prediction_loss_only": True}, {"batch_eval_metrics": True}, {"task": "classification"},
     {"framework": "llamafactory"}],
)  # fmt: skip
def test_nothing_is_kept_where_logits_are_not_asked_for(changes: dict[str, Any]) -> None:
    assert kept_batches(job_of(full(**METRICS, **changes), llamas.LLAMA2_7B)).joined.high == 0


def test_trl_runs_the_model_once_more_for_the_metrics() -> None:
    # TRL 1.16 makes no logits for its loss, so a metric over them costs a second pass: 2 B for each.
    run = full(framework="trl", task="sft", versions={"trl": "1.16.0"}, per_device_eval_batch_size=2)
    alone, metrics = (
        loss_of_a_batch(job_of(run._replace(compute_metrics=on), llamas.LLAMA31_8B)) for on in (False, True)
    )
    assert metrics.forward == 2 * 2048 * 128256 * 2
    assert alone.forward < metrics.forward / 2


def test_old_transformers_keep_a_cache_in_every_evaluation_pass() -> None:
    # Traced on 4.46: 2 x layers x key width x tokens, and none where use_cache is off or Trainer switches it off (5.0).
    def cache(**changes: Any) -> int:
        bill = bill_of(full(per_device_eval_batch_size=4, **changes), llamas.LLAMA2_7B)
        return sum(line.size.likely for line in evaluation(bill).lines if line.key == "kv_cache")

    assert cache(versions={"transformers": "4.46.3"}) == 2 * 32 * 4096 * 2 * 4 * 2048
    assert cache(versions={"transformers": "4.46.3"}, use_cache=False) == 0
    assert cache() == 0


@pytest.mark.parametrize(("prompt", "answer"), [(80, 6), (8, 40)])  # the prompts' pass is the peak, or the last step
def test_generating_holds_what_the_bill_says(prompt: int, answer: int) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from oomdoctor.memory import passing
    from tests.memory.counted import Counted

    sizes = {"num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8,
             "num_key_value_heads": 8, "vocab_size": 500}  # fmt: skip
    model, rows = tiny.model(torch.float32, **sizes).eval(), torch.randint(1, 500, (4, prompt))
    with Counted([weight.data for weight in model.parameters()]) as counted, torch.no_grad():
        mask = torch.ones_like(rows)
        model.generate(rows, attention_mask=mask, max_new_tokens=answer, min_new_tokens=answer, do_sample=False)
    job = job_of(full(torch_dtype="float32", max_length=prompt), tiny.architecture(sizes))
    run = prompt + answer - 1  # tokens; the last one is chosen, and not run
    moments = passing.generating(job, "eval", 4, prompt, run)
    assert max(moment.total for moment in moments) == pytest.approx(counted.phase(), rel=0.03)


def test_an_evaluation_that_generates_keeps_token_numbers_alone() -> None:
    # Llama-3.1-8B, 8 samples of 2048 tokens: keys and values of all blocks, and the keys of one once more.
    run = lora(per_device_eval_batch_size=8, compute_metrics=True, predict_with_generate=True)
    bill = bill_of(run._replace(loss_kernel="liger"), llamas.LLAMA31_8B)
    assert "collected_logits" not in {line.key for line in evaluation(bill).lines}
    longer = run._replace(loss_kernel="liger", generation_max_length=65536)
    cache = next(
        line.size.likely for line in evaluation(bill_of(longer, llamas.LLAMA31_8B)).lines if line.key == "kv_cache"
    )
    assert cache == (2 * 32 + 1) * 1024 * 2 * 8 * 65536
    assert cache > 60 * GIB


@pytest.mark.parametrize(("batch", "bytes_each"), [(1, 10), (4, 14)])
def test_before_4_49_a_batch_of_several_rows_had_its_logits_copied(batch: int, bytes_each: int) -> None:
    # Traced on transformers 4.46: 16-bit logits, fp32 copy, shifted copy, log-softmax.
    from oomdoctor.memory.loss import loss_of

    old = full(per_device_train_batch_size=batch, versions={"transformers": "4.46.3"})
    assert loss_of(job_of(old, llamas.LLAMA2_7B)).forward == bytes_each * batch * 2048 * 32000
    new = old._replace(versions={"transformers": "4.49.0"})
    assert loss_of(job_of(new, llamas.LLAMA2_7B)).forward == 10 * batch * 2048 * 32000
