"""How long the samples of a data set are: files of every kind, odd input, what the plan makes of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from oomdoctor import commands
from oomdoctor.case import UserError
from oomdoctor.lengths import Distribution, card_settings, cut, histogram, quantile, share_longer
from oomdoctor.remedies.changes import halve
from oomdoctor.sources.dataset import read_lengths

# 100 samples: 90 of 10 tokens, 8 of 100, 2 of 1000.
HUNDRED = Distribution({10: 90, 100: 8, 1000: 2})


def test_quantiles_are_the_nearest_ranks() -> None:
    assert [quantile(HUNDRED, percent) for percent in (50, 90, 91, 98, 99, 100)] == [10, 10, 100, 100, 1000, 1000]


def test_a_limit_cuts_what_is_longer() -> None:
    found = cut(HUNDRED, 60)
    assert found.samples == 0.10
    # 8 samples lose 40 tokens each, 2 lose 940; there are 900 + 800 + 2000 tokens.
    assert found.tokens == pytest.approx((8 * 40 + 2 * 940) / 3700)


def test_the_bars_hold_every_sample_once() -> None:
    bars = histogram(HUNDRED, 10)
    assert sum(count for _, _, count in bars) == 100
    assert bars[0][2] == 98 and bars[-1] == (901, 1000, 2)


@pytest.mark.parametrize(
    ("limit", "share"),
    [(5, (0.5, 1.0)), (10, (0.0, 0.1)), (100, (0.01, 0.02)), (1000, (0.0, 0.0)), (5000, (0.0, 0.0))],
)
def test_quantiles_say_how_many_samples_a_limit_hits(limit: int, share: tuple[float, float]) -> None:
    settings = {"lengths.p50": 10, "lengths.p90": 10, "lengths.p98": 100, "lengths.p99": 1000, "lengths.max": 1000}
    low, high = share_longer(settings, limit) or (-1.0, -1.0)
    true = sum(count for length, count in HUNDRED.counts.items() if length > limit) / 100
    assert low <= true <= high
    if limit != 5:
        assert (low, high) == pytest.approx(share, abs=0.1)


def test_without_lengths_nothing_is_said() -> None:
    assert share_longer({"max_length": 512}, 256) is None


def _tokenizer(folder: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?")
    made = tokenizers.Tokenizer(words)
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.enable_truncation(2)  # which must not hide how long the samples are
    made.save(str(folder / "tokenizer.json"))
    return folder


RECORDS = [
    ({"text": "a b a"}, 3),
    ({"messages": [{"role": "user", "content": "a a"}, {"role": "assistant", "content": "b b b"}]}, 5),
    ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, 2),
    ({"instruction": "a", "input": "", "output": "b b b b"}, 5),
    ({"prompt": "a a", "completion": "b"}, 3),
    ({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a a a"}]}]}, 3),
    ({"input_ids": [5, 6, 7, 8], "labels": [1]}, 4),
    ({"length": 17}, 17),
]


@pytest.mark.parametrize(("record", "tokens"), RECORDS, ids=[next(iter(record)) for record, _ in RECORDS])
def test_samples_of_the_usual_shapes(record: dict[str, object], tokens: int, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps(record) + "\n\n")
    found = read_lengths(str(data), str(_tokenizer(tmp_path)))
    assert (found.counts, found.estimated) == ({tokens: 1}, False)


def test_tokens_that_are_counted_already_are_no_estimate(tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"input_ids": [1, 2, 3]}\n{"input_ids": [1]}\n')
    found = read_lengths(str(data))
    assert (found.counts, found.estimated) == ({3: 1, 1: 1}, False)


@pytest.mark.parametrize("kind", ["jsonl", "json", "txt", "jsonl.gz", "parquet"])
def test_files_of_every_kind(kind: str, tmp_path: Path) -> None:
    texts = ["a", "a b", "a b a"] * 200
    data = tmp_path / f"data.{kind}"
    if kind == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"text": texts}), data)
    elif kind == "json":
        data.write_text(json.dumps([{"text": text} for text in texts], indent=1))
    elif kind == "txt":
        data.write_text("\n".join(texts))
    else:
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        data.write_bytes(gzip.compress(lines) if kind.endswith("gz") else lines)
    found = read_lengths(str(data), str(_tokenizer(tmp_path)))
    assert found.counts == {1: 200, 2: 200, 3: 200}
    assert {sample.tokens for sample in found.longest} == {3}
    assert found.longest[0].place.values["number"] == 3


def test_a_list_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps([{"text": "a " * 1000} for _ in range(1500)]))  # 3 MB, read by the MiB
    assert read_lengths(str(data), str(_tokenizer(tmp_path))).counts == {1000: 1500}


def test_estimates_say_so_and_their_range_holds_the_rules_they_come_from(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("x" * 400 + "\n" + "显" * 300 + "\n")
    found = read_lengths(str(data))
    low, high = found.factors
    assert found.estimated
    # 400 letters: 100 tokens at 4 letters each, 133 at 3; 300 characters: 167 tokens at 1.8 each, 300 at 1.
    assert sorted(found.counts) == [100, 200]
    assert low <= 1.00 and high >= 1.33
    assert low * 200 <= 167 and high * 200 >= 300
    assert card_settings(found)["lengths.max"] >= 300


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.json", '[{"text": "a"}, {"text": '),
        ("empty.jsonl", ""),
        ("columns.jsonl", '{"foo": "a"}\n'),
        ("deep.jsonl", '{"text": ' + "[" * 100_000 + "\n"),
        ("prompt.jsonl", '{"prompt": "an answer is missing"}\n'),
    ],
)
def test_what_is_no_data_set_gets_one_sentence(
    name: str, content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / name
    data.write_text(content)
    assert commands.run(["lengths", str(data), "--lang", "en"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and name in said.err


@pytest.mark.parametrize("path", ["missing.jsonl", "."])
def test_a_file_that_is_not_there(path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["lengths", str(tmp_path / path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_tokenizer_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "data.txt").write_text("a")
    with pytest.raises(UserError):
        read_lengths(str(tmp_path / "data.txt"), str(tmp_path))


def test_escapes_of_a_terminal_stay_out_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"text": "\\u001b[31mred\\u001b[0m [bold]x[/bold]"}\n')
    assert commands.run(["lengths", str(data)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_known_lengths_decide_where_a_plan_cuts() -> None:
    assert halve("max_length", {"max_length": 4096, "lengths.p95": 1322}, lambda settings: None) == 1322
    assert halve("max_length", {"max_length": 1024, "lengths.p95": 1322}, lambda settings: None) == 512
    assert halve("max_length", {"max_length": 4096}, lambda settings: None) == 2048


CARD = """
model: meta-llama/Llama-2-7b-hf
method: lora
lora: {r: 8, target_modules: [q_proj, v_proj]}
torch_dtype: bfloat16
mixed_precision: bf16
per_device_train_batch_size: 1
gradient_accumulation_steps: 16
gradient_checkpointing: none
attn_implementation: sdpa
max_length: 4096
padding: longest
gpus: {count: 1, name: RTX 3090}
"""


def _document(card: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> dict[str, object]:
    path = tmp_path / "card.yaml"
    path.write_text(card)
    commands.run([command, str(path), "--json", "--no-gpu", "--no-input"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_no_batch_is_longer_than_its_longest_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def peak(card: str) -> object:
        return _document(card, tmp_path, capsys, "bill")["bill"]["peak"]["allocated"]["likely"]  # type: ignore[index]

    short = CARD + "lengths: {max: 1000}\n"
    assert peak(short) == peak(CARD.replace("4096", "1000"))
    assert peak(short + "packing: true\n") == peak(CARD + "packing: true\n")


def test_the_plan_says_how_many_samples_a_cut_hits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _document(CARD + "lengths: {p90: 954, p95: 1322, p98: 1851, max: 8271}\n", tmp_path, capsys, "plan")
    steps = {step["rule"]: step for step in found["plan"]["steps"]}  # type: ignore[index]
    step = steps["shorter-sequences"]
    assert step["change"] == {"max_length": 1322}
    assert any("2 % to 5 %" in note for note in step["notes"])
