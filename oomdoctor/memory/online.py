"""Training on text that the model writes itself (GRPO, PPO): its generation, its scores, an engine on the same card.

Source: TRL's GRPOTrainer and PPOTrainer (0.24 run on a tiny model with every tensor counted) and GRPOConfig of 0.14 to
1.16. vLLM takes a share of the card's whole memory for its weights and its cache (`gpu_memory_utilization`).
"""

from __future__ import annotations

from oomdoctor.memory import passing
from oomdoctor.memory.job import Job
from oomdoctor.memory.moments import Moment
from oomdoctor.units import MIB

_WHOLE_GENERATION = (0, 18)  # TRL: one generation serves all micro-batches of a step; vLLM may run on the same card
_COLOCATED = (1, 0)  # TRL: vllm_mode is colocate where nothing is said
_SHARE = 0.3  # GRPOConfig.vllm_gpu_memory_utilization
_ROLLOUT = 64  # PPOConfig.local_rollout_forward_batch_size
SCORES = 8  # bytes of each score: in fp32, stacked from the single steps or padded beside that


def generates(job: Job) -> bool:
    """Whether this card writes text, by itself or by an engine that shares it."""
    return job.run.task in ("grpo", "ppo") and not (job.run.use_vllm and engine_share(job) is None)


def moments(job: Job) -> tuple[Moment, ...]:
    """The phase in which text is written; with an engine, nothing of it is torch's own but the engine's line."""
    if job.run.use_vllm:
        return (Moment("GV", "generate"),)
    prompt = job.length - job.answer or job.length  # whose length is unknown may be all of it
    found = passing.generating(job, "generate", _sequences(job), prompt, job.length)
    if job.run.task != "ppo":
        return found
    # generate() keeps the scores of each answer's tokens; they are stacked, and padded once more, before they are used.
    tokens = kept_score_tokens(job)
    return (*found, Moment("GS", "generate", 0, SCORES * job.arch.vocab_size * tokens, tokens=tokens))


def kept_score_tokens(job: Job) -> int:
    """Tokens whose scores TRL's PPOTrainer keeps from generation to the end of the step; 0 elsewhere."""
    if job.run.task != "ppo" or job.run.framework not in (None, "trl") or job.run.use_vllm:
        return 0
    return job.batch * (job.run.gradient_accumulation_steps or 1) * job.answer


def engine_share(job: Job) -> float | None:
    """The share of this card that vLLM takes; None where there is no engine on it."""
    run = job.run
    mode = run.vllm_mode or ("colocate" if job.trl >= _COLOCATED else "server")
    if not run.use_vllm or mode == "server" or job.trl < _WHOLE_GENERATION:
        return None
    return run.vllm_gpu_memory_utilization or _SHARE


def engine_bytes(job: Job) -> int:
    """Bytes that vLLM takes beside the training; 0 without one, or where the card's size is unknown."""
    share, mib = engine_share(job), job.run.gpu_memory_mib
    return round(share * mib * MIB) if share and mib else 0


def _sequences(job: Job) -> int:
    """Answers that one call of generate() writes."""
    if job.run.task == "ppo":
        return min(_ROLLOUT, job.batch * (job.run.gradient_accumulation_steps or 1))
    steps = job.run.steps_per_generation or job.run.gradient_accumulation_steps or 1
    return job.batch * (steps if job.trl >= _WHOLE_GENERATION else 1)
