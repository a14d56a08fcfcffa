"""The beliefs of rules/claims: all are there, all can be told, and the bills agree with what is said of them."""

import re

import pytest
from rich.console import Console

from oomdoctor import claims, knowledge, runs
from oomdoctor.case import UserError
from oomdoctor.fields import facts_of_settings
from oomdoctor.memory.room import needed_bytes
from oomdoctor.report.claims import claims_section
from oomdoctor.units import GIB
from tests.program import document, oomdoctor

CLAIMS = {claim.id: claim for claim in claims.all_claims()}
EXAMPLE = runs.example("llama2-7b-lora")
RUNS = {
    "example": runs.as_a_run(EXAMPLE),
    "full": runs.as_a_run(EXAMPLE.know(facts_of_settings(["method=full", "torch_dtype=float32"]))),
    "qlora": runs.as_a_run(EXAMPLE.know(facts_of_settings(["quantization=nf4-double", "kbit_prepare=true"]))),
    "qwen": runs.as_a_run(EXAMPLE.know(facts_of_settings(["model=Qwen/Qwen2.5-0.5B", "lora.target_modules=q,v"]))),
}
LLAMA_2_7B = 6_738_415_616  # parameters, as Meta's checkpoint has them
RANK_8 = 4 * 8 * (4096 + 4096) * 32  # q, k, v and o of 32 layers


def compared(name: str, run: str = "example") -> claims.Compared:
    found = claims.compared(CLAIMS[name], RUNS[run])
    assert found is not None
    return found


def rows(name: str, run: str = "example") -> dict[str, tuple[int, int]]:
    return {row.key: (row.before, row.after) for row in compared(name, run).rows}


def needs(name: str) -> tuple[int, int]:
    return tuple(map(needed_bytes, compared(name).bills))  # type: ignore[return-value]


def test_all_claims_of_the_collection_are_there_once() -> None:
    seeds = [entry["seed"] for entry in knowledge.load("claims").values() if "seed" in entry]
    assert sorted(seeds) == list(range(1, 111))


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_whole_and_can_be_told_of_every_run(name: str) -> None:
    claim = CLAIMS[name]
    assert claim.verdict in claims.VERDICTS
    assert claim.evidence or claim.verdict == "opinion"
    assert f"claims.topic_{claim.topic}" in knowledge.load("texts")
    assert claims.find([name]) == (claim,)
    if claim.compare is not None:
        assert claim.compare["before"] != claim.compare["after"]
        assert all(claims.compared(claim, run) is not None for run in RUNS.values())


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_claims_fit_the_screen(width: int, lang: str) -> None:
    from rich.cells import cell_len

    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    told = [(claim, claims.compared(claim, RUNS["example"])) for claim in CLAIMS.values()]
    claims_section(console, lang, told, RUNS["example"], whole=False)
    for at in range(0, len(told), 3):
        claims_section(console, lang, told[at : at + 3], RUNS["example"], whole=True)
    lines = console.export_text().splitlines()
    assert len(lines) > 500
    assert max(map(cell_len, lines)) <= width


def test_bytes_for_each_parameter_by_hand() -> None:
    found = rows("fourteen-bytes-a-parameter")
    assert found["weights"] == (4 * LLAMA_2_7B, 2 * LLAMA_2_7B)
    assert found["gradients"] == (4 * LLAMA_2_7B, 2 * LLAMA_2_7B)
    assert found["optimizer_states"] == (8 * LLAMA_2_7B, 4 * LLAMA_2_7B)
    assert rows("optimizer-state-is-84-gb")["optimizer_states"][0] == 12 * LLAMA_2_7B


def test_an_8_bit_optimizer_saves_6_bytes_a_trained_parameter() -> None:
    before, after = rows("eight-bit-adam-frees-2-to-4-gb")["optimizer_states"]
    assert before == 8 * RANK_8
    assert after == pytest.approx(2.03 * RANK_8, rel=0.01)


def test_what_grows_with_the_batch_and_what_does_not() -> None:
    one, four = rows("batch-4-is-four-times")["activations"]
    assert four == pytest.approx(4 * one, rel=0.01)
    assert rows("batch-4-is-four-times")["weights"] == (rows("batch-4-is-four-times")["weights"][0],) * 2
    whole, half = rows("halving-the-length")["activations"]
    assert half == pytest.approx(whole / 2, rel=0.01)
    assert rows("accumulation-raises-memory") == {} and len(set(needs("accumulation-raises-memory"))) == 1


def test_zero_divides_what_it_says() -> None:
    over_two = rows("zero2-divides-optimizer-and-gradients")
    assert over_two["weights"] == (2 * LLAMA_2_7B, 2 * LLAMA_2_7B)
    assert over_two["gradients"][1] == pytest.approx(LLAMA_2_7B, rel=0.001)
    states = rows("zero1-spreads-the-optimizer")["optimizer_states"][1]
    assert states == pytest.approx(12 * LLAMA_2_7B / 8, rel=0.001)


def test_the_bills_bear_out_the_verdicts_on_a_card_of_24_gb() -> None:
    card = 23.5 * GIB
    for name in ("full-7b-on-24-gb-impossible", "four-bit-lora-oom-at-batch-1", "your-memory-is-not-enough",
                 "two-3090-cannot-load-7b", "zero-or-qlora-is-a-must", "batch-4-is-too-big"):  # fmt: skip
        assert needs(name)[1] < card
    for name in ("full-7b-on-24-gb-impossible", "two-3090-cannot-load-7b", "batch-4-is-too-big"):
        assert needs(name)[0] > card
    assert 32 * GIB < needs("zero1-spreads-the-optimizer")[1] < 48 * GIB
    assert needs("twentyfour-gb-is-the-limit-of-full-7b")[1] > 108e9


def test_the_persons_own_run_gives_the_figures() -> None:
    found = document("claims", "loads-in-fp32", "--run", "examples/llama2-7b-lora-3090.yaml")
    assert found["run"]["origin"] == "examples/llama2-7b-lora-3090.yaml"
    listed = document("claims", "loads-in-fp32", "--run", "examples/llama2-7b-lora-3090.yaml", "--set", "lora.r=64")
    plain, large = (each["claims"][0]["compared"]["after"]["bill"] for each in (found, listed))
    assert large["trainable_parameters"] == 8 * plain["trainable_parameters"]
    of_log = document("claims", "loads-in-fp32", "--from-log", "examples/llama2-7b-lora-3090.log")
    assert of_log["run"]["origin"].endswith(".log")
    assert of_log["claims"][0]["compared"]["before"]["settings"] == {"torch_dtype": "float32"}


def test_a_config_gives_the_figures_too() -> None:
    config = "tests/corpus/configs/axolotl-lora-8bit.yml"
    found = document("claims", "batch-4-is-four-times", "--config", config, "--set", "model=meta-llama/Llama-2-7b-hf")
    assert found["run"]["origin"] == config
    assert {fact["key"]: fact["value"] for fact in found["run"]["facts"]}["quantization"] == "int8"


def test_the_list_is_a_document_too() -> None:
    found = document("claims", "--lang", "zh")
    assert len(found["claims"]) == len(CLAIMS)
    assert all(re.search("[\u4e00-\u9fff]", claim["truth"]) for claim in found["claims"])


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("empty_cache notebook", "del-and-empty-cache"),
        ("梯度累积步数", "accumulation-raises-memory"),
        ("load_in_4bit from_pretrained", "load-in-4bit-argument"),
        ("does pin_memory=False free GPU memory", "pin-memory-off-frees-vram"),
        ("SGD momentum", "sgd-saves-43-percent"),
    ],
)
def test_words_find_the_claim(words: str, first: str) -> None:
    assert first in [claim.id for claim in claims.find(words.split())][:3]


def test_what_nobody_says_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError):
        claims.find(["xyzzy"])
    with pytest.raises(UserError):
        claims.find(["..."])
    done = oomdoctor("claims", "xyzzy")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    lacking = oomdoctor("claims", "loads-in-fp32", "--from-log", "tests/corpus/044-slurm-oom-kill-tokenizing.log")
    assert lacking.returncode == 4 and "model" in lacking.stderr
