"""What a pass holds that keeps nothing for backward: one block at a time, a cache of keys and values, a few logits.

Source: transformers' Llama, run under no_grad with every tensor counted.
"""

from __future__ import annotations

from oomdoctor.memory import scores
from oomdoctor.memory.activations import mlp_width
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment
from oomdoctor.memory.peak import cast_cache

_FP32 = 4
STREAMS = 3  # the embeddings, the residual stream and its norm
IN_MLP = 3  # the activation of the gate, up, and their product


def generating(job: Job, phase: str, sequences: int, prompt_length: int, length: int) -> tuple[Moment, ...]:
    """generate() within a training run: the prompts' pass, and its last step. Lengths in tokens of one sequence."""
    prompt = _prompt(job, sequences * min(prompt_length, length), sequences)
    every = sequences * length
    last = prompt._replace(name="GE", activations=0, kv_cache=cache(job, every) + growing(job, every), tokens=every)
    return prompt._replace(phase=phase), last._replace(phase=phase)


def inference(job: Job) -> Moment:
    """The prompt's pass, with the cache of keys and values of all tokens."""
    return _prompt(job, job.tokens, job.batch)


def _prompt(job: Job, tokens: int, sequences: int) -> Moment:
    return Moment(
        name="G",
        phase="generate",
        activations=block(job, tokens),
        logits=last_logits(job, sequences),
        cast=cast_cache(job),
        kv_cache=cache(job, tokens),
        tokens=tokens,
        sequences=sequences,
    )


def block(job: Job, tokens: int) -> int:
    """Bytes of the block at work: in the MLP, or while keys are rotated beside the rotated queries."""
    stream = STREAMS * job.residual_bytes * job.arch.hidden_size
    return tokens * (stream + widest(job)) + scores.workspace(job, tokens)


def widest(job: Job) -> int:
    """Bytes per token of the block's widest moment, beside its streams."""
    q, c = job.arch.num_attention_heads * job.arch.head_dim, job.arch.num_key_value_heads * job.arch.head_dim
    return max(IN_MLP * job.linear_bytes * mlp_width(job), job.attention_bytes * (2 * q + 5 * c))


def cache(job: Job, tokens: int) -> int:
    """Keys and values of all blocks."""
    return 2 * job.arch.num_hidden_layers * _keys_of_a_block(job, tokens)


def growing(job: Job, tokens: int) -> int:
    """What growing by one token needs: `torch.cat` makes the keys of one block anew beside the old ones."""
    return _keys_of_a_block(job, tokens)


def last_logits(job: Job, sequences: int) -> int:
    """generate() keeps the logits of the last token alone, and an fp32 copy to choose from."""
    copy = _FP32 if job.linear_bytes < _FP32 else 0
    return (job.linear_bytes + copy) * job.arch.vocab_size * sequences


def _keys_of_a_block(job: Job, tokens: int) -> int:
    return job.arch.num_key_value_heads * job.arch.head_dim * job.attention_bytes * tokens
