"""What one transformer block keeps from its forward pass for its backward pass.

Source: saved tensors of transformers' modules, traced on the meta device at real widths; it reproduces measured CUDA
peaks to half a percent (benchmarks/formulas). Letters: T tokens, h hidden, f intermediate, q and c the widths of
queries and of keys, E bytes of what a linear layer puts out, R bytes of the residual stream, r LoRA's rank.
"""

from typing import NamedTuple

from oomdoctor.memory import adapted, attention, crossing, disentangled, experts, on_ctx
from oomdoctor.memory.job import Job
from oomdoctor.memory.once import once
from oomdoctor.memory.weights import linear_weights

_MEAN_SAVES_INPUT = (2, 3)  # torch before it: `x.pow(2).mean()` keeps the square (pytorch#109876)
_ROTARY_PER_LAYER = (4, 45)  # transformers before it: cos and sin are gathered in each block


class Saved(NamedTuple):
    """Bytes of one block. per_token: in all, by part; fixed: independent of the tokens (copies of weights).

    crossed: of a micro-batch, by attention to another stack, and the biases of pairs of tokens.
    """

    norms: float
    inputs: float  # of trained linear layers
    attention: float
    mlp: float
    adapters: float
    dropout: float
    fixed: int
    crossed: int = 0

    @property
    def per_token(self) -> float:
        return self.norms + self.inputs + self.attention + self.mlp + self.adapters + self.dropout

    @property
    def beside(self) -> int:
        """What does not grow with the block's own tokens alone."""
        return self.fixed + self.crossed

    def total(self, tokens: int) -> int:
        return round(self.per_token * tokens) + self.beside


def saved_by_block(job: Job) -> Saved:
    """What one block keeps when it runs without checkpointing (or is run again in backward)."""
    h = job.arch.hidden_size
    return Saved(
        norms=job.arch.norms_per_layer * norm_per_token(job, h) - _read_alike(job) + _inner_norms(job) + _rotary(job),
        inputs=_linear_inputs(job),
        attention=_attention(job),
        mlp=_mlp(job),
        adapters=adapted.saved_per_token(job),
        dropout=_dropout(job),
        fixed=_weight_copies(job),
        crossed=_beside_tokens(job),
    )


def _beside_tokens(job: Job) -> int:
    crosses = job.arch.crosses or job.kernel == attention.BIASED
    return (round(crossing.saved_by_block(job)) if crosses else 0) + disentangled.saved_by_block(job)


def _dropout(job: Job) -> float:
    """Boolean masks behind each part of the block, and within the MLP where its activation has one."""
    if not job.arch.hidden_dropout:
        return 0.0
    within = _dense_width(job) if job.arch.mlp_dropout else 0
    return (3.0 if job.arch.crosses else 2.0) * job.arch.hidden_size + within


def norm_per_token(job: Job, width: int) -> float:
    """One norm: its input (RMSNorm: in fp32), the reciprocal root, and what the gradient of its weight needs."""
    R = job.residual_bytes
    if job.run.torch_compile:  # one fused kernel: it keeps its input and the root, the rest is worked out again
        return R * width + 4
    if job.arch.norm == "layernorm":
        kept = 4 if job.autocast else R  # autocast runs layer_norm in fp32
        return kept * width + 8
    if job.arch.norm == "layernorm_steps":  # less its mean, twice: for the variance and for the root's product
        return (2 * 4 + (4 if job.full else 0)) * width + 8
    square = 4 * width if job.torch < _MEAN_SAVES_INPUT else 0
    normalised = 4 if job.arch.norm == "rmsnorm_fp32" else R
    stream = R * width if job.arch.norm == "rmsnorm_t5" and R < 4 else 0  # it is scaled in its own dtype
    return 4 * width + 4 + square + stream + (normalised * width if job.full else 0)


def _read_alike(job: Job) -> float:
    """What two norms of one input keep once: it, unless autocast makes each of them a copy in fp32."""
    copied = job.autocast and job.residual_bytes != 4
    shared = job.arch.norms_read_alike and job.arch.norm == "layernorm" and not copied
    return float(job.residual_bytes * job.arch.hidden_size) if shared else 0.0


def _inner_norms(job: Job) -> float:
    """Norms within attention: of queries and keys, or of the vectors that they come from."""
    if not job.arch.latent:
        return _qk_norms(job)
    ranks = (job.arch.latent.query_rank, job.arch.latent.kv_rank)
    outputs = job.linear_bytes * sum(ranks) if job.full else 0  # what the layers behind them read
    return sum(norm_per_token(job, rank) for rank in ranks if rank) + outputs


def _qk_norms(job: Job) -> float:
    if not job.arch.qk_norm and not job.arch.wide_qk_norm:
        return 0.0
    a, k, d = job.arch.num_attention_heads, job.arch.num_key_value_heads, job.arch.head_dim
    roots = 4 * (2 if job.arch.wide_qk_norm else a + k)
    return (a + k) * d * (4 + (job.linear_bytes if job.full else 0)) + roots


def _rotary(job: Job) -> float:
    per_layer = job.arch.rotary and job.transformers < _ROTARY_PER_LAYER
    return 2.0 * job.arch.head_dim * job.linear_bytes if per_layer else 0.0


def _linear_inputs(job: Job) -> float:
    """Inputs that trained linear layers keep: one for all that read the same, a cast for each under autocast."""
    if not job.full:
        return on_ctx.beside(job)
    casts = job.autocast and job.residual_bytes == 4
    reading = [linear for linear in job.arch.linears if linear.reads in ("attn_in", "mlp_in", "cross_in")]
    if casts:
        return 2.0 * sum(linear.inputs for linear in reading)
    return float(job.linear_bytes * sum({linear.reads: linear.inputs for linear in reading}.values()))


def _attention(job: Job) -> float:
    trained = job.full or any(linear.reads == "attn_out" for linear in adapted.targets(job))
    copied = job.full and job.arch.output_copied
    told = attention.told_of_groups(job.torch, job.transformers)
    setting = attention.Setting(
        kernel=job.kernel,
        number_bytes=job.attention_bytes,
        length=job.length,
        autocast=job.autocast,
        output_needed=trained,
        output_copied=copied,
        repeated=attention.repeats(job.run, job.arch, job.kernel, told, job.batch),
        math_bytes=attention.math_bytes(job.attention_bytes, job.torch),
        batch=job.batch,
    )
    return attention.saved_per_token(job.arch, setting)


@once
def mlp_width(job: Job) -> int:
    """f, the numbers that one token makes in the middle of the MLP; of its experts' in all, if there are any."""
    return _dense_width(job) + _routed_width(job)


def _dense_width(job: Job) -> int:
    return sum(linear.inputs for linear in job.arch.linears if linear.reads == "mlp_mid" and linear.count == 1)


def _routed_width(job: Job) -> int:
    middle = [linear for linear in job.arch.linears if linear.reads == "mlp_mid" and linear.count > 1]
    return sum(linear.inputs * adapted.active(job, linear) for linear in middle)


@once
def mlp_at_once(job: Job) -> int:
    """Those that are there at a time, spread over all tokens: where the MLP runs in tiles, one tile's.

    Tiles: ArcticTraining's and axolotl's default, the length divided by the hidden size.
    """
    return -(-mlp_width(job) // _tiles(job))


def _tiles(job: Job) -> int:
    return -(-job.length // job.arch.hidden_size) if job.run.tiled_mlp else 1


def _mlp(job: Job) -> float:
    """All that the MLP keeps; in tiles its input, and what one tile keeps when it is run again."""
    tiles = _tiles(job)
    return _mlp_in_one(job) if tiles == 1 else job.linear_bytes * job.arch.hidden_size + _mlp_in_one(job) / tiles


def _mlp_in_one(job: Job) -> float:
    E, f = job.linear_bytes, _dense_width(job)
    if job.run.torch_compile:  # the activation and its product are worked out again from what goes in
        return (2.0 if job.arch.gated_mlp else 1.0) * E * mlp_width(job)
    product = f * (2 if job.autocast else E) if job.full else 0  # input of the last layer
    routed = experts.saved_per_token(job, _routed_width(job)) if job.arch.num_experts else 0.0
    if job.arch.gated_mlp:
        return job.arch.gate_keeps * E * f + product + routed
    if job.arch.hidden_act == "gelu_new" and (job.arch.code_known or job.run.framework is not None):
        # x, x/2, tanh, 1 + tanh; autocast takes the power in fp32, and so all but half of x
        return (3.0 * 4 + E if job.autocast else 4.0 * E) * f + product
    if job.arch.hidden_act == "quick_gelu":
        return 2.0 * E * f + product  # x and the sigmoid that it is multiplied with
    if adapted.before_activation(job):
        return float(max(E * f, product))
    return float(E * f + product)


def _weight_copies(job: Job) -> int:
    """Autocast's 16-bit copies of fp32 weights, kept by the graph: of all linear layers, and of the adapters.

    Beside them what LoRA on fused experts makes of their weights, and what DoRA does.
    """
    copies = experts.merged_bytes(job) + adapted.weight_copies(job)
    if not job.autocast:
        return copies
    if job.loaded_bytes == 4 and not job.quantized:
        copies += 2 * sum(linear_weights(linear) for linear in job.arch.linears if not linear.fused)
    if job.adapters and job.trained_bytes == 4:
        copies += 2 * job.adapters.adapters // max(1, job.arch.num_hidden_layers)
    return copies
