"""How the sizes of a moment come about: formulas with the numbers filled in, put into words only when shown.

A reader can add each of them up: `x`, `/`, `+`, `-`, brackets and "% of" are arithmetic, all other words only say what
a number is. The sizes themselves are worked out elsewhere (peak, trained, sharding); here stands what made them up.
"""

from __future__ import annotations

from typing import Any

from oomdoctor.case import Text
from oomdoctor.memory import (
    adapted,
    around_training,
    attention,
    evaluation,
    experts,
    in_backward,
    on_ctx,
    online,
    peak,
    scores,
    sharding,
    trained,
    without_backward,
)
from oomdoctor.memory.activations import mlp_at_once
from oomdoctor.memory.job import Job
from oomdoctor.memory.logits import in_words
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.step import Step


def shared(whole: Text, share: float, is_sum: bool = False) -> Text:
    """A formula divided by the cards that split what it stands for."""
    cards = round(1 / share) if share else 1
    if cards == 1:
        return whole
    values = {"whole": whole, "cards": cards}
    return Text("texts/bill.sum_shared", values) if is_sum else Text("texts/bill.shared", values)


def each_parameter(job: Job, size: int) -> Text:
    """So many bytes for all trained parameters."""
    return of_parameters(trained.trainable_parameters(job), size)


def of_parts(found: tuple[trained.Part, ...]) -> Text:
    """So many bytes for these parameters."""
    return of_parameters(sum(part.parameters for part in found), trained.weight_bytes(found))


def of_parameters(count: int, size: int) -> Text:
    """`6.7e9 parameters x 2 B`."""
    return Text("texts/bill.parameters", {"count": count, "each": size / max(1, count)})


def gradients(step: Step, moment: Moment) -> Text:
    """Those that are there at a moment: all, one alone, the output layer's, or all but the first block's."""
    if in_backward.applies(step.job):
        return _one_gradient(step.job, moment)
    if moment.gradients == step.earlier != step.gradients:
        return of_parameters(step.trainable, step.earlier)  # FSDP without synchronisation
    if moment.name in ("B5", "B6") and step.job.run.parallelism == "fsdp" and moment.gradients != step.gradients:
        return Text("texts/bill.gradients_of_blocks", {"size": moment.gradients})
    if moment.name not in ("B5", "B6") and moment.gradients != step.gradients and not moment.stack:
        return _and_behind(step.job, moment, _head(step.job, "head_gradient"))
    whole = shared(of_parameters(step.trainable, step.undivided), sharding.gradient_share(step.job))
    if moment.gradients == step.gradients:
        return whole
    return Text("texts/bill.not_yet_all", {"whole": whole, "share": moment.gradients / step.gradients})


def _and_behind(job: Job, moment: Moment, head: Text) -> Text:
    """With the gradients of the last block that come before its softmax's."""
    if moment.name != "B4":
        return head
    values = {"count": peak.behind_attention(job), "each": job.gradient_bytes}
    if not job.trains_the_head:
        return Text("texts/bill.gradients_behind", values)
    return Text("texts/bill.and_gradients_behind", {**values, "before": head})


def _one_gradient(job: Job, moment: Moment) -> Text:
    each = job.gradient_bytes
    found = Text("texts/bill.one_gradient", {"count": in_backward.stepped_numbers(job, moment), "each": each})
    if not in_backward.waiting(job, moment):
        return found
    return Text("texts/bill.and_waiting", {"before": found, "count": trained.table_numbers(job), "each": each})


def activations(step: Step, moment: Moment) -> Text:
    """What is kept for backward at a moment, or what a pass without backward holds."""
    if moment.held:
        alone = activations(step, moment._replace(held=0))
        return Text("texts/bill.and_stacks", {"before": alone, "size": moment.held})
    step = _at_work(step, moment)
    if moment.name in ("E", "G", "GP"):
        return without_backward.block(step.job, moment)
    if moment.name in ("B6", "EL"):
        return _stream(step.job, moment.tokens or step.job.tokens)
    if moment.name == "O":
        return Text("texts/bill.left_over", {"size": step.left})
    found = _first_block(step) if moment.name == "B5" else _kept(step)
    if moment.name in ("forward", "F") and step.left:
        found = Text("texts/bill.and_left_over", {"before": found, "size": step.left})
    if moment.name in ("F", "B0", "B1"):
        found = Text("texts/bill.and_tail", {"before": found, "size": step.tail})
    elif moment.name in ("B3", "B4") and step.again:
        found = Text("texts/bill.and_again", {"before": found, "size": step.again})
    return Text("texts/bill.less_freed", {"before": found, "size": moment.freed}) if moment.freed else found


def _at_work(step: Step, moment: Moment) -> Step:
    """The stack that is at work at a moment: the model's own, or one before it."""
    return step.stacks[moment.stack - 1] if moment.stack else step


def _kept(step: Step) -> Text:
    found = _kept_by_one_model(step)
    return Text("texts/bill.two_models", {"model": found}) if step.job.value_model == "full" else found


def _kept_by_one_model(step: Step) -> Text:
    job, share = step.job, sharding.block_share(step.job)
    if job.checkpointing == "full":
        blocks = peak.blocks_on_card(job)
        checkpointed = peak.checkpointed_blocks(job, blocks)
        values = {**_stream(job, job.tokens).values, "blocks": checkpointed}
        found = Text("texts/bill.block_inputs", values)
        held = on_ctx.outliving(job)
        if held:
            found = Text("texts/bill.and_on_ctx", {**values, "before": found, "each": held})
        if checkpointed < blocks:
            others = _blocks(step, _block(step), blocks - checkpointed)
            found = Text("texts/bill.and_unchecked", {"before": found, "others": others})
        return shared(found, share, is_sum=bool(held) or checkpointed < blocks)
    if job.checkpointing == "selective":
        block = Text("texts/bill.and_its_input", {"before": _block(step), **_stream(job, job.tokens).values})
        return shared(Text("texts/bill.halved", {"whole": _blocks(step, block)}), share)
    return shared(_blocks(step, _block(step)), share)


def _blocks(step: Step, block: Text, count: int = 0) -> Text:
    """Of all blocks, or of so many."""
    values: dict[str, Any] = {
        "blocks": count or peak.blocks_on_card(step.job),
        "block": block,
        "tokens": step.job.tokens,
        "size": step.block.beside,
    }
    if _keeps_more(step):
        return Text("texts/bill.blocks_and_more", {**values, "size": values["blocks"] * step.block.beside})
    return Text("texts/bill.blocks_and_casts", values) if step.block.fixed else Text("texts/bill.blocks", values)


def _keeps_more(step: Step) -> bool:
    """A block keeps more beside what grows with its tokens than casts of weights."""
    return bool(step.block.crossed or experts.merged_bytes(step.job))


def _first_block(step: Step) -> Text:
    """The last one that backward comes to; if it was run again, its input stands beside it."""
    found = Text("texts/bill.one_block", {"block": _block(step), "tokens": step.job.tokens})
    if step.block.beside:
        key = "and_more" if _keeps_more(step) else "and_casts"
        found = Text(f"texts/bill.{key}", {"before": found, "size": step.block.beside})
    return (
        Text("texts/bill.and_input", {**_stream(step.job, step.job.tokens).values, "before": found})
        if step.again
        else found
    )


def _block(step: Step) -> Text:
    """Bytes per token that one block keeps, by part."""
    saved = step.block
    found = Text("texts/bill.block", {"norms": saved.norms, "attention": saved.attention, "mlp": saved.mlp})
    if saved.inputs:
        found = Text("texts/bill.and_linear_inputs", {"before": found, "each": saved.inputs})
    if saved.adapters:
        found = Text("texts/bill.and_adapters", {"before": found, "each": saved.adapters})
    if saved.dropout:
        found = Text("texts/bill.and_dropout", {"before": found, "each": saved.dropout})
    return found


def _stream(job: Job, tokens: int) -> Text:
    """The residual stream: what goes into a block."""
    values = {"each": job.residual_bytes, "hidden": job.arch.hidden_size, "tokens": tokens}
    return Text("texts/bill.stream", values)


def logits(step: Step, moment: Moment) -> Text:
    """Logits and what their loss needs."""
    job = step.job
    if moment.name == "F":
        return step.loss.forward_formula
    if moment.name == "B0":
        return step.loss.formula
    if moment.name == "EL":
        return evaluation.loss_of_a_batch(job).forward_formula
    if moment.name == "GS":
        return in_words(moment.tokens, job.arch.vocab_size, online.SCORES)
    if moment.sequences:
        return without_backward.last_logits(job, moment)
    return in_words(job.tokens, job.arch.vocab_size, job.linear_bytes)


def temporaries(step: Step, moment: Moment) -> Text:
    """Tensors in flight: within a block, of the output layer's gradient, or within the optimizer's step."""
    if moment.phase in around_training.PHASES:
        return around_training.temporaries(step.job, moment)
    if moment.phase == "backward" and in_backward.applies(step.job):
        return _with_a_step(step, moment)
    return _in_flight(step, moment)


def _with_a_step(step: Step, moment: Moment) -> Text:
    """What is in flight, and the step of the one tensor whose gradient is there."""
    job = step.job
    numbers = in_backward.stepped_numbers(job, moment)
    size = trained.of_one_tensor(job, numbers)
    if moment.temporaries == size:
        return Text("texts/bill.step_of_one", {"count": numbers, "each": size / numbers})
    found = _in_flight(step, moment)
    return Text("texts/bill.and_step", {"before": found, "count": numbers, "each": size / numbers}) if size else found


def _in_flight(step: Step, moment: Moment) -> Text:
    if moment.beside:
        alone = _in_flight(step, moment._replace(beside=0))
        return Text("texts/bill.and_beside", {"before": alone, "size": moment.beside})
    job = _at_work(step, moment).job
    if moment.name == "O":
        return _optimizer(job)
    if moment.name in ("B1", "B6") and trained.merged_table(job):
        table = {"words": job.arch.vocab_size, "hidden": job.arch.hidden_size, "each": job.other_bytes}
        return Text("texts/bill.whole_table", table)
    if moment.name == "B1":
        return _head(job, "second_head")
    if moment.name == "B6":
        return _head(job, "tied_heads")
    R, E, queries = job.residual_bytes, job.linear_bytes, job.arch.num_attention_heads * job.arch.head_dim
    values: dict[str, float] = {"tokens": job.tokens, "stream": R, "each": E, **_widths(job), "queries": queries}
    if moment.name == "forward" or _passes_again(job, moment):
        return _passing(step, moment, Text("texts/bill.in_mlp", values))
    makes_scores = attention.keeps_scores(job.kernel)
    in_mlp = moment.name == "B5" and not moment.freed and (makes_scores or 2 * mlp_at_once(job) > queries)
    if moment.name == "B3" or in_mlp:
        return Text("texts/bill.in_mlp", {**values, "each": adapted.middle_gradients(job)})
    return without_backward.and_scores(job, Text("texts/bill.in_attention", values), job.tokens)


def _passes_again(job: Job, moment: Moment) -> bool:
    return peak.passes_again(job) and moment.temporaries == peak.passing_bytes(job) + scores.named(job)


def _passing(step: Step, moment: Moment, in_mlp: Text) -> Text:
    """What is in flight on the way forward, also where a block is run again."""
    job = _at_work(step, moment).job
    dora, each = adapted.in_flight(job), scores.each_named(job)
    found = Text("texts/bill.and_dora", {"before": in_mlp, "size": dora}) if dora else in_mlp
    if moment.name == "forward" and step.again:
        return without_backward.and_scores(job, found, job.tokens)
    return without_backward.and_scores(job, found, job.tokens, each) if each else found


def _widths(job: Job) -> dict[str, float]:
    return {"hidden": job.arch.hidden_size, "width": mlp_at_once(job)}


def _head(job: Job, name: str) -> Text:
    values = {"words": job.arch.vocab_size, "hidden": job.arch.hidden_size, "each": job.gradient_bytes}
    return Text(f"texts/bill.{name}", values)


def _optimizer(job: Job) -> Text:
    """ZeRO-3 takes its partition in pieces; all others step through what this card holds."""
    count, share, stepped = trained.trainable_parameters(job), sharding.state_share(job), peak.stepped_numbers(job)
    each = peak.copy_bytes(job) + trained.workspace(job) / max(1, count)
    if stepped < count * share:
        return Text("texts/bill.step_workspace", {"count": stepped, "each": each})
    return shared(Text("texts/bill.step_workspace", {"count": count, "each": each}), share)


def dequantized(step: Step, moment: Moment) -> Text:
    """The widest weight of a block, unpacked; GPTQ's layers keep all of a block."""
    job = _at_work(step, moment).job
    linear = sharding.largest_linear(job)
    values = {"layer": linear.name, "outputs": linear.outputs, "inputs": linear.inputs}
    found = Text("texts/bill.unpacked", {**values, "each": peak.unpacked_bytes(job)})
    if peak.is_gptq(job):
        block = sharding.block_linear_weights(job)
        return Text("texts/bill.and_block_unpacked", {"before": found, "weights": block, "each": peak.HALF})
    return found


def cast(step: Step, moment: Moment) -> Text:
    """Autocast's 16-bit copies of the blocks' weights, of all stacks that have run, and in evaluation of the head's."""
    ran = step.job.stacks[: moment.stack] if moment.stack else (*step.job.stacks, step.job)
    copies = [_cast(job) for job in ran if peak.own_casts(job)]
    if moment.name == "EL" and peak.head_cast(step.job):
        values = {"words": step.job.arch.vocab_size, "hidden": step.job.arch.hidden_size, "each": peak.HALF}
        copies.append(Text("texts/bill.head_cast", values))
    first, *others = copies
    for other in others:
        first = Text("texts/bill.sum", {"before": first, "more": other})
    return first


def _cast(job: Job) -> Text:
    weights = sharding.block_linear_weights(job)
    values = {"blocks": job.arch.num_hidden_layers, "weights": weights, "each": peak.HALF}
    return shared(Text("texts/bill.cast", values), sharding.block_share(job))
