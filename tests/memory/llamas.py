"""Architectures for the tests, built by hand from the models' published config.json."""

from __future__ import annotations

from oomdoctor.case import Architecture, Linear


def llama(sizes: str, *, tied: bool = False, bias: bool = False, d: int = 0) -> Architecture:
    """A Llama-like model. sizes: hidden, layers, heads, key heads, intermediate, vocabulary.

    bias: queries, keys and values have one (Qwen2). d: head dimension where it is not hidden / heads.
    """
    h, layers, heads, kv, f, vocab = map(int, sizes.split())
    d = d or h // heads
    shapes = [
        ("q_proj", "q", h, heads * d, "attn_in"),
        ("k_proj", "k", h, kv * d, "attn_in"),
        ("v_proj", "v", h, kv * d, "attn_in"),
        ("o_proj", "o", heads * d, h, "attn_out"),
        ("gate_proj", "gate", h, f, "mlp_in"),
        ("up_proj", "up", h, f, "mlp_in"),
        ("down_proj", "down", f, h, "mlp_mid"),
    ]
    linears = tuple(
        Linear(name, i, o, reads, short=short, bias=bias and short in "qkv") for name, short, i, o, reads in shapes
    )
    return Architecture(
        model_type="llama",
        hidden_size=h,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=d,
        intermediate_size=f,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        linears=linears,
        decoder_layer="LlamaDecoderLayer",
    )


LLAMA2_7B = llama("4096 32 32 32 11008 32000")
LLAMA31_8B = llama("4096 32 32 8 14336 128256")
MISTRAL_7B = llama("4096 32 32 8 14336 32000")._replace(model_type="mistral", sliding_window=4096)
QWEN25_05B = llama("896 24 14 2 4864 151936", tied=True, bias=True)
QWEN25_15B = llama("1536 28 12 2 8960 151936", tied=True, bias=True)
QWEN25_3B = llama("2048 36 16 2 11008 151936", tied=True, bias=True)
QWEN25_7B = llama("3584 28 28 4 18944 152064", bias=True)
PHI3_MINI = llama("3072 32 32 32 8192 32064")
GEMMA_7B = llama("3072 28 16 16 24576 256000", tied=True, d=256)._replace(norm="rmsnorm_fp32")
