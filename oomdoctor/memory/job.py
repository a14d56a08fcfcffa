"""A run with everything decided that the formulas need: sizes, bytes per number, kernels."""

from typing import NamedTuple

from oomdoctor.case import Architecture, Linear, Lora, Run
from oomdoctor.memory import attention, fused
from oomdoctor.memory.lora import Adapters, adapters_of
from oomdoctor.memory.versions import Version, version
from oomdoctor.memory.weights import BYTES, Counts, counts

# Their training step lets the model's outputs and the loss go before backward, or at its end; a loop of one's own
# (`outputs.loss.backward()`) has them until it names others. Where the framework is unknown it may be either; the
# dearer is assumed.
TRAINERS = ("transformers", "trl", "axolotl", "llamafactory", "ms-swift", "unsloth", "lightning", "torchtune")
ZERO = ("zero1", "zero2", "zero3")
_SHARDED = (*ZERO, "fsdp")
_FUSED_HEAD = (1, 14)  # TRL: every trainer but PPO's and ORPO's scores tokens without making their logits
_FUSED_TASKS = (None, "sft", "pretrain", "dpo", "kto", "grpo")
# Preference training puts the chosen and the rejected answer into one batch (TRL's concatenated_forward).
_SEQUENCES_PER_SAMPLE = {"dpo": 2, "orpo": 2, "reward": 2}
_COUNTS_ANSWERS = (0, 15)  # TRL: a batch of GRPO is counted in answers; before, in prompts
_OWN_VALUE_MODEL = (0, 12)  # TRL's PPO: value and reward model are models of their own
_PEFT_TAKES_DTYPE, _PEFT_UPCASTS = (0, 6), (0, 12)  # adapters take the dtype of the weight; autocast_adapter_dtype
_FREEZE_LAYERS = 2  # LLaMA-Factory's freeze_trainable_layers


class _Decided(NamedTuple):
    """The fields of a Job. Letters are those of the formulas; all `*_bytes` are bytes per number.

    loaded_bytes: W, weights that are not quantized. residual_bytes: R, the stream between the blocks.
    linear_bytes: E, what the linear layers put out. attention_bytes: queries, keys, values. length: tokens of one
    sequence on one card, its part of it where cards share the sequence.
    """

    run: Run
    arch: Architecture
    counts: Counts
    batch: int
    length: int
    shards: int  # cards that split what is sharded; 1 where nothing is
    loaded_bytes: int
    rest_bytes: int  # weights as they lie on the card between uses; FSDP keeps fp32 shards of what runs in 16 bits
    other_bytes: int  # embeddings, norms and lm_head
    residual_bytes: int
    linear_bytes: int
    attention_bytes: int
    trained_bytes: int  # trainable parameters as the forward pass sees them
    gradient_bytes: int
    master: bool  # an fp32 copy beside 16-bit trainable weights
    autocast: bool
    kernel: str
    adapters: Adapters | None
    torch: Version
    transformers: Version
    bitsandbytes: Version
    trl: Version
    role: str = ""  # of a stack before the model's own (case.Stack)
    projector: tuple[Linear, ...] = ()  # between that stack and the model
    projected: int = 0  # tokens of a micro-batch that the projector takes
    pooled: int = 0  # tokens of a micro-batch whose means it takes
    stacks: tuple["Job", ...] = ()  # the run as each stack before the model's own sees it
    source_batch: int = 0  # texts or sounds that the blocks attend to
    source_length: int = 0  # tokens of each


class Job(_Decided):
    """One card's share of a run, and what follows from it. Unlike a bare NamedTuple it can remember figures (once)."""

    @property
    def tokens(self) -> int:
        """T, the tokens of one micro-batch."""
        return self.batch * self.length

    @property
    def lora(self) -> Lora:
        return self.run.lora or Lora()

    @property
    def full(self) -> bool:
        """The blocks' own weights are trained."""
        return self.adapters is None

    @property
    def scores_samples(self) -> bool:
        """The model's head gives each sample a few numbers; it has no output layer over the vocabulary."""
        return self.run.task in ("classification", "reward") or not self.arch.vocab_size

    @property
    def source_tokens(self) -> int:
        """Of one micro-batch, that the blocks attend to beside their own."""
        return self.source_batch * self.source_length

    @property
    def before(self) -> bool:
        """It is a stack before the model's own."""
        return bool(self.role)

    @property
    def frozen(self) -> bool:
        """It is a stack before the model's own in which nothing is trained."""
        return self.before and not self.full and not (self.adapters and self.adapters.targets)

    @property
    def silent(self) -> bool:
        """It keeps nothing for backward. With checkpointing PEFT lets gradients go down to what is put into each part
        of the model, so that a frozen tower is run again as well."""
        return self.frozen and not (self.run.method == "lora" and self.checkpointing == "full")

    @property
    def frozen_parameters(self) -> int:
        """Of stacks that are not trained, where the rest of the model is trained as a whole."""
        return sum(stack.counts.own for stack in self.stacks if stack.frozen)

    @property
    def fused_head(self) -> bool:
        """TRL's own output layer, which hands out log-probabilities and makes no logits."""
        if self.run.framework != "trl" or self.run.task not in _FUSED_TASKS or self.trl < _FUSED_HEAD:
            return False
        return "trl" in self.run.versions or self.run.loss_kernel == "chunked"

    @property
    def answer(self) -> int:
        """Tokens of an answer that the model writes; a prompt's too, where nobody said how long answers are."""
        return min(self.length, self.run.max_completion_length or self.length)

    @property
    def value_model(self) -> str:
        """PPO's: none | head | full."""
        return self.run.value_model or ("full" if self._whole_ppo else "none")

    @property
    def reward_model(self) -> bool:
        """PPO's, frozen, on this card."""
        return (self.run.reward_model or ("full" if self._whole_ppo else "none")) == "full"

    @property
    def _whole_ppo(self) -> bool:
        return self.run.task == "ppo" and self.run.framework == "trl" and self.trl >= _OWN_VALUE_MODEL

    @property
    def trains_the_head(self) -> bool:
        """The output layer over the vocabulary has a gradient."""
        return self.full and self.run.method != "freeze" and not self.scores_samples

    @property
    def quantized(self) -> bool:
        return self.run.quantization not in (None, "none")

    @property
    def checkpointing(self) -> str:
        return self.run.gradient_checkpointing or "none"

    @property
    def saved_layers(self) -> int:
        """Blocks that keep something for backward: with frozen lower blocks only the trained ones at the top."""
        layers = self.arch.num_hidden_layers - self.arch.unused_blocks
        return min(layers, _FREEZE_LAYERS) if self.run.method == "freeze" else layers

    @property
    def shards_something(self) -> bool:
        return self.run.parallelism in _SHARDED

    def rest(self, gathered: bool) -> int:
        """Bytes of a weight that is not quantized, at rest or gathered for use."""
        return self.loaded_bytes if gathered else self.rest_bytes

    @property
    def zero_stage(self) -> int:
        return int(self.run.parallelism[-1]) if self.run.parallelism in ZERO else 0


def job_of(run: Run, arch: Architecture) -> Job:
    """Everything decided. The run's fields in `bill.NEEDED` must be known."""
    torch, transformers = version(run.versions, "torch"), version(run.versions, "transformers")
    arch = fused.as_built(arch, transformers)
    loaded = int(BYTES[run.torch_dtype or "bfloat16"])
    sharded = run.parallelism in _SHARDED
    # DeepSpeed runs the model in its own 16-bit dtype without autocast; FSDP gathers 16-bit copies of its shards.
    mixed = run.mixed_precision not in (None, "no")
    autocast = mixed and run.parallelism not in ZERO
    rest = loaded
    if mixed and sharded and run.method != "lora":
        rest = 4 if run.parallelism == "fsdp" and run.trainable_dtype in (None, "float32") else 2
        loaded = 2
    upcast = _upcasts(run)
    residual = 4 if upcast else loaded
    linear = _linear_bytes(run, residual, autocast)
    in_attention = 2 if autocast else linear
    trained, gradient, master = _trained_bytes(run, 4 if upcast else rest)
    return Job(
        run=run,
        arch=arch,
        counts=_counts(run, arch),
        batch=(run.per_device_train_batch_size or 1) * _sequences_per_sample(run),
        length=length_of(run),
        shards=max(1, run.gpu_count or 1) if sharded else 1,
        loaded_bytes=4 if upcast and run.quantization in (None, "none") else loaded,
        rest_bytes=4 if upcast and run.quantization in (None, "none") else rest,
        other_bytes=residual,
        residual_bytes=residual,
        linear_bytes=linear,
        attention_bytes=in_attention,
        trained_bytes=trained,
        gradient_bytes=gradient,
        master=master,
        autocast=autocast,
        kernel=attention.kernel_of(run, arch, in_attention, torch, transformers),
        adapters=adapters_of(run.lora or Lora(), arch) if run.method == "lora" else None,
        torch=torch,
        transformers=transformers,
        bitsandbytes=version(run.versions, "bitsandbytes"),
        trl=version(run.versions, "trl"),
    )


def length_of(run: Run) -> int:
    """One card's part of the longest sequence. A batch is padded to its longest sample, unless it is told more."""
    limit = run.max_length or 1
    if run.padding == "longest" and not run.packing:
        limit = min(limit, run.longest_sample or limit)
    return -(-limit // (run.context_parallel_size or 1))


def _sequences_per_sample(run: Run) -> int:
    if run.task == "grpo" and version(run.versions, "trl") < _COUNTS_ANSWERS:
        return run.num_generations or 1
    return _SEQUENCES_PER_SAMPLE.get(run.task or "", 1)


def _counts(run: Run, arch: Architecture) -> Counts:
    found = counts(arch)
    return found._replace(lm_head=0) if run.task in ("classification", "reward") else found


def _upcasts(run: Run) -> bool:
    """Whether prepare_model_for_kbit_training makes what is not quantized fp32; PEFT leaves GPTQ models as they are."""
    return bool(run.kbit_prepare) and not (run.quantization or "").startswith("gptq")


def _linear_bytes(run: Run, residual: int, autocast: bool) -> int:
    """What a linear layer puts out. Autocast makes it 16-bit; bitsandbytes gives back the dtype it was given."""
    if autocast and not (run.quantization not in (None, "none") and residual == 4):
        return 2
    return residual


def _trained_bytes(run: Run, loaded: int) -> tuple[int, int, bool]:
    """Bytes of a trained number and of its gradient, and whether there is an fp32 master copy beside.

    Not said: full training trains the weights as loaded; adapters are fp32 since PEFT 0.12 (autocast_adapter_dtype) and
    before 0.6, of the model's dtype between; DeepSpeed with mixed precision keeps an fp32 master.
    """
    said = run.trainable_dtype
    if said is None and run.parallelism in ZERO and run.mixed_precision not in (None, "no"):
        said = "float32-master"
    if said == "float32-master":
        return 2, 2, True
    if said is not None:
        size = int(BYTES[said])
    elif run.method == "lora":
        size = loaded if _PEFT_TAKES_DTYPE <= version(run.versions, "peft") < _PEFT_UPCASTS else 4
    else:
        size = loaded
    return size, size, False
