"""The ladder on made-up rules and prices whose right plan can be seen by eye."""

from collections.abc import Callable, Mapping
from typing import Any

from oomdoctor.case import Text, Value
from oomdoctor.ladder import make_plan, make_plans
from oomdoctor.memory.lines import Bill, Line, PhaseBill, Range
from oomdoctor.memory.room import FRAGMENTED
from oomdoctor.plan import Pricing, Settings
from oomdoctor.remedies.rule import Cost, Rule
from oomdoctor.remedies.rules import rule
from oomdoctor.texts import render
from oomdoctor.units import GIB

_WORDS = Text("texts/plan.silent")


def _bill(gib: float, activations: float = 0.5) -> Bill:
    size = round(gib * GIB)
    lines = {"activations": round(size * activations), "weights": size - round(size * activations)}
    parts = tuple(Line(key, Range(part, part, part), _WORDS, _WORDS) for key, part in lines.items())
    whole = Range(size, size, size)
    live = round(size / (1 + FRAGMENTED))  # so that the bill needs just `gib`
    return Bill((PhaseBill("backward", parts),), "backward", Range(live, live, live), whole, whole, 0, 0)


def _rule(name: str, rung: float, when: Mapping[str, Any] | None = None, **change: Value) -> Rule:
    return Rule(name, rung, _WORDS, _WORDS, when or {}, change)


def _pricing(price: Callable[[Settings], float], usable: float = 24) -> Pricing:
    return Pricing(bill=lambda settings: _bill(price(settings)), usable=lambda settings: round(usable * GIB))


def test_the_climb_stops_at_the_first_rung_that_fits() -> None:
    rules = [_rule("one", 1, a=1), _rule("two", 2, b=1), _rule("three", 3, c=1)]
    pricing = _pricing(lambda s: 30 - 4 * s.get("a", 0) - 4 * s.get("b", 0) - 20 * s.get("c", 0))
    plan = make_plan(rules, {"a": 0, "b": 0, "c": 0}, pricing)
    assert (plan.rules, plan.fits) == (("one", "two"), True)


def test_steps_that_turned_out_unnecessary_are_dropped_dearest_first() -> None:
    rules = [_rule("one", 1, a=1), _rule("two", 2, b=1), _rule("three", 3, c=1)]
    pricing = _pricing(lambda s: 40 - 4 * s.get("a", 0) - 4 * s.get("b", 0) - 20 * s.get("c", 0))
    plan = make_plan(rules, {"a": 0, "b": 0, "c": 0}, pricing)
    assert plan.rules == ("three",)


def test_a_rung_that_saves_next_to_nothing_is_skipped_in_numbers() -> None:
    rules = [_rule("tiny", 1, a=1), _rule("big", 2, b=1)]
    plan = make_plan(rules, {"a": 0, "b": 0}, _pricing(lambda s: 30 - 0.3 * s.get("a", 0) - 10 * s.get("b", 0)))
    assert plan.rules == ("big",)
    (skip,) = plan.skipped
    assert skip.rule.id == "tiny"
    assert abs(skip.reason.values["saves"] - 0.3 * GIB) <= 1


def test_a_small_step_that_closes_the_gap_is_no_small_step() -> None:
    plan = make_plan([_rule("tiny", 1, a=1)], {"a": 0}, _pricing(lambda s: 24.2 - 0.3 * s.get("a", 0)))
    assert (plan.rules, plan.fits) == (("tiny",), True)


def _in_two_phases(training: float, evaluation: float) -> Bill:
    """GiB of two phases, of which the larger is the peak."""
    phases = tuple(
        _bill(gib).phases[0]._replace(phase=name) for gib, name in ((training, "loss"), (evaluation, "eval"))
    )
    peak = _bill(max(training, evaluation))
    return peak._replace(phases=phases, phase="loss" if training >= evaluation else "eval")


def test_two_phases_that_are_both_too_large_are_brought_down_one_after_the_other() -> None:
    """27 and 26.8 GiB on 24: neither step lowers the peak by the 2 % that a step must save, both do."""
    rules = [_rule("of-evaluation", 1, a=1), _rule("of-training", 2, b=1), _rule("dear", 8, c=1)]
    pricing = Pricing(
        bill=lambda s: _in_two_phases(27 - 10 * s.get("b", 0), 26.8 - 10 * s.get("a", 0) - 10 * s.get("c", 0)),
        usable=lambda settings: 24 * GIB,
    )
    plan = make_plan(rules, {"a": 0, "b": 0, "c": 0}, pricing)
    assert (plan.rules, plan.fits) == (("of-evaluation", "of-training"), True)
    assert plan.steps[0].saves_bytes == 0
    assert [text.path for text in plan.steps[0].notes] == ["texts/plan.elsewhere"]
    assert plan.steps[1].notes == ()


def test_the_batch_goes_to_the_largest_divisor_that_fits_and_keeps_the_effective_batch() -> None:
    batch, accumulation = "per_device_train_batch_size", "gradient_accumulation_steps"
    rule = Rule(
        "smaller-batch", 1, _WORDS, _WORDS, {}, {batch: "largest_that_fits", accumulation: "keep_effective_batch"}
    )
    plan = make_plan([rule], {batch: 12, accumulation: 2}, _pricing(lambda s: 10 + 3 * s[batch]))
    assert plan.settings == {batch: 4, accumulation: 6}  # 10 + 3 x 4 = 22 fits, 10 + 3 x 6 = 28 does not


def test_the_batch_is_raised_again_where_a_later_step_makes_room() -> None:
    batch, accumulation = "per_device_train_batch_size", "gradient_accumulation_steps"
    smaller = Rule(
        "smaller-batch", 1, _WORDS, _WORDS, {}, {batch: "largest_that_fits", accumulation: "keep_effective_batch"}
    )
    rules = [smaller, _rule("checkpointing", 3, c=1)]
    pricing = _pricing(lambda s: (15 if s["c"] else 22) + 3 * s[batch])
    plan = make_plan(rules, {batch: 4, accumulation: 1, "c": 0}, pricing)
    assert plan.fits
    assert plan.settings[batch] == 2  # 15 + 3 x 2 = 21; with 4 it would be 27


def test_a_rule_passed_over_at_one_peak_is_tried_again_at_the_next() -> None:
    rules = [_rule("batch", 1, a=1), _rule("optimizer", 4, b=1)]
    pricing = _pricing(lambda s: max(28 - 10 * s["a"], 30 - 8 * s["b"]))  # activations hide behind the optimizer
    plan = make_plan(rules, {"a": 0, "b": 0}, pricing)
    assert (plan.rules, plan.fits) == (("optimizer", "batch"), True)


def test_a_postponed_rule_comes_after_the_other_rungs_and_before_quantization() -> None:
    postponed = Rule("checkpointing", 3, _WORDS, _WORDS, {}, {"c": 1}, postpone={"share.activations": {"below": 0.6}})
    rules = [postponed, _rule("flash", 5, d=1), _rule("quantize", 6, e=1)]
    price = _pricing(lambda s: 30 - 7 * s["c"] - 7 * s["d"] - 7 * s["e"])
    assert make_plan(rules, {"c": 0, "d": 0, "e": 0}, price).rules == ("flash",)
    tight = _pricing(lambda s: 37 - 7 * s["c"] - 7 * s["d"] - 7 * s["e"])
    assert set(make_plan(rules, {"c": 0, "d": 0, "e": 0}, tight).rules) == {"flash", "checkpointing"}


def test_a_poor_trade_says_what_it_buys_here() -> None:
    """Other lines of the bill can shrink with the activations, which are 10 % here: 30 - 26.5 = 3.5 GiB."""
    sizes = {"none": 30.0, "full": 26.5}
    pricing = Pricing(
        bill=lambda settings: _bill(sizes[str(settings["gradient_checkpointing"])], 0.1),
        usable=lambda settings: 24 * GIB,
        circumstances={"crash.kind": "cuda_oom", "crash.phase": "backward"},
    )
    (step,) = make_plan([rule("gradient-checkpointing")], {"gradient_checkpointing": "none"}, pricing).steps
    (note,) = step.notes
    assert "only 10 % of the peak" in render(note, "en") and "buys 3.50 GiB" in render(note, "en")
    assert "只占峰值的 10 %" in render(note, "zh") and "换来 3.50 GiB" in render(note, "zh")


def test_the_lossless_plan_uses_nothing_that_loses_or_costs_hardware() -> None:
    lossy = Rule("shorter", 2, _WORDS, _WORDS, {}, {"a": 1}, loses=_WORDS)
    bought = Rule("card", 10, _WORDS, _WORDS, {}, {"b": 1}, Cost(money=True))
    rules = [lossy, bought, _rule("fused", 7, c=1)]
    pricing = _pricing(lambda s: 30 - 8 * s["a"] - 8 * s["b"] - 8 * s["c"])
    assert make_plan(rules, {"a": 0, "b": 0, "c": 0}, pricing, "lossless").rules == ("fused",)


def test_the_fastest_plan_takes_the_rule_that_adds_least_time() -> None:
    slow = Rule("slow", 1, _WORDS, _WORDS, {}, {"a": 1}, Cost(time=(0.2, 0.4)))
    quick = Rule("quick", 6, _WORDS, _WORDS, {}, {"b": 1}, Cost(time=(-0.1, 0.0)))
    pricing = _pricing(lambda s: 30 - 8 * s["a"] - 8 * s["b"])
    assert make_plan([slow, quick], {"a": 0, "b": 0}, pricing, "fastest").rules == ("quick",)
    assert make_plan([slow, quick], {"a": 0, "b": 0}, pricing, "ladder").rules == ("slow",)


def test_without_a_bill_the_ladder_is_advice_without_a_price() -> None:
    pricing = Pricing(bill=lambda settings: None, usable=lambda settings: None)
    plan = make_plan([_rule("one", 1, a=1), _rule("beyond", 8, b=1)], {"a": 0, "b": 0}, pricing)
    assert (plan.rules, plan.fits) == (("one",), None)
    assert plan.steps[0].saves_bytes is None


def test_where_nothing_fits_the_plan_says_so() -> None:
    plan = make_plan([_rule("one", 1, a=1)], {"a": 0}, _pricing(lambda s: 90 - 10 * s["a"]))
    assert plan.fits is False


def test_time_factors_multiply() -> None:
    rules = [Rule(name, 1, _WORDS, _WORDS, {}, {name: 1}, Cost(time=(0.1, 0.5))) for name in ("a", "b")]
    plan = make_plan(rules, {"a": 0, "b": 0}, _pricing(lambda s: 30 - 4 * s["a"] - 4 * s["b"]))
    low, high = plan.time_factor
    assert (round(low, 4), round(high, 4)) == (1.21, 2.25)


def test_a_step_that_rests_on_another_stays_behind_it() -> None:
    """Quantized weights need an adapter: the ladder's sixth rung can only be climbed after the eighth."""
    rules = [_rule("quantize", 6, {"method": "lora"}, q=1), _rule("lora", 8, {"method": "full"}, method="lora")]
    pricing = _pricing(lambda s: 60 - 25 * (s["method"] == "lora") - 14 * s["q"])
    plan = make_plan(rules, {"method": "full", "q": 0}, pricing)
    assert (plan.rules, plan.fits) == (("lora", "quantize"), True)
    assert all((step.saves_bytes or 0) > 0 for step in plan.steps)


def test_a_plan_that_leads_nowhere_gives_way_to_one_that_fits() -> None:
    """A lossy rung can close the way to a rule that would have fitted."""
    lossy = Rule("lossy", 1, _WORDS, _WORDS, {}, {"a": 1}, loses=_WORDS)
    rules = [lossy, _rule("offload", 2, {"a": 0}, b=1)]
    plans = make_plans(rules, {"a": 0, "b": 0}, _pricing(lambda s: 40 - 10 * s["a"] - 20 * s["b"]))
    assert plans["lossless"].rules == ("offload",)
    assert (plans["ladder"].rules, plans["ladder"].fits) == (("offload",), True)


def test_the_fastest_plan_is_never_slower_than_another() -> None:
    slow = Rule("slow", 1, _WORDS, _WORDS, {}, {"a": 1}, Cost(time=(0.5, 0.5)))
    quick = Rule("quick", 2, _WORDS, _WORDS, {"a": 1}, {"b": 1}, Cost(time=(0.0, 0.1)))
    plans = make_plans([slow, quick], {"a": 0, "b": 0}, _pricing(lambda s: 30 - 8 * s["a"] - 8 * s["b"]))
    assert sum(plans["fastest"].time_factor) <= min(sum(plan.time_factor) for plan in plans.values() if plan.fits)


def test_what_cannot_help_against_the_states_is_not_taken() -> None:
    """60 GiB of weights: a smaller batch saves 4 of 70 GiB, but only fewer weights can make it fit."""
    rules = [_rule("batch", 1, a=1), _rule("lora", 8, b=1)]

    def bill(settings: Settings) -> Bill:
        weights, activations = 60 - 50 * settings["b"], 10 - 4 * settings["a"]
        return _bill(weights + activations, activations / (weights + activations))

    plan = make_plan(rules, {"a": 0, "b": 0}, Pricing(bill=bill, usable=lambda settings: 24 * GIB))
    assert plan.rules == ("lora",)


def test_an_assumed_value_is_not_shown_as_the_old_one() -> None:
    batch, accumulation = "per_device_train_batch_size", "gradient_accumulation_steps"
    rule = Rule(
        "smaller-batch", 1, _WORDS, _WORDS, {}, {batch: "largest_that_fits", accumulation: "keep_effective_batch"}
    )
    known = {batch: 8, accumulation: 1}
    blind = Pricing(bill=lambda settings: None, usable=lambda settings: None, assumed={batch: 8})
    (step,) = make_plan([rule], known, blind).steps
    assert (step.change, step.before) == ({batch: 1}, {batch: None})  # a quarter of a guess would be a guess
    stated = blind._replace(assumed={})
    (step,) = make_plan([rule], known, stated).steps
    assert (step.change, step.before) == ({batch: 2, accumulation: 4}, known)


def test_against_the_states_what_lowers_them_counts_even_if_the_peak_rises() -> None:
    """An adapter frees 40 GiB of states and lets activations grow by 50; then a smaller batch can do its work."""
    rules = [_rule("batch", 1, a=1), _rule("lora", 8, b=1), _rule("offload", 9, c=1)]

    def bill(settings: Settings) -> Bill:
        weights = 5 if settings["c"] else 15 if settings["b"] else 55
        activations = (60 + 50 * settings["b"]) * (0.05 if settings["a"] else 1)
        return _bill(weights + activations, activations / (weights + activations))

    plan = make_plan(rules, {"a": 0, "b": 0, "c": 0}, Pricing(bill=bill, usable=lambda settings: 24 * GIB))
    assert (plan.rules, plan.fits) == (("lora", "batch"), True)


def test_a_repair_that_a_later_step_overtakes_is_dropped() -> None:
    """sdpa, and then flash-attention: the first would be undone at once."""
    gain = Cost(time=(-0.3, 0.0))
    sdpa = Rule("sdpa", 0.5, _WORDS, _WORDS, {"attention": "eager"}, {"attention": "sdpa"}, gain)
    flash = _rule("flash", 5, {"attention": {"in": ["eager", "sdpa"]}}, attention="flash")
    prices = {"eager": 40, "sdpa": 28, "flash": 20}
    plan = make_plan([sdpa, flash], {"attention": "eager"}, _pricing(lambda s: prices[s["attention"]]))
    assert plan.rules == ("flash",)


def test_where_no_rule_applies_the_ones_for_that_are_taken() -> None:
    """A failure that nothing is known against gets advice; what asks for an empty plan is silent beside other rules."""
    last = _rule("last", 6, {"plan.empty": True})._replace(priced=False)
    other, lossy = _rule("other", 1, {"phase": "eval"}), _rule("lossy", 2, b=1)._replace(loses=_WORDS)
    pricing = Pricing(lambda s: None, lambda s: None, {"crash.happened": True, "phase": "loss"})
    plans = make_plans([other, lossy, last], {"b": 0}, pricing)
    assert {prefer: plan.rules for prefer, plan in plans.items()} == {
        "ladder": ("lossy",), "lossless": ("last",), "fastest": ("lossy",)
    }  # fmt: skip
    no_crash = pricing._replace(circumstances={"crash.happened": False})
    assert make_plan([other, last], {}, no_crash).rules == ()
