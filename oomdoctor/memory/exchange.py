"""What cards exchange: weights gathered for a moment, gradients on their way, buckets, collected logits.

Source: torch's FSDP 1 and 2 run over a group of pretended cards with every storage counted (tests/memory/test_fsdp.py).
The outermost unit is gathered from the first layer to the end of backward; blocks come one by one, the next one while
the last one is at work. A unit's gradients are whole, in the dtype they are reduced in, and are copied once to be
reduced; those of the outermost unit wait whole for the end of backward.
"""

from __future__ import annotations

from oomdoctor.case import Text
from oomdoctor.memory import formulas, origins, sharding, trained
from oomdoctor.memory.job import Job
from oomdoctor.memory.lines import NOTHING, Line, Range
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.step import Step

_GATHERS_NOTHING = ("O", "EC", "GV", "GS")
_IN_BLOCKS, _LAST = ("B3", "B4", "B5"), ("B5", "B6")


def at(step: Step, moment: Moment) -> Moment:
    """The moment with what is gathered at it and what is on its way to other cards."""
    job = step.job
    if not sharding.divides_weights(job) or moment.name in _GATHERS_NOTHING:
        return moment
    if job.zero_stage == 3:
        return moment._replace(gathered=sharding.gathered_bytes(job))
    gradients = max(0, moment.gradients - _not_yet_divided(step, moment))
    return moment._replace(gathered=_gathered(job, moment), reducing=_reducing(job, moment), gradients=gradients)


def _not_yet_divided(step: Step, moment: Moment) -> int:
    """Bytes of the outermost unit's share, which is made last, from the whole gradients on their way."""
    job = step.job
    if moment.name not in _LAST or moment.stack or not job.full or sharding.accumulated_bytes(job, step.undivided):
        return 0
    counted = job.counts.embedding if moment.name == "B5" and not job.arch.tie_word_embeddings else 0
    numbers = sharding.root_numbers(job) - counted  # B5 is without the table's gradients as it is
    return round(numbers * job.gradient_bytes * sharding.gradient_share(job))


def _gathered(job: Job, moment: Moment) -> int:
    """Bytes of FSDP's gathered weights."""
    if job.run.fsdp_reshard_after_forward is False and moment.name not in _LAST:
        return round(sharding.whole_bytes(job))
    if moment.name == "B6":
        return sharding.root_bytes(job)
    if moment.name == "B5":  # nothing comes after the first block
        return sharding.root_bytes(job) + round(sharding.block_bytes(job, gathered=True))
    return sharding.gathered_bytes(job)


def _reducing(job: Job, moment: Moment) -> int:
    """Bytes of FSDP's whole gradients."""
    each, head = sharding.reduced_bytes(job), trained.table_numbers(job) if job.trains_the_head else 0
    if moment.name == "B1":
        return each * head
    if moment.name in _IN_BLOCKS:
        return each * (head + 2 * trained.numbers_of_a_block(job))
    if moment.name == "B6" and job.full and job.run.method != "freeze":
        return each * 2 * sharding.root_numbers(job)
    return 0


def line(job: Job, moment: Moment) -> Line | None:
    """The line of a moment; None where cards exchange nothing."""
    if moment.name in ("EC", "GV", "GS") and sharding.divides_weights(job):
        return None
    held = moment.gathered + moment.reducing + sharding.gathered_logits(job)
    size = Range(*(each + held for each in sharding.bucket_bytes(job, trained.gradients(job))))
    if size == NOTHING:
        return None
    return Line("communication", size, _in_words(job, moment), origins.of_communication(job))


def _in_words(job: Job, moment: Moment) -> Text:
    if job.run.parallelism == "ddp":
        return Text("texts/bill.buckets_ddp", formulas.each_parameter(job, trained.gradients(job)).values)
    if job.run.parallelism == "dp":
        values = {"cards": job.run.gpu_count or 1, "tokens": job.tokens, "words": job.arch.vocab_size}
        return Text("texts/bill.gathered_logits", {**values, "each": job.linear_bytes})
    return _of_fsdp(job, moment) if job.run.parallelism == "fsdp" else _of_zero(job, moment)


def _of_fsdp(job: Job, moment: Moment) -> Text:
    count, block = sharding.BLOCKS_GATHERED, sharding.block_bytes(job, gathered=True)
    found = Text("texts/bill.gathered_blocks", {"root": sharding.root_bytes(job), "count": count, "block": block})
    if moment.gathered != sharding.gathered_bytes(job):
        found = Text("texts/bill.gathered", {"size": moment.gathered})
    if not moment.reducing:
        return found
    return Text("texts/bill.and_reducing", {"before": found, "size": moment.reducing})


def _of_zero(job: Job, moment: Moment) -> Text:
    said = job.run.reduce_bucket_size
    if job.zero_stage == 3 and not said:
        found = Text("texts/bill.buckets_zero3", {"hidden": job.arch.hidden_size, "each": job.gradient_bytes})
    else:
        values = {"numbers": said or sharding.BUCKET_ELEMENTS[1], "each": job.gradient_bytes}
        found = Text("texts/bill.buckets_zero", values)
    return _and_gathered(job, found) if moment.gathered else found


def _and_gathered(job: Job, found: Text) -> Text:
    live, whole = sharding.live_parameters(job), sharding.whole_bytes(job)
    if whole <= live * job.loaded_bytes:
        return Text("texts/bill.and_all_gathered", {"before": found, "size": whole})
    return Text("texts/bill.and_live_parameters", {"before": found, "count": live, "each": job.loaded_bytes})
