"""The nouns: Fact, Run, Architecture, Machine, Crash, Case. Data only; everything else stands on this."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

# What an empty mapping defaults to: one for all, and nobody can write to it.
EMPTY: Mapping[str, Any] = MappingProxyType({})

Scalar = str | int | float | bool
Value = Scalar | tuple[str, ...]


class Text(NamedTuple):
    """Words for a person, not yet in a language: a path into the knowledge (`texts/diagnosis/foreign/title`) whose
    entry is `{en, zh}`, and the values of its placeholders. `oomdoctor.texts.render` turns it into a sentence."""

    path: str
    values: Mapping[str, Any] = EMPTY


class UserError(Exception):
    """Input that cannot be used. The program prints one sentence and ends with the exit code.

    reference: what it is about (`train.log`, `card.yaml:7`, an option). message, hint: what is wrong, what to do.
    """

    def __init__(self, reference: str, message: Text, hint: Text | None = None, exit_code: int = 2) -> None:
        super().__init__(message.path)
        self.reference, self.message, self.hint, self.exit_code = reference, message, hint, exit_code


# Which source wins where two disagree: the first of this list. A source is `kind` or `kind:where`.
SOURCES = ("answer", "set", "run", "config", "log", "nvml", "environment", "catalogue", "assumed")


class Fact(NamedTuple):
    """One known value of the case.

    key: a run-card key (`max_length`, `lora.r`, `gpus.name`); see `oomdoctor.fields`.
    source: `answer`, `set`, `run:card.yaml:7`, `config:train.yaml:7`, `log:132`, `nvml`, `environment` (that
    of oomdoctor itself), `catalogue`, `assumed`.
    reason: why it is so, where that is not plain from the source (the log line, the inference, the default).
    """

    key: str
    value: Value
    source: str
    reason: Text | str | None = None

    @property
    def rank(self) -> int:
        """The place of its source in SOURCES; smaller wins."""
        return SOURCES.index(self.source.partition(":")[0])

    @property
    def assumed(self) -> bool:
        return self.source == "assumed"


class Unread(NamedTuple):
    """A setting of a config that is not understood. source: `config:train.yaml:7`; why: the reason in words."""

    key: str
    source: str
    why: Text


class Facts(NamedTuple):
    """All facts of a case: for each key the one that wins, and those that lost against it."""

    won: Mapping[str, Fact] = EMPTY
    lost: tuple[Fact, ...] = ()

    def add(self, new: Iterable[Fact]) -> "Facts":
        """These facts and the new ones. The better source wins; of two equal ones, the later fact."""
        won, lost = dict(self.won), list(self.lost)
        for fact in new:
            old = won.get(fact.key)
            if old is None or fact.rank <= old.rank:
                won[fact.key] = fact
                if old is not None and old.value != fact.value and not old.assumed:
                    lost.append(old)
            elif fact.value != old.value and not fact.assumed:
                lost.append(fact)
        return Facts(won, tuple(lost))

    def get(self, key: str, default: Any = None) -> Any:
        """The value that won, or the default."""
        fact = self.won.get(key)
        return default if fact is None else fact.value

    def values(self) -> dict[str, Value]:
        """The flat mapping of key to value that conditions and changes work on."""
        return {key: fact.value for key, fact in self.won.items()}


class Linear(NamedTuple):
    """One kind of linear layer of a transformer block: its module name, features in and out, and what it reads.

    reads: `attn_in` (normalised block input), `attn_out`, `mlp_in`, `mlp_mid` (the activation's output); of attention
    to another stack `cross_in`, `cross_out` and `memory` (that stack's output). Layers that read the same thing share
    the saved input. count: how many of it in one block (experts); bias: it has one. fused: all of them are one
    parameter, and no layer; pieces: the layers that such a parameter was once made of.
    """

    name: str
    inputs: int
    outputs: int
    reads: str
    short: str = ""
    count: int = 1  # type: ignore[assignment]  # tuple.count is of no use here
    bias: bool = False
    fused: bool = False
    pieces: tuple[str, ...] = ()


class Latent(NamedTuple):
    """Attention whose keys and values come from a narrow vector of each token (DeepSeek's MLA); sizes of one token.

    query_rank: of the vector that queries come from, 0 where they come from the hidden state itself. kv_rank: of the
    other. values: of all heads' values. expanded: of keys and values as one layer puts them out.
    """

    query_rank: int
    kv_rank: int
    values: int
    expanded: int


class Stack(NamedTuple):
    """Blocks that run before the model's own: an encoder, a tower for images or sounds, blocks of another kind.

    role: encoder (as many tokens as the source text) | vision | audio (as many as `arch.tokens` for each image or
    sound) | blocks (the model's own tokens). arch: their shape, embeddings and last norm included, without vocabulary.
    projector: linear layers between them and the model, one after the other. merge: patches along each side of an image
    that become one token of it; pools: by their mean, which is then normalised, and not side by side. images: of a
    sample, where nobody says how many.
    """

    role: str
    arch: "Architecture"
    projector: tuple[Linear, ...] = ()
    merge: int = 1
    pools: bool = False
    images: int = 0


class Architecture(NamedTuple):
    """The shape of a transformer, from its config.json and its family's traits (rules/families).

    It is that of the stack that makes the output; those that run before it are in `stacks`.
    """

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool
    linears: tuple[Linear, ...]
    decoder_layer: str  # class name that FSDP wraps, such as LlamaDecoderLayer
    gated_mlp: bool = True
    # rmsnorm | rmsnorm_fp32 (its weight is applied in fp32, as in Gemma) | rmsnorm_t5 | layernorm | layernorm_steps
    # (written out in fp32, as in Cohere)
    norm: str = "rmsnorm"
    norms_per_layer: int = 2
    norm_bias: bool = False
    qk_norm: bool = False
    norms_read_alike: bool = False  # the norms of attention and MLP read the same stream (parallel residual)
    wide_qk_norm: bool = False  # of queries and keys over all heads at once, not over each
    rotary: bool = True
    learned_positions: int = 0  # rows of a position table
    sliding_window: int = 0  # tokens; 0 = none
    num_experts: int = 0
    num_experts_per_tok: int = 0
    experts_fused_since: int = 0  # major version of transformers that makes one parameter of all experts; 0 = none does
    adapts_experts: bool = True  # PEFT finds fused experts by the names that they had as layers
    gate_keeps: int = 3  # tensors as wide as the MLP that its gate keeps: gate, its activation, up
    embedding_size: int = 0  # columns of the embedding where they differ from hidden_size; 0 = hidden_size
    lm_head_bias: bool = False
    extra_parameters: int = 0  # parameters outside the blocks that no other field counts
    attention_dropout: float = 0.0  # share; a saved mask where it is above 0 in training
    hidden_dropout: float = 0.0
    mlp_dropout: bool = False  # the hidden dropout acts within the MLP as well
    soft_cap: bool = False  # attention logits are capped: fused kernels cannot be used
    sdpa: bool = True  # transformers has a fused kernel for it
    code_known: bool = True  # False: only the sizes are given, and the code may be anybody's
    hidden_act: str = ""  # as config.json names it; `gelu_new` is written out in steps, each of which is saved
    broadcast_keys: bool = False  # one head of keys serves all of queries without being told to SDPA
    values_in_view: bool = True  # of a fused projection, all of which is kept with them
    softmax_fp32: bool = True  # eager attention takes its softmax in fp32, whatever the dtype it runs in
    softmax_keeps_dtype: bool = False  # not even autocast makes it fp32
    upcasts_logits: bool = True  # the model's own code computes the loss in fp32, whatever the dtype it runs in
    lora_targets: tuple[str, ...] = ()  # modules that PEFT adapts where no target is named; () = it must be named
    latent: Latent | None = None
    router_fp32: bool = False  # the router multiplies an fp32 copy of the hidden state
    position_bias: bool = False  # a learned bias for each pair of tokens is added to the attention scores
    own_biases: bool = False  # each block learns its own, and makes zeros for its attention to another stack
    relative_positions: int = 0  # near and far, that queries and keys are scored against as well (DeBERTa); 0 = none
    output_copied: bool = False  # queries are laid out head by head, so that attention's output is copied for its layer
    stem_widths: int = 0  # what convolutions before the blocks keep for each token, in hidden sizes
    end_dropouts: int = 0  # dropouts before the first block and behind the last one
    masked_by_images: bool = False  # tokens of an image attend to each other both ways, for which a mask is made
    tokens: int = 0  # of one image or sound, which the model sees in place of text; 0 = it reads text
    patch_size: int = 0  # pixels of a side; the image may have any size where `tokens` is 0
    class_tokens: int = 0  # among `tokens`, beside those of patches
    unused_blocks: int = 0  # at the end, whose output nobody reads
    stacks: tuple[Stack, ...] = ()

    @property
    def crosses(self) -> bool:
        """Its blocks attend to the output of a stack before them as well."""
        return any(linear.reads == "memory" for linear in self.linears)


class Lora(NamedTuple):
    """Adapter settings. target_modules: module names of the family, or ("all-linear",)."""

    r: int = 8
    target_modules: tuple[str, ...] = ()
    lora_dropout: float = 0.0
    modules_to_save: tuple[str, ...] = ()
    use_dora: bool = False
    use_rslora: bool = False  # changes the scale alone
    trainable_token_indices: tuple[str, ...] = ()  # rows of the table of words


class Run(NamedTuple):
    """How the training is set up: the run card, typed. None is unknown."""

    model: str | None = None
    task: str | None = None
    framework: str | None = None
    versions: Mapping[str, str] = EMPTY
    method: str | None = None  # full | lora | freeze
    lora: Lora | None = None
    torch_dtype: str | None = None  # dtype of the loaded weights
    trainable_dtype: str | None = None  # dtype of what the optimizer sees; float32-master = 16-bit copy + master
    mixed_precision: str | None = None
    quantization: str | None = None
    bnb_4bit_compute_dtype: str | None = None
    bnb_4bit_quant_storage: str | None = None  # under FSDP and ZeRO-3, uint8 cannot be divided
    kbit_prepare: bool | None = None
    optim: str | None = None
    optim_args: str | None = None  # such as rank=128,update_proj_gap=200
    optim_target_modules: tuple[str, ...] = ()
    optimizer_in_backward: bool | None = None  # each gradient is used up as soon as it is there
    per_device_train_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    max_length: int | None = None
    longest_sample: int | None = None  # tokens, before anything is cut
    images_per_sample: int | None = None
    max_source_length: int | None = None  # tokens that an encoder reads, where they are not as many as the decoder's
    padding: str | None = None
    packing: bool | None = None
    padding_free: bool | None = None  # the samples of a batch stand one after the other, without padding
    pad_to_multiple_of: int | None = None
    train_sampling_strategy: str | None = None
    auto_find_batch_size: bool | None = None
    max_pixels: int | None = None  # of one image, as the model's processor counts them
    freeze_vision_tower: bool | None = None  # towers for images and sounds are not trained
    gradient_checkpointing: str | None = None
    every_n_layers: int | None = None  # of the blocks, one in so many is checkpointed
    use_reentrant: bool | None = None  # the older kind of checkpointing
    activation_offloading: bool | None = None  # what is kept for backward waits in host memory
    tiled_mlp: bool | None = None  # the MLP of a block runs over a part of the tokens at a time
    use_cache: bool | None = None
    output_attentions: bool | None = None
    output_hidden_states: bool | None = None
    zero_grad_set_to_none: bool | None = None
    attn_implementation: str | None = None
    loss_kernel: str | None = None
    torch_compile: bool | None = None
    torch_compile_mode: str | None = None
    torch_empty_cache_steps: int | None = None
    ema: str | None = None  # an average of the trained weights: none | card | host
    do_eval: bool | None = None  # the run evaluates, between steps or at its end
    per_device_eval_batch_size: int | None = None
    eval_accumulation_steps: int | None = None
    prediction_loss_only: bool | None = None
    compute_metrics: bool | None = None
    preprocess_logits_for_metrics: bool | None = None
    batch_eval_metrics: bool | None = None
    eval_do_concat_batches: bool | None = None
    eval_samples: int | None = None  # in the whole evaluation set
    predict_with_generate: bool | None = None
    generation_max_length: int | None = None  # tokens of prompt and answer
    generation_num_beams: int | None = None
    reference_model: str | None = None
    value_model: str | None = None  # PPO's: none | head (on the policy) | full (a model of its own, trained as well)
    reward_model: str | None = None  # none | full: a frozen model of the policy's size on the same card
    num_generations: int | None = None
    max_completion_length: int | None = None
    steps_per_generation: int | None = None
    use_vllm: bool | None = None
    vllm_mode: str | None = None  # colocate: on the training card | server
    vllm_gpu_memory_utilization: float | None = None  # share of the card's whole memory
    vllm_enable_sleep_mode: bool | None = None
    parallelism: str | None = None
    fsdp_version: int | None = None
    fsdp_reshard_after_forward: bool | None = None  # false: blocks stay gathered from forward to backward
    fsdp_state_dict_type: str | None = None
    zero3_init_flag: bool | None = None  # the model is divided as it is made, not after
    resume_from_checkpoint: bool | None = None
    merge_and_unload: bool | None = None  # adapters are merged on the card at the end
    offload: str | None = None
    gradient_as_bucket_view: bool | None = None  # DDP: gradients are views of its buckets
    find_unused_parameters: bool | None = None
    reduce_bucket_size: int | None = None  # ZeRO: numbers, not bytes
    stage3_max_live_parameters: int | None = None
    sync_each_batch: bool | None = None  # FSDP divides gradients after each micro-batch
    context_parallel_size: int | None = None  # cards that share one sequence
    host_ram_gib: float | None = None
    dataloader_num_workers: int | None = None
    dataloader_prefetch_factor: int | None = None
    dataloader_persistent_workers: bool | None = None
    dataloader_pin_memory: bool | None = None
    save_only_model: bool | None = None
    gpu_count: int | None = None
    gpu_name: str | None = None
    gpu_memory_mib: int | None = None  # what torch calls total
    compute_capability: float | None = None

    def images(self, arch: Architecture | None) -> int:
        """Images of a sample that a model which sees is given; as is usual for it, where nobody says."""
        usual = sum(stack.images for stack in arch.stacks) if arch else 0
        return usual if self.images_per_sample is None else self.images_per_sample

    @property
    def pixels(self) -> int:
        """Pixels of one image for a model that takes any size: the limit, which LLaMA-Factory sets to 768 x 768 and
        most scripts for Qwen-VL to 1280 of its tokens, where nobody says another."""
        return self.max_pixels or (768 * 768 if self.framework == "llamafactory" else 1280 * 28 * 28)


class Holder(NamedTuple):
    """A process that holds GPU memory, as NVML or a crash message names it.

    what: desktop | own (this user's leftover) | other | self (the crashed program) | sibling (another rank) | unknown.
    bytes is None where NVML gives no figure (WSL, permission). program: its kind, an id of rules/processes. script:
    what Python runs in it. started: seconds since 1970. parent: the process that started it.
    """

    pid: int
    bytes: int | None
    name: str | None = None
    what: str = "unknown"
    user: str | None = None
    program: str | None = None
    script: str | None = None
    started: float | None = None
    parent: int | None = None


class Gpu(NamedTuple):
    """One card. total_bytes: what NVML or the crash message calls total; free_bytes: as of now, or of the crash."""

    index: int  # type: ignore[assignment]  # tuple.index is of no use here
    name: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    reserved_bytes: int | None = None  # by the driver
    desktop_bytes: int | None = None
    compute_capability: float | None = None
    uuid: str | None = None
    mig: bool = False
    visible: bool = True  # under CUDA_VISIBLE_DEVICES
    cuda_index: int | None = None  # torch's number for it, None where it is hidden
    holders: tuple[Holder, ...] = ()
    trouble: Text | None = None


class Machine(NamedTuple):
    """What the run has. source: nvml where its cards were read just now, on this machine; else assumed."""

    gpus: tuple[Gpu, ...] = ()
    source: str = "assumed"
    host_ram_bytes: int | None = None
    shm_bytes: int | None = None
    driver: str | None = None
    notes: tuple[Text, ...] = ()
    os: str | None = None  # windows | wsl, where the card is Windows' own; else None

    @property
    def gpu(self) -> Gpu | None:
        """The card that the bill must fit: the smallest that the run sees."""
        seen = [gpu for gpu in self.gpus if gpu.visible and gpu.total_bytes]
        return min(seen, key=lambda gpu: gpu.total_bytes or 0) if seen else None


class Crash(NamedTuple):
    """What the log shows of the failure. Sizes in bytes; None is not in the log.

    kind, phase: one of KINDS and PHASES in `oomdoctor/remedies/keys.py`. confidence: high | medium | low.
    """

    kind: str
    phase: str = "unknown"
    confidence: str = "medium"
    fatal: bool = True
    outdated: bool = False  # the run has been changed since
    line: int | None = None
    text: str = ""  # the message that counts, cleaned
    requested_bytes: int | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_unallocated_bytes: int | None = None
    own_process_bytes: int | None = None
    allowed_bytes: int | None = None
    private_pool_bytes: int | None = None
    gpu_index: int | None = None
    other_processes: tuple[Holder, ...] = ()
    ranks_failed: int | None = None
    world_size: int | None = None
    step: int | None = None
    framework: str | None = None
    recovered: tuple[int, ...] = ()  # lines of failures that were survived
    frames: tuple[str, ...] = ()  # innermost last, `path:line in function`
    signature: str | None = None  # id in rules/signatures
    proof: Mapping[str, int] = EMPTY  # field -> the line that proves it


LATER = "later"  # the reason of a rule that is only passed over for now


class Refusal(NamedTuple):
    """A rule that the person rules out. why: one of `refusals.WHYS`."""

    rule: str
    why: str


# Where a dialogue about a case stands: nothing is known, facts are asked for, a plan is chosen, its steps are taken, no
# step is left.
STAGES = ("opening", "questions", "choice", "steps", "end")


class Case(NamedTuple):
    """One patient: what is known, what crashed, what it ran on, what was tried."""

    facts: Facts = Facts()
    crash: Crash | None = None
    machine: Machine = Machine()
    origin: str | None = None  # the log or card it started from
    tried: tuple[str, ...] = ()  # rule ids that were applied and did not help; the run has their settings now
    refused: tuple[Refusal, ...] = ()  # rules that are not to be applied; the run is as it was
    unknown_answers: tuple[str, ...] = ()  # keys the person does not know
    unread: tuple[Unread, ...] = ()  # of the configs given, what is not understood
    configs: tuple[tuple[str, str], ...] = ()  # path and kind of each config that was read
    given: tuple[str, ...] = ()  # the configs that were named, as `FILE` or `kind:FILE`
    logs: tuple["Case", ...] = ()  # where several logs of the run were given: each as it was read, this one's last
    stage: str = STAGES[0]
    taken: tuple[str, ...] = ()  # rule ids of the steps that were taken, in their order
    prefer: str | None = None  # whose plan is followed, once it was chosen

    def know(self, new: Iterable[Fact]) -> "Case":
        """The same case with more facts."""
        return self._replace(facts=self.facts.add(new))

    def refuse(self, new: Iterable[Refusal]) -> "Case":
        """The same case with more rules ruled out. The first reason of a rule stays, unless that was only for now."""
        whys: dict[str, str] = {}
        for each in (*self.refused, *new):
            if whys.get(each.rule, LATER) == LATER:
                whys[each.rule] = each.why
        return self._replace(refused=tuple(Refusal(rule, why) for rule, why in whys.items()))
