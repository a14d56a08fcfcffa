"""The moments of a training step at which memory can peak, each with what is alive at it.

Source: traced steps. Over 48 of them (twelve families, 16 and 32 bits, with checkpointing and without) the highest of
these moments agrees with the traced peak within 2 % (`benchmarks/formulas/against_traces.py`).
F end of forward; B0 log-softmax; B1 lm_head; B3 last block's MLP; B4 softmax; B5 first block; B6 end of backward;
O step of the optimizer.
"""

from __future__ import annotations

from oomdoctor.memory import (
    adapted,
    crossing,
    disentangled,
    experts,
    in_backward,
    on_ctx,
    scores,
    sharding,
    stacked,
    towers,
    trained,
)
from oomdoctor.memory.activations import mlp_at_once, norm_per_token, saved_by_block
from oomdoctor.memory.job import Job
from oomdoctor.memory.loss import loss_of, makes_logits, named_logits
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.step import Step
from oomdoctor.memory.weights import linear_weights

# auto_gptq's torch path shifts the packed weights apart in int32, narrows them to a byte and scales them in fp16.
_GPTQ_UNPACKING = 4 + 1 + 2
_BEHIND_ATTENTION = ("attn_out", "mlp_in", "mlp_mid")
HALF = 2  # bytes of a 16-bit number
# Tensors that OffloadActivations of torchtune and TRL still holds on the card while they are copied.
_STASHED = 5


def step_of(job: Job) -> Step:
    """The parts of one step."""
    arch, T = job.arch, job.tokens
    block = saved_by_block(job)
    whole, ends = block.total(T), job.residual_bytes * arch.hidden_size * T
    kept, again = _checkpointed(job, whole, ends)
    undivided = trained.gradients(job)
    gradients = 0 if in_backward.applies(job) else round(undivided * sharding.gradient_share(job))
    stay = (job.run.gradient_accumulation_steps or 1) > 1 or job.run.zero_grad_set_to_none is False
    return Step(
        job=job,
        block=block,
        kept=kept,
        again=again,
        tail=_tail(job),
        loss=loss_of(job),
        trainable=trained.trainable_parameters(job),
        undivided=undivided,
        gradients=gradients,
        earlier=sharding.accumulated_bytes(job, undivided) or (gradients if stay else 0),
        dequantized=dequantized_bytes(job),
        cast=cast_cache(job) if job.checkpointing == "full" else 0,
        left=round(on_ctx.left_over(job) * sharding.block_share(job)) + named_logits(job),
        stacks=tuple(step_of(stack)._replace(left=0) for stack in job.stacks),
    )


def _tail(job: Job) -> int:
    """What is kept outside of the blocks: by the last norm, for the output layer, by dropouts, by convolutions."""
    if job.role == "blocks":  # the model's own come right behind
        return 0
    h = job.arch.hidden_size
    reads_last = job.full and not job.projector and (job.before or not job.fused_head)
    head_input = job.linear_bytes * h if reads_last else 0
    masks = job.arch.end_dropouts * h if job.arch.hidden_dropout else 0
    reached = job.full or job.checkpointing == "full"  # which lets gradients go down to what is put in
    stem = job.arch.stem_widths * h * job.residual_bytes if reached and not job.silent else 0
    own = round(job.tokens * (norm_per_token(job, h) + head_input + masks + stem))
    rows = trained.merged_table(job) if job.arch.tie_word_embeddings else 0  # the output layer keeps it
    return own + rows + head_cast(job) + crossing.outside_of_blocks(job) + towers.projector_bytes(job)


def _checkpointed(job: Job, whole: int, ends: int) -> tuple[int, int]:
    """What this card's blocks keep until backward, and what running one again adds."""
    kept, again = _of_all_blocks(job, whole, ends)
    models = 2 if job.value_model == "full" else 1  # the value model runs first, and keeps as much for backward
    return round(models * kept * sharding.block_share(job)), again


def _of_all_blocks(job: Job, whole: int, ends: int) -> tuple[int, int]:
    if job.silent:
        return 0, 0
    blocks = blocks_on_card(job)
    if job.checkpointing == "full":
        others = blocks - checkpointed_blocks(job, blocks)
        kept = (blocks - others) * (ends + round(on_ctx.outliving(job) * job.tokens)) + others * whole
        return kept, 0 if others and (blocks - 1) % (job.run.every_n_layers or 1) else whole
    if job.checkpointing == "selective":  # every second block, or the cheaper half of a block's results
        return blocks * (whole + ends) // 2, whole // 2
    return blocks * whole, 0


def checkpointed_blocks(job: Job, blocks: int) -> int:
    """The first block and every n-th after it (transformers' every_n_layers)."""
    return -(-blocks // (job.run.every_n_layers or 1))


def blocks_on_card(job: Job) -> int:
    """Blocks whose kept tensors lie on the card; with activation_offloading those not yet copied to the host."""
    full = job.checkpointing == "full"
    layers = job.arch.num_hidden_layers - job.arch.unused_blocks if full else job.saved_layers
    if not job.run.activation_offloading:
        return layers
    return min(layers, _STASHED if full else 1)


def head_cast(job: Job) -> int:
    """The 16-bit copy of an fp32 lm_head that autocast makes and the graph keeps."""
    if not job.autocast or job.other_bytes != 4 or job.scores_samples or job.fused_head:
        return 0
    return HALF * job.arch.vocab_size * job.arch.hidden_size


def cast_cache(job: Job) -> int:
    """Autocast keeps its 16-bit copies of trained fp32 weights, of all stacks, until the forward pass ends."""
    return own_casts(job) + sum(own_casts(stack) for stack in job.stacks)


def own_casts(job: Job) -> int:
    """Those of one stack's blocks."""
    if not (job.autocast and job.full and job.loaded_bytes == 4) or job.quantized:
        return 0
    copies = HALF * job.arch.num_hidden_layers * sharding.block_linear_weights(job)
    return round(copies * sharding.block_share(job))


def dequantized_bytes(job: Job) -> int:
    """The widest weight at work: bitsandbytes unpacks one at a time; GPTQ's layers keep theirs for backward."""
    if not job.quantized:
        return 0
    linear = sharding.largest_linear(job)
    kept = HALF * sharding.block_linear_weights(job) if is_gptq(job) else 0
    return kept + linear.inputs * linear.outputs * unpacked_bytes(job)


def is_gptq(job: Job) -> bool:
    return (job.run.quantization or "").startswith("gptq")


def unpacked_bytes(job: Job) -> int:
    """Bytes that one quantized weight takes while its layer works."""
    if is_gptq(job):
        return _GPTQ_UNPACKING
    loaded = 4 if job.run.torch_dtype == "float32" else 2
    compute = 4 if job.run.bnb_4bit_compute_dtype == "float32" and job.run.quantization != "int8" else 2
    return loaded + (compute if compute != loaded else 0)


def moments(step: Step) -> tuple[Moment, ...]:
    """All candidates for the peak, in the order they happen."""
    if in_backward.applies(step.job):
        return (*_forward(step), *(in_backward.stepped(step.job, moment) for moment in _backward(step)))
    return (*_forward(step), *_backward(step), _optimizer(step))


def _forward(step: Step) -> tuple[Moment, ...]:
    return tuple(stacked.forward(step, _forward_of_stack)) if step.stacks else _forward_of_stack(step)


def _backward(step: Step) -> tuple[Moment, ...]:
    return tuple(stacked.backward(step, _backward_of_stack)) if step.stacks else _backward_of_stack(step)


def _forward_of_stack(step: Step) -> tuple[Moment, ...]:
    job, T = step.job, step.job.tokens
    kept = step.kept + step.left
    passing = passing_bytes(job) + (scores.workspace(job, T) if step.again else scores.named(job))
    return (
        Moment("forward", "forward", kept, 0, step.earlier, passing, step.dequantized, step.cast),
        Moment("F", "loss", kept + step.tail, step.loss.forward, step.earlier, 0, 0, step.cast),
    )


def _backward_of_stack(step: Step) -> tuple[Moment, ...]:
    job, arch, T = step.job, step.job.arch, step.job.tokens
    h, q, E, R = arch.hidden_size, arch.num_attention_heads * arch.head_dim, job.linear_bytes, job.residual_bytes
    divided = job.run.parallelism == "fsdp"  # its whole gradients are on their way to other cards: see exchange
    head = arch.vocab_size * h * job.gradient_bytes if job.trains_the_head and not divided else 0
    mlp = T * (R * h + adapted.middle_gradients(job) * mlp_at_once(job))
    pairs = crossing.in_backward(job) + disentangled.in_backward(job)
    merged = pairs + experts.merged_gradient(job)
    if step.again and passes_again(job):
        mlp = max(mlp, passing_bytes(job) + scores.named(job))
    workspace = scores.workspace(job, T)
    casts = HALF * behind_attention(job) if job.autocast and job.loaded_bytes == 4 and not job.quantized else 0
    freed = round(T * _freed_before_softmax(step)) + casts if workspace else 0
    softmax = T * (R * h + E * q) + workspace
    rest = step.kept + step.again
    first = (R * h * T if step.again else 0) + step.block.total(T)
    lm_head = max(step.earlier, min(head, step.gradients))
    whole = max(step.earlier, step.gradients)
    behind = 0 if divided else behind_attention(job) * job.gradient_bytes
    at_softmax = max(step.earlier, min(head + behind, step.gradients))
    before_first = round(step.gradients * before_the_first_block(job))
    almost = max(step.earlier, min(before_first, step.gradients))
    rows = trained.merged_table(job)
    at_head = (head if step.earlier else 0) + (rows if arch.tie_word_embeddings else 0)
    kept_logits = E * arch.vocab_size * T if step.loss.kept and makes_logits(job) else 0
    at_first = max(step.earlier, min(before_first + behind, step.gradients))
    in_mlp = Moment("B5", "backward", first, 0, almost, mlp if workspace else max(mlp, softmax), step.dequantized)
    at_scores = Moment("B5", "backward", first - freed, 0, at_first, softmax, step.dequantized, freed=freed)
    in_first = (_beside(in_mlp, merged), *((_beside(at_scores, pairs),) if workspace else ()))
    return (
        Moment("B0", "backward", step.kept + step.tail, step.loss.backward, step.earlier),
        Moment("B1", "backward", step.kept + step.tail, kept_logits, lm_head, at_head),
        _beside(Moment("B3", "backward", rest, 0, lm_head, mlp, step.dequantized), merged),
        _beside(Moment("B4", "backward", rest - freed, 0, at_softmax, softmax, step.dequantized, freed=freed), pairs),
        max(in_first, key=_size),
        Moment("B6", "backward", R * h * T, 0, whole, (2 * head if shares_table(job) else 0) + rows),
    )


def passes_again(job: Job) -> bool:
    """A block that is run again has more in flight on its way forward than on its way back: DoRA, named scores."""
    return bool(adapted.in_flight(job) or scores.named(job))


def _size(moment: Moment) -> int:
    return moment.total


def passing_bytes(job: Job) -> int:
    """What is in flight in forward: the stream, the widest tensors of the MLP, and what DoRA makes of a weight."""
    stream = job.residual_bytes * job.arch.hidden_size + job.linear_bytes * mlp_at_once(job)
    return job.tokens * stream + adapted.in_flight(job)


def _beside(moment: Moment, size: int) -> Moment:
    """The moment with so many bytes more in flight: gradients of merged experts and of biases of pairs."""
    return moment._replace(temporaries=moment.temporaries + size, beside=size)


def behind_attention(job: Job) -> int:
    """Trained weights of a block whose gradients are there when backward comes to its softmax."""
    if not job.full:
        return 0
    return sum(linear_weights(linear) for linear in job.arch.linears if linear.reads in _BEHIND_ATTENTION)


def _freed_before_softmax(step: Step) -> float:
    """Bytes per token of a block that are gone when backward comes to the softmax.

    Its MLP, one norm, values and output, what adapters kept behind it, and what multiplied the values.
    """
    job, arch = step.job, step.job.arch
    q = arch.num_attention_heads * arch.head_dim
    behind = adapted.saved_behind_attention(job)
    return step.block.mlp + step.block.norms / 2 + 2 * job.attention_bytes * q + scores.gone_before(job) + behind


def shares_table(job: Job) -> bool:
    """The table of words gets its gradient in parts: from the output layer, or from an encoder as well."""
    return job.arch.tie_word_embeddings or stacked.reads_text(job)


def before_the_first_block(job: Job) -> float:
    """The share of the gradients that is there while the first block runs backward: not yet its own."""
    found = job.counts
    missing = (found.blocks + found.experts + found.biases) / max(1, job.arch.num_hidden_layers)
    if not job.arch.tie_word_embeddings or job.scores_samples:
        missing += found.embedding
    frozen = job.frozen_parameters
    return 1 - (missing + found.stacks - frozen) / max(1, found.total - frozen) if job.full else 1.0


def _optimizer(step: Step) -> Moment:
    """The step itself: its workspace, and with an fp32 master the gradients' fp32 copies."""
    job = step.job
    copies = stepped_numbers(job) * copy_bytes(job)
    workspace = trained.workspace(job) * sharding.state_share(job)
    return Moment("O", "optimizer_step", step.left, 0, step.gradients, round(copies + workspace))


def stepped_numbers(job: Job) -> float:
    """Trained numbers that this card steps through at a time."""
    numbers = trained.trainable_parameters(job) * sharding.state_share(job)
    return min(numbers, sharding.SUB_GROUP) if job.zero_stage == 3 else numbers


def copy_bytes(job: Job) -> int:
    """Bytes of the copies that the step makes of each gradient."""
    return (4 + (2 if job.zero_stage else 0)) if job.master else 0
