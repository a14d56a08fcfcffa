"""How data parallelism, ZeRO and FSDP divide what a card holds, and what their communication needs.

Source: DeepSpeed's and PyTorch's sources; ZeRO paper, figure 1: stage 1 divides optimizer states, 2 gradients as well,
3 weights as well. FSDP's FULL_SHARD divides all three.
"""

from __future__ import annotations

from oomdoctor.case import Linear
from oomdoctor.memory.job import Job
from oomdoctor.memory.once import once
from oomdoctor.memory.weights import FOUR_BITS, PACKED, QUANTIZED_BYTES, Counts, linear_weights, norms_of_a_layer

# reduce_bucket_size in elements: "auto" is hidden² (small), transformers' examples say 2e8, DeepSpeed's default is 5e8.
BUCKET_ELEMENTS = (0, 200_000_000, 500_000_000)
LIVE_PARAMETERS = 1_000_000_000  # stage3_max_live_parameters
SUB_GROUP = 1_000_000_000  # sub_group_size: ZeRO-3 steps through its partition in pieces of this many elements
_ON_ACCELERATE = ("accelerate", "transformers", "trl", "axolotl", "llamafactory", "ms-swift")
BLOCKS_GATHERED = 2  # the one at work, and the next one on its way


def divides_weights(job: Job) -> bool:
    return job.zero_stage == 3 or job.run.parallelism == "fsdp"


def block_share(job: Job) -> float:
    """device_map lays the blocks out over the cards, with all that belongs to them."""
    return 1 / max(1, job.run.gpu_count or 1) if job.run.parallelism == "device_map" else 1.0


def weight_share(job: Job) -> float:
    """The share of the weights that rests on this card; 0 where they rest in host memory."""
    if job.run.parallelism == "device_map":
        return block_share(job)
    if job.run.offload == "params" and divides_weights(job):
        return 0.0
    return 1 / job.shards if divides_weights(job) else 1.0


def undivided_bytes(job: Job) -> float:
    """Bytes of each quantized weight that stay whole on every card.

    The scales of bitsandbytes (quant_state) are no parameters, so neither FSDP nor ZeRO-3 divides them. Weights that
    are packed into integers (bnb_4bit_quant_storage) stay whole as well: both divide floating-point tensors only.
    """
    kind = job.run.quantization or ""
    if kind not in FOUR_BITS or not divides_weights(job):
        return 0.0
    if job.run.bnb_4bit_quant_storage == "uint8":
        return QUANTIZED_BYTES[kind]
    return QUANTIZED_BYTES[kind] - PACKED


def gradient_share(job: Job) -> float:
    """The share of the gradients. With offload DeepSpeed sends them to host memory as they come."""
    if job.run.parallelism == "device_map":
        return block_share(job)
    if job.run.offload in ("params", "optimizer") and job.shards_something:
        # ColossalAI's LowLevelZero keeps its share until the step, which then copies it to the host.
        waits = job.run.framework == "colossalai" and job.run.offload == "optimizer" and job.zero_stage >= 2
        return 1 / job.shards if waits else 0.0
    return 1 / job.shards if job.zero_stage >= 2 or job.run.parallelism == "fsdp" else 1.0


def accumulated_bytes(job: Job, undivided: int) -> int:
    """Gradients of the micro-batches before that FSDP keeps whole on each card; 0 where it divides them each time."""
    offloaded = job.run.offload in ("params", "optimizer")
    if job.run.parallelism != "fsdp" or offloaded or not _keeps_gradients_whole(job):
        return 0
    return undivided * reduced_bytes(job) // max(1, job.gradient_bytes)


def reduced_bytes(job: Job) -> int:
    """Bytes of each gradient that FSDP has whole: in the 16-bit dtype that its mixed precision reduces in."""
    mixed = job.run.mixed_precision not in (None, "no")
    return min(2, job.gradient_bytes) if mixed else job.gradient_bytes


def _keeps_gradients_whole(job: Job) -> bool:
    """accelerate leaves FSDP's synchronisation out (no_sync) between the micro-batches of one step, unless it is told
    to synchronise each (sync_each_batch)."""
    return (
        not job.run.sync_each_batch
        and (job.run.gradient_accumulation_steps or 1) > 1
        and job.run.framework in _ON_ACCELERATE
    )


def state_share(job: Job) -> float:
    if job.run.parallelism == "device_map":
        return block_share(job)
    if job.run.offload in ("params", "optimizer"):
        return 0.0
    return 1 / job.shards if job.zero_stage >= 1 or job.run.parallelism == "fsdp" else 1.0


def block_bytes(job: Job, gathered: bool = False) -> float:
    """One block's weights, adapters included. gathered: as the forward pass uses them."""
    found = job.counts
    layers = max(1, job.arch.num_hidden_layers)
    each = float(job.rest(gathered))
    if job.quantized:
        each = QUANTIZED_BYTES[job.run.quantization or ""] - undivided_bytes(job)
    plain = (found.experts + found.biases) / layers + norms_of_a_layer(job.arch)
    own = found.blocks / layers * each + plain * job.rest(gathered)
    return own + (job.adapters.adapters / layers * job.trained_bytes if job.adapters else 0)


@once
def gathered_bytes(job: Job) -> int:
    """Whole weights that a card has fetched at a time, beside its own share."""
    if not divides_weights(job):
        return 0
    if job.zero_stage == 3:
        return round(min(whole_bytes(job), live_parameters(job) * job.loaded_bytes))
    return round(root_bytes(job) + BLOCKS_GATHERED * block_bytes(job, gathered=True))


def live_parameters(job: Job) -> int:
    """Parameters that ZeRO-3 lets be gathered at a time."""
    return job.run.stage3_max_live_parameters or LIVE_PARAMETERS


def root_bytes(job: Job, gathered: bool = True) -> int:
    """What FSDP's outermost unit holds, gathered from forward to the end of backward."""
    return root_numbers(job) * job.rest(gathered)


def root_numbers(job: Job) -> int:
    """Parameters of FSDP's outermost unit: embedding, last norm, lm_head. Other stacks have blocks of their own."""
    return job.counts.total - job.counts.stacks - _in_blocks(job.counts, job)


def _in_blocks(found: Counts, job: Job) -> int:
    return found.blocks + found.experts + found.biases + job.arch.num_hidden_layers * norms_of_a_layer(job.arch)


def whole_bytes(job: Job) -> float:
    """All weights as the forward pass uses them."""
    others = job.counts.stacks * job.rest(True)
    return job.arch.num_hidden_layers * block_bytes(job, gathered=True) + root_bytes(job) + others


def bucket_bytes(job: Job, gradients: int) -> tuple[int, int, int]:
    """Buffers for gradients on their way: low, likely, high."""
    if job.run.parallelism == "ddp":  # buckets are a second set of gradients, or gradients are views of them
        size = 0 if job.run.gradient_as_bucket_view else gradients
        return size, size, size
    if job.zero_stage and job.run.reduce_bucket_size:
        size = 2 * job.run.reduce_bucket_size * job.gradient_bytes
        return size, size, size
    if job.zero_stage in (1, 2):  # two buffers: overlap_comm
        low, likely, high = (2 * elements * job.gradient_bytes for elements in BUCKET_ELEMENTS)
        return low, likely, high
    if job.zero_stage == 3:  # "auto": hidden² elements
        size = 2 * job.arch.hidden_size**2 * job.gradient_bytes
        return size, size, max(size, 2 * BUCKET_ELEMENTS[2] * job.gradient_bytes)
    return 0, 0, 0


def gathered_logits(job: Job) -> int:
    """nn.DataParallel collects every replica's logits on the first card."""
    if job.run.parallelism != "dp":
        return 0
    return (job.run.gpu_count or 1) * job.tokens * job.arch.vocab_size * job.linear_bytes


@once
def largest_linear(job: Job) -> Linear:
    """The largest single linear layer of a block; one without weights where a block has none."""
    layers = (linear for linear in job.arch.linears if not linear.fused)
    return max(layers, key=lambda linear: linear.inputs * linear.outputs, default=Linear("", 0, 0, ""))


@once
def block_linear_weights(job: Job) -> int:
    """Weights of all linear layers of one block."""
    return sum(linear_weights(linear) for linear in job.arch.linears if not linear.fused)
