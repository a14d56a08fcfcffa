"""Stacks before the model's own: how many tokens each reads, what is trained, what is held. Known answers by hand."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoctor import inputs
from oomdoctor.case import Fact, Facts, Run
from oomdoctor.memory.activations import saved_by_block
from oomdoctor.memory.bill import bill_of, needed
from oomdoctor.memory.job import Job
from oomdoctor.memory.trained import trainable_parameters
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.sources.model import find_model
from tests.memory.runs import full, lora

TOWER = 303_507_456  # CLIP ViT-L/14 at 336 pixels


def job(name: str, run: Run) -> Job:
    return needed(run, architecture_of(find_model(name).config))


@pytest.mark.parametrize(
    ("name", "changes", "batch", "length"),
    [
        ("llava-1.5-7b-hf", {}, 2, 577),  # 24 x 24 patches and a class token
        ("llava-1.5-7b-hf", {"images_per_sample": 3}, 6, 577),
        ("Qwen2-VL-7B", {"max_pixels": 448 * 448}, 2, 32 * 32),
        ("Qwen2-VL-7B", {"max_pixels": 450 * 450}, 2, 32 * 32),  # whole cells of 28 pixels
        ("gemma-3-4b-pt", {}, 0, 64 * 64),  # text, unless somebody says otherwise
        ("whisper-small", {}, 2, 1500),
        ("flan-t5-base", {"max_source_length": 300}, 2, 300),
        ("flan-t5-base", {}, 2, 2048),
    ],
)
def test_each_stack_reads_its_own_tokens(name: str, changes: dict[str, Any], batch: int, length: int) -> None:
    (stack,) = job(name, full(per_device_train_batch_size=2, **changes)).stacks
    assert (stack.batch, stack.length) == (batch, length)


def test_a_decoder_has_no_positions_beyond_its_table() -> None:
    assert job("whisper-small", full(max_length=2048)).length == 448


def test_images_count_among_the_tokens_of_the_text() -> None:
    assert job("llava-1.5-7b-hf", full(max_length=2048)).length == 2048
    assert job("llava-1.5-7b-hf", full(max_length=100, images_per_sample=2)).length == 2 * 576


def test_a_frozen_tower_is_not_trained_and_keeps_nothing() -> None:
    trained = job("llava-1.5-7b-hf", full())
    frozen = job("llava-1.5-7b-hf", full(freeze_vision_tower=True))
    assert trainable_parameters(trained) - trainable_parameters(frozen) == TOWER
    arch = architecture_of(find_model("llava-1.5-7b-hf").config)
    held = [bill_of(full(freeze_vision_tower=on), arch).phases for on in (False, True)]
    forward = [next(phase.total.likely for phase in phases if phase.phase == "forward") for phases in held]
    assert forward[0] > forward[1]


def test_llamafactory_freezes_towers() -> None:
    patterns = {"targets": ("all-linear",), "framework": "llamafactory"}
    assert job("Qwen2-VL-7B", lora(**patterns)).stacks[0].frozen
    assert not job("Qwen2-VL-7B", lora(**patterns, freeze_vision_tower=False)).stacks[0].frozen


def test_names_of_the_language_model_alone_leave_the_tower_frozen() -> None:
    assert job("Qwen2-VL-7B", lora(targets=("q_proj", "v_proj"))).stacks[0].frozen  # the tower has qkv
    assert not job("llava-1.5-7b-hf", lora(targets=("q_proj", "v_proj"))).stacks[0].frozen  # CLIP's are called so too


def test_what_is_assumed_of_images_is_said() -> None:
    arch = architecture_of(find_model("Qwen2-VL-7B").config)
    said = {note.path.rpartition(".")[2] for note in inputs.notes(Facts(), arch)}
    assert said == {"images_assumed", "pixels_assumed"}
    told = Facts().add([Fact("images_per_sample", 1, "set"), Fact("max_pixels", 602112, "set")])
    assert not list(inputs.notes(told, arch))


def test_t5_drops_out_its_attention_weights_as_well() -> None:
    """T5Attention does, by dropout_rate: eager keeps what is left (4 bytes) and the mask (1 byte) of each
    pair of tokens, in 12 blocks of the encoder and 24 attentions of the decoder, each of 12 heads."""
    arch = architecture_of(find_model("flan-t5-base").config)
    (encoder,) = arch.stacks
    plain = encoder._replace(arch=encoder.arch._replace(attention_dropout=0.0))
    run = full(torch_dtype="float32", attn_implementation="eager", max_length=512, max_source_length=512)
    kept = []
    for shape in (arch, arch._replace(attention_dropout=0.0, stacks=(plain,))):
        loss = next(phase for phase in bill_of(run, shape).phases if phase.phase == "loss")
        kept.append(next(line.size.likely for line in loss.lines if line.key == "activations"))
    assert kept[0] - kept[1] == 36 * 12 * 512 * 512 * 5


def test_each_block_of_umt5_has_biases_of_its_own() -> None:
    """Where T5 keeps one bias of all pairs and heads for all blocks, umT5 learns one in each, whose buckets are kept
    (8 B a pair), and makes zeros in each for the encoder's tokens (2 B a pair and head)."""
    config = {"is_encoder_decoder": True, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_heads": 8,
              "vocab_size": 32128, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}  # fmt: skip
    run = full(max_length=256)
    ours, theirs = (needed(run, architecture_of({"model_type": name, **config})) for name in ("umt5", "mt5"))
    assert ours.counts.total - theirs.counts.total == 2 * 7 * 8 * 32  # of both stacks: 7 more tables of 32 buckets
    assert saved_by_block(ours).crossed - saved_by_block(theirs).crossed == 256 * 256 * (8 + 2 * 8)
    assert saved_by_block(ours.stacks[0]).crossed - saved_by_block(theirs.stacks[0]).crossed == 256 * 256 * 8
