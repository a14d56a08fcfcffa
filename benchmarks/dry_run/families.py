"""The bill's formulas against the exact mode for families that are more than one stack of Llama-like blocks.

    python -m benchmarks.dry_run.families [word in a family's name ...]

Models of a few blocks at middling widths, with plain SGD, so that activations and logits make the peak. Prints for each
run the peak of allocated bytes, simulated and by formula, and the phase of each; the last line is the worst deviation.
Needs torch, transformers and peft.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.dry_run import against_formulas
from oomdoctor.case import Run
from oomdoctor.memory.bill import bill_of
from oomdoctor.sources.architecture import architecture_of
from oomdoctor.trace import quantized, run
from oomdoctor.trace.order import spec_of
from oomdoctor.trace.whole import Simulator
from oomdoctor.units import MIB

SHAPE = {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4}
T5 = {
    "is_encoder_decoder": True,
    "d_model": 1024,
    "d_kv": 64,
    "d_ff": 2816,
    "num_layers": 4,
    "num_decoder_layers": 4,
    "num_heads": 16,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
LATENT = {
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "intermediate_size": 2816,
    "moe_intermediate_size": 512,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "vocab_size": 32000,
}
TEXT = {**SHAPE, "num_attention_heads": 8, "intermediate_size": 2816, "vocab_size": 32064}
TOWER = {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 4, "num_attention_heads": 16}
QWEN_TOWER = {"depth": 4, "num_heads": 16, "patch_size": 14, "out_hidden_size": 1024}
BART = {
    "is_encoder_decoder": True,
    "d_model": 1024,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
}
MODELS: dict[str, dict[str, Any]] = {
    "mixtral": {
        "model_type": "mixtral",
        **SHAPE,
        "intermediate_size": 2048,
        "num_local_experts": 8,
        "sliding_window": None,
        "vocab_size": 32000,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe",
        **SHAPE,
        "head_dim": 128,
        "intermediate_size": 3072,
        "moe_intermediate_size": 512,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "vocab_size": 32000,
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        **SHAPE,
        "head_dim": 64,
        "intermediate_size": 1024,
        "num_local_experts": 8,
        "vocab_size": 32000,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3",
        **SHAPE,
        **LATENT,
        "q_lora_rank": 768,
        "num_key_value_heads": 16,
        "n_routed_experts": 16,
        "num_experts_per_tok": 4,
    },
    "deepseek_v2": {"model_type": "deepseek_v2", **SHAPE, **LATENT, "q_lora_rank": None, "num_key_value_heads": 16},
    "t5": {"model_type": "t5", **T5},
    "t5, relu": {
        "model_type": "t5",
        "is_encoder_decoder": True,
        "d_model": 1024,
        "d_kv": 64,
        "d_ff": 4096,
        "num_layers": 4,
        "num_heads": 16,
        "vocab_size": 32128,
    },
    "umt5": {"model_type": "umt5", **T5},
    "deberta": {
        "model_type": "deberta-v2",
        **TEXT,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "relative_attention": True,
        "position_buckets": 256,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "bart": {"model_type": "bart", "encoder_layers": 4, "decoder_layers": 4, "vocab_size": 50265, **BART},
    "mbart": {"model_type": "mbart", "encoder_layers": 4, "decoder_layers": 4, "vocab_size": 50265, **BART},
    "nllb": {"model_type": "m2m_100", "encoder_layers": 4, "decoder_layers": 4, "vocab_size": 64000, **BART},
    "whisper": {"model_type": "whisper", "encoder_layers": 4, "decoder_layers": 4, "vocab_size": 51866, **BART},
    "vit": {"model_type": "vit", **TOWER, "image_size": 384, "patch_size": 16, "num_labels": 1000},
    "llava": {
        "model_type": "llava",
        "text_config": {"model_type": "llama", **TEXT},
        "vision_config": {"model_type": "clip_vision_model", **TOWER, "image_size": 336, "patch_size": 14},
        "vision_feature_layer": -2,
        "image_token_index": 32000,
    },
    "paligemma": {
        "model_type": "paligemma",
        "text_config": {"model_type": "gemma", **TEXT, "num_key_value_heads": 1, "head_dim": 256},
        "vision_config": {"model_type": "siglip_vision_model", **TOWER, "patch_size": 14, "vision_use_head": False},
        "projection_dim": 1024,
    },
    "gemma3": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", **TEXT, "head_dim": 256},
        "vision_config": {
            "model_type": "siglip_vision_model",
            **TOWER,
            "image_size": 896,
            "patch_size": 14,
            "vision_use_head": False,
        },
        "mm_tokens_per_image": 256,
    },
    "qwen2_vl": {
        "model_type": "qwen2_vl",
        "text_config": {"model_type": "qwen2_vl_text", **TEXT},
        "vision_config": {"model_type": "qwen2_vl", **QWEN_TOWER, "embed_dim": 1280, "hidden_size": 1024},
    },
    "qwen2_5_vl": {
        "model_type": "qwen2_5_vl",
        "text_config": {"model_type": "qwen2_5_vl_text", **TEXT},
        "vision_config": {
            "model_type": "qwen2_5_vl",
            **QWEN_TOWER,
            "hidden_size": 1280,
            "fullatt_block_indexes": [1, 3],
        },
    },
    "qwen3_vl": {
        "model_type": "qwen3_vl",
        "text_config": {"model_type": "qwen3_vl_text", **TEXT, "head_dim": 128},
        "vision_config": {
            **{**TOWER, **QWEN_TOWER},
            "model_type": "qwen3_vl",
            "patch_size": 16,
            "deepstack_visual_indexes": [1, 2, 3],
        },
    },
}
PLAIN = against_formulas.PLAIN._replace(
    optim="sgd", per_device_train_batch_size=2, max_pixels=448 * 448, images_per_sample=1
)
LORA = PLAIN._replace(method="lora", lora=against_formulas.ALL_LINEAR)
SETTINGS: dict[str, Run] = {
    "full": PLAIN,
    "full, checkpointing": PLAIN._replace(gradient_checkpointing="full"),
    "lora": LORA,
    "lora, checkpointing": LORA._replace(gradient_checkpointing="full"),
}


class Pair(NamedTuple):
    """One run: bytes of the peak and its phase, simulated and by formula."""

    family: str
    setting: str
    simulated: int
    phase: str
    formula: int
    formula_phase: str

    @property
    def off(self) -> float:
        """The formula's deviation, as a share."""
        return self.formula / self.simulated - 1


def pairs(simulator: Simulator, families: list[str]) -> Iterator[Pair]:
    """Each family in each setting. Raises NotSimulated."""
    for family in families:
        config = MODELS[family]
        arch = architecture_of(config)
        for setting, made in SETTINGS.items():
            found, bill = simulator.simulate(spec_of(made, config, arch)), bill_of(made, arch)
            yield Pair(family, setting, found.peak.bytes, found.peak.phase, bill.allocated.likely, bill.phase)


def main() -> None:
    warnings.filterwarnings("ignore")
    run.leave_out()
    quantized.install()
    words = sys.argv[1:] or [""]
    families = [family for family in MODELS if any(word in family for word in words)]
    worst = 0.0
    for each in pairs(Simulator(), families):
        worst = max(worst, each.off, key=abs)
        sizes = f"{each.simulated / MIB:9.1f} MiB, by formula {each.formula / MIB:9.1f} ({each.off:+6.2%})"
        phases = each.phase if each.phase == each.formula_phase else f"{each.phase}, by formula {each.formula_phase}"
        print(f"{each.family:14} {each.setting:22} {sizes} {phases}", flush=True)
    print(f"worst {worst:+.2%}")


if __name__ == "__main__":
    main()
