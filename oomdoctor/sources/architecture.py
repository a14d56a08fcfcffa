"""A config.json (or part of one) -> the shape of the model. What the blocks of a family hold is in rules/families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oomdoctor import knowledge
from oomdoctor.case import Architecture, Latent, Linear, Stack, Text, UserError

LARGEST = 10**10  # of any size in a config; a larger one is a mistake, or meant to exhaust the program
_ESSENTIAL = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
# A gated MLP is 8/3 (Llama) to 3.5 (Llama 3) times as wide as the hidden size. Qwen 1 counts both of its matrices, and
# so gives 5.35 to 6 in its config.json; below this border the figure is the width of one matrix already.
_TWO_MATRICES = 4.5


def architecture_of(
    config: Mapping[str, Any], label: str | None = None, reference: str = "architecture"
) -> Architecture:
    """The architecture that a config.json describes; a multimodal one counts with its text model only.

    Names of other families (n_embd, ffn_hidden_size, ...) are understood. Without a known `model_type` the family comes
    from `label` (a model's name), else from keys that one family alone uses, else it is taken as Llama-like; see
    `family_of`. Raises UserError where essential keys are missing, a value is no size, or the model is an
    encoder-decoder.
    """
    text = text_part(config)
    _refuse_stepwise(config, reference)
    family = knowledge.lookup(f"families/{family_of(text, label) or 'llama'}")
    if text.get("is_encoder_decoder") is True and "stacks" not in family:
        raise UserError(reference, Text("texts/model.encoder_decoder"), Text("texts/model.encoder_decoder_hint"))
    found = Reader(text, family, reference).architecture()
    if "model_type" not in config:
        return found
    from oomdoctor.sources import composite

    return composite.with_tower(found, config, reference)


def _refuse_stepwise(config: Mapping[str, Any], reference: str) -> None:
    """Raises UserError for a model that no formula describes, and says how it is priced."""
    known = knowledge.lookup("architecture/stepwise")
    model_type, name = config.get("model_type"), config.get("_class_name")
    if model_type in known["model_types"] or name in known["classes"]:
        kind = str(name if name in known["classes"] else model_type)
        raise UserError(reference, Text("texts/model.stepwise", {"kind": kind}), Text("texts/model.stepwise_hint"))


def family_of(config: Mapping[str, Any], label: str | None = None) -> str | None:
    """The id in rules/families that fits a config: by model_type, by the model's name, by a telling key; or None."""
    families, model_type = knowledge.load("families"), text_part(config).get("model_type")
    if model_type is not None:
        return _by_model_type(families, str(model_type))
    return family_of_name(label or "") or _by_mark(families, config)


def family_of_name(name: str) -> str | None:
    """The family whose word stands in a model's name; the longest word wins (`qwen3-30b-a3b` before `qwen3`)."""
    found = [
        (len(word), family_id)
        for family_id, family in knowledge.load("families").items()
        for word in family["words"]
        if _holds(name.lower(), word)
    ]
    return max(found)[1] if found else None


def _holds(name: str, word: str) -> bool:
    """Whether the word stands in the name, and not inside another word (`opt-` is not in `adopt-`)."""
    place = name.find(word)
    return place == 0 or (place > 0 and not name[place - 1].isalnum())


def _by_model_type(families: Mapping[str, Any], model_type: str) -> str | None:
    if model_type in families:
        return model_type
    return next((name for name, family in families.items() if model_type in family.get("also", ())), None)


def _by_mark(families: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    return next(
        (name for name, family in families.items() if any(mark in config for mark in family.get("marks", ()))), None
    )


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config of the language model inside a multimodal one, with the outer model_type where it has none."""
    for key in ("text_config", "llm_config", "language_config"):
        inner = config.get(key)
        if isinstance(inner, Mapping):
            outer = {name: config[name] for name in ("model_type", "tie_word_embeddings") if name in config}
            return {**outer, **inner}
    return config


class Reader:
    """One config in the light of one family."""

    def __init__(self, config: Mapping[str, Any], family: Mapping[str, Any], reference: str) -> None:
        self.reference = reference
        self.given = config
        given = canonical(config, family)
        self.family = _variant(family, {**family.get("defaults", {}), **given})
        self.config = {**self.family.get("defaults", {}), **given}

    def architecture(self) -> Architecture:
        missing = [key for key in self._essential() if self.config.get(key) is None]
        if missing:
            raise UserError(self.reference, Text("texts/model.missing_keys", {"keys": missing}))
        dims = self._dims()
        family = self.family
        return Architecture(
            model_type=str(self.config.get("model_type") or "llama"),
            hidden_size=dims["hidden"],
            num_hidden_layers=self._layers(),
            num_attention_heads=self._size("num_attention_heads"),
            num_key_value_heads=self._kv_heads(),
            head_dim=self._head_dim(),
            intermediate_size=dims["expert_ffn"] if dims["experts"] else dims["ffn"],
            vocab_size=self._size("vocab_size") if family.get("vocabulary", True) else 0,
            tie_word_embeddings=_truth(self.config.get("tie_word_embeddings")),
            linears=self._linears(family["linears"], dims),
            decoder_layer=family["decoder_layer"],
            gated_mlp=family["gated"],
            norm=family["norm"],
            norms_per_layer=family.get("norms_per_layer", 2),
            norm_bias=family.get("norm_bias", False),
            qk_norm=family.get("qk_norm", False),
            norms_read_alike=family.get("norms_read_alike", False),
            wide_qk_norm=family.get("wide_qk_norm", False),
            rotary=family.get("rotary", True),
            learned_positions=self._positions(),
            sliding_window=self._window(),
            num_experts=dims["experts"],
            num_experts_per_tok=self._size("num_experts_per_tok", 0) if dims["experts"] else 0,
            experts_fused_since=family.get("experts_fused_since", 0),
            adapts_experts=family.get("adapts_experts", True),
            gate_keeps=family.get("gate_keeps", 3),
            embedding_size=self._embedding_size(dims["hidden"]),
            lm_head_bias=family.get("lm_head_bias", False),
            extra_parameters=self._extra(dims),
            attention_dropout=self._share("attention_dropout"),
            hidden_dropout=self._share("hidden_dropout"),
            soft_cap=bool(self.config.get("attn_logit_softcapping")),
            sdpa=family.get("sdpa", True),
            hidden_act=str(self.config.get("hidden_act") or self.config.get("activation_function") or ""),
            broadcast_keys=family.get("broadcast_keys", False),
            values_in_view=family.get("values_in_view", True),
            softmax_fp32=family.get("softmax_fp32", True),
            softmax_keeps_dtype=family.get("softmax_keeps_dtype", False),
            upcasts_logits=family.get("upcasts_logits", True),
            lora_targets=tuple(family["lora_targets"]),
            latent=self._latent(),
            router_fp32=family.get("router_fp32", False),
            position_bias=family.get("position_bias", False),
            own_biases=family.get("own_biases", False),
            relative_positions=self._relative_positions(),
            mlp_dropout=family.get("mlp_dropout", False),
            end_dropouts=family.get("end_dropouts", 0),
            output_copied=family.get("output_copied", False),
            stem_widths=family.get("stem_widths", 0),
            tokens=self._tokens(),
            patch_size=self._size("patch_size", 0) if "sees" in family else 0,
            class_tokens=family.get("sees", {}).get("class_tokens", 0),
            stacks=tuple(self._stack(entry) for entry in family.get("stacks", ()) if self._has(entry)),
        )

    def _layers(self) -> int:
        """Blocks of the model's own kind, without the first ones of another."""
        first = sum(self._first(entry) for entry in self.family.get("stacks", ()))
        return max(1, self._size("num_hidden_layers") - first)

    def _first(self, entry: Mapping[str, Any]) -> int:
        """How many of the first blocks are of another kind."""
        found = self.config.get(entry.get("first", ""))
        return min(found, self._size("num_hidden_layers") - 1) if isinstance(found, int) and found > 0 else 0

    def _has(self, entry: Mapping[str, Any]) -> bool:
        return "first" not in entry or self._first(entry) > 0

    def _latent(self) -> Latent | None:
        if not self.family.get("latent"):
            return None
        heads, values = self._size("num_attention_heads"), self._size("v_head_dim")
        return Latent(
            query_rank=self._size("q_lora_rank", 0),
            kv_rank=self._size("kv_lora_rank"),
            values=heads * values,
            expanded=heads * (self._size("qk_nope_head_dim") + values),
        )

    def _shared_ffn(self, ffn: int) -> int:
        """The width of the experts that every token goes through."""
        expert = self._size("moe_intermediate_size", ffn)
        return self._size("shared_expert_intermediate_size", self._size("n_shared_experts", 0) * expert)

    def _labels(self) -> int:
        """Classes of a head with a bias; two where nobody says, as transformers has it."""
        named = self.config.get("id2label")
        return len(named) if isinstance(named, Mapping) and named else self._size("num_labels", 2)

    def _patch(self) -> int:
        """Numbers of a patch of an image: pixels of all channels, of as many frames as are taken together."""
        side = self._size("patch_size", 0) if "sees" in self.family else 0
        return self._size("num_channels", 3) * self._size("temporal_patch_size", 1) * side**2

    def _tokens(self) -> int:
        """Of one image or sound, where the blocks see that in place of text."""
        sees = self.family.get("sees")
        if sees and not sees.get("any_size"):
            return int((self._size("image_size") // self._size("patch_size")) ** 2 + sees["class_tokens"])
        return self._size("max_source_positions", 1500) if self.family.get("hears") else 0

    def _stack(self, entry: Mapping[str, Any]) -> Stack:
        """A stack that the same config describes."""
        family = knowledge.lookup(f"families/{entry['family']}")
        given = {**self.family.get("defaults", {}), **self.given}
        if "first" in entry:
            given["num_hidden_layers"] = self._first(entry)
        return Stack(entry["role"], Reader(given, family, self.reference).architecture())

    def _linears(self, entries: Sequence[Mapping[str, Any]], dims: Mapping[str, int]) -> tuple[Linear, ...]:
        return tuple(self._linear(entry, dims) for entry in entries)

    def _essential(self) -> tuple[str, ...]:
        if not self.family.get("vocabulary", True):
            return _ESSENTIAL[:-1]
        if "ffn_factor" in self.family or self.config.get("moe_intermediate_size") is not None:
            return _ESSENTIAL
        return (*_ESSENTIAL, "intermediate_size")

    def _dims(self) -> dict[str, int]:
        """The named sizes that rules/families builds its linear layers of."""
        hidden, head_dim = self._size("hidden_size"), self._head_dim()
        heads, layers, ffn = self._size("num_attention_heads"), self._layers(), self._ffn(hidden)
        latent = self._latent() or Latent(0, 0, 0, 0)
        q, kv = heads * head_dim, self._kv_heads() * head_dim
        return {
            "one": 1,
            "hidden": hidden,
            "hidden_squared": hidden * hidden,
            "q": q,
            "kv": kv,
            "qkv": q + 2 * kv,
            "ffn": ffn,
            "two_ffn": 2 * ffn,
            "experts": self._size("num_experts", 0) if self._has_experts() else 0,
            "expert_ffn": self._size("moe_intermediate_size", ffn),
            "shared_ffn": self._shared_ffn(ffn),
            "two_expert_ffn": 2 * self._size("moe_intermediate_size", ffn),
            "q_rank": latent.query_rank,
            "kv_rank": latent.kv_rank,
            "kv_narrow": latent.kv_rank + self._size("qk_rope_head_dim", 0),
            "kv_expanded": latent.expanded,
            "values": latent.values,
            "layers_ranks": layers * (latent.query_rank + latent.kv_rank),
            "layers_heads": layers * heads,
            "patch": hidden * self._patch(),
            "positions": hidden * self._tokens(),
            "head": self._labels() * (hidden + 1) if not self.family.get("vocabulary", True) else 0,
            "position_table": hidden * self._size("num_position_embeddings", 0),
            "mel_convolution": hidden * self._size("num_mel_bins", 80),
            "buckets_heads": heads * self._size("relative_attention_num_buckets", 32),
            "layers_buckets_heads": layers * heads * self._size("relative_attention_num_buckets", 32),
            "layers_q_kv": layers * (q + kv),
            "distances": hidden * self._relative_positions(),
        }

    def _linear(self, entry: Mapping[str, Any], dims: Mapping[str, int]) -> Linear:
        bias = entry.get("bias", False)
        return Linear(
            name=entry["name"],
            inputs=dims[entry["inputs"]],
            outputs=dims[entry["outputs"]],
            reads=entry["reads"],
            short=entry.get("short", ""),
            count=dims[entry.get("count", "one")],
            bias=bias if isinstance(bias, bool) else _truth(self.config.get(bias)),
        )

    def _has_experts(self) -> bool:
        return any(entry.get("count") == "experts" for entry in self.family["linears"])

    def _ffn(self, hidden: int) -> int:
        """The width of one of the MLP's matrices."""
        if self.config.get("intermediate_size") is None:
            factor = self._size("expansion_ratio", self.family.get("ffn_factor", 0))
            return factor * hidden if factor else self._size("moe_intermediate_size")
        width = self._size("intermediate_size")
        if self.family.get("intermediate_counts_two") and width > _TWO_MATRICES * hidden:
            return width // 2
        return width

    def _head_dim(self) -> int:
        if self.family.get("latent"):
            return self._size("qk_nope_head_dim") + self._size("qk_rope_head_dim")
        return self._size("head_dim", self._size("hidden_size") // self._size("num_attention_heads"))

    def _kv_heads(self) -> int:
        """One where `multi_query` says so, unless a number of groups is given (Falcon's new decoder, ChatGLM).

        Falcon-7B's config class fills in as many as there are attention heads; that is no number of groups.
        """
        heads = self._size("num_attention_heads")
        groups = self._size("num_key_value_heads", heads)
        new_decoder = _truth(self.config.get("new_decoder_architecture"))
        if _truth(self.config.get("multi_query")) and not new_decoder and groups == heads:
            return 1
        return groups

    def _positions(self) -> int:
        rule = self.family.get("learned_positions")
        return self._size("max_position_embeddings", rule["default"]) + int(rule["plus"]) if rule else 0

    def _relative_positions(self) -> int:
        """Rows of the table of distances, in both directions; config classes say -1 where a figure is not set."""
        if not self.family.get("disentangled"):
            return 0
        given = (self.config.get(key) for key in ("position_buckets", "max_relative_positions"))
        return 2 * next((size for size in given if isinstance(size, int) and 0 < size <= LARGEST), self._table())

    def _table(self) -> int:
        return self._size("max_position_embeddings", 512)

    def _window(self) -> int:
        switch = self.family.get("window_only_if")
        if switch and not _truth(self.config.get(switch)):
            return 0
        return self._size("sliding_window", 0)

    def _embedding_size(self, hidden: int) -> int:
        width = self._size("embedding_size", hidden)
        return 0 if width == hidden else width

    def _extra(self, dims: Mapping[str, int]) -> int:
        projections = 2 * self._embedding_size(dims["hidden"]) * dims["hidden"]  # into and out of a narrow embedding
        extra: Mapping[str, int] = self.family.get("extra", {})
        other = self._size("extra_parameters", 0)  # the catalogue's own key: a vision tower, say
        return projections + other + sum(factor * dims[name] for name, factor in extra.items())

    def _size(self, key: str, default: int | None = None) -> int:
        """A whole number from 1 to LARGEST; the default where the config has none (or null). Raises UserError."""
        value = self.config.get(key)
        if value is None and default is not None:
            return default
        if type(value) is int and 1 <= value <= LARGEST:
            return value
        number = _number(value)
        if number is None or number != int(number) or not 1 <= number <= LARGEST:
            raise self._bad(key, value)
        return int(number)

    def _share(self, key: str) -> float:
        """A number from 0 to 1, 0 where the config has none. Raises UserError."""
        value = self.config.get(key)
        number = 0.0 if value is None else _number(value)
        if number is None or not 0 <= number <= 1:
            raise self._bad(key, value)
        return number

    def _bad(self, key: str, value: Any) -> UserError:
        return UserError(self.reference, Text("texts/model.bad_value", {"key": key, "value": str(value)[:80]}))


def _variant(family: Mapping[str, Any], config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The family, changed by those of its variants whose keys have the values named."""
    changed = dict(family)
    for variant in family.get("variants", ()):
        if all(config.get(key) == value for key, value in variant["when"].items()):
            changed.update(variant["set"])
    return changed


def canonical(config: Mapping[str, Any], family: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The config under Llama's key names (and the family's own).

    null is kept: it says that there is none, where an absent key says nothing.
    """
    found = dict(config)
    own = family.get("synonyms", {}) if family else {}
    for key, names in {**knowledge.lookup("architecture/keys"), **own}.items():
        if isinstance(names, list) and not config.keys().isdisjoint(names):
            found[key] = next((config[name] for name in names if config.get(name) is not None), None)
    return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= LARGEST else None


def _truth(value: Any) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in ("true", "yes", "on"))
