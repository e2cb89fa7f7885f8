"""The verdict: recorded cases, each rule, each boundary, the order of the rules."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from speccore import integrity, stats
from speccore.measurement import Check, Interval, Withheld
from speccore.verdict import QUALITY_TOLERANCE, Shorter, VerdictInput, holds_requirements, judge

CASES = json.loads((Path(__file__).parent / "cases" / "verdicts.json").read_text())
BY_NAME = {c["name"]: c for c in CASES}


def values_of(case: dict[str, Any], left: str = "baseline", right: str = "arm", value: Any = stats.block_value) -> list[float]:
    return [value({str(i): pair for i, pair in enumerate(zip(b[left], b[right], strict=True))}) for b in case["blocks"]]


def quality_of(rates: dict[str, Any]) -> stats.PassDifference | Withheld:
    """Prompts whose passes in the two arms have nothing to do with each other, which is the widest interval."""
    n, baseline, arm = rates["n"], rates["baseline_pass"], rates["arm_pass"]
    both = round(n * baseline * arm)
    passes, lost = round(n * baseline), round(n * arm) - both
    shares = [(1.0, 1.0)] * both + [(1.0, 0.0)] * (passes - both) + [(0.0, 1.0)] * lost
    return stats.pass_difference(shares + [(0.0, 0.0)] * (n - len(shares)), QUALITY_TOLERANCE)


def input_of(case: dict[str, Any]) -> VerdictInput:
    values = values_of(case)
    hashes = case.get("runtime_hashes", ["aa", "aa"])
    checks = [
        integrity.same_key({"b1-off": {"runtime_hash": hashes[0]}, "b1-arm": {"runtime_hash": hashes[1]}}),
        integrity.no_cache_hits({"b1-arm/p#1": case.get("cache_hit_tokens", 0)}),
    ]
    known = VerdictInput(
        mode=case["mode"],
        margin=case["margin"],
        noise_floor=case["noise_floor"],
        speedup=stats.ratio_interval(values),
        total_time=stats.ratio_interval(values_of(case, value=stats.total_value)),
        block_values=values,
        oom_blocks=case.get("arm_oom_blocks", 0),
        checks=checks,
        drafted=case.get("drafted", 100),
        required_context=case.get("required_context"),
        context=case.get("context"),
        required_slots=case.get("required_slots"),
        slots=case.get("slots"),
        quality=quality_of(case["quality"]) if "quality" in case else None,
    )
    if "shorter" not in case["blocks"][0]:
        return known
    own = stats.ratio_interval(values_of(case, right="shorter"))
    worth = judge(replace(known, speedup=own, total_time=own)).word == "keep"
    versus = stats.ratio_interval(values_of(case, "arm", "shorter"))
    return replace(known, shorter=[Shorter(arm="draft-4", draft_limit=4, worth_keeping=worth, versus=versus)])


@pytest.mark.parametrize("name", list(BY_NAME))
def test_recorded_case(name: str) -> None:
    case, expect = BY_NAME[name], BY_NAME[name]["expect"]
    known = input_of(case)
    assert isinstance(known.speedup, Interval)
    assert known.speedup.n_blocks == expect["n_blocks"]
    for field, key in (("estimate", "speedup"), ("low", "ci_low"), ("high", "ci_high")):
        value = getattr(known.speedup, field)
        assert (value if value is None else round(value, 6)) == expect[key]
    verdict = judge(known)
    assert verdict.word == expect["verdict"]
    if "reason" in expect:
        assert verdict.reason == expect["reason"]
    if "withheld" in expect:
        assert known.speedup.withheld == expect["withheld"] == verdict.sentence
    if "shorter_vs_arm" in expect:
        versus = known.shorter[0].versus
        assert isinstance(versus, Interval)
        shown = [round(v, 6) for v in (versus.estimate, versus.low or 0, versus.high or 0)]
        assert shown == [expect["shorter_vs_arm"][k] for k in ("speedup", "ci_low", "ci_high")]


def test_the_totals_of_disagreeing_prompts_are_as_told() -> None:
    total = input_of(BY_NAME["prompts-disagree"]).total_time
    assert isinstance(total, Interval)
    assert total.estimate == pytest.approx(0.97, abs=0.005)


# --- each rule and its boundary ---


def interval(low: float, high: float, n: int = 5, estimate: float | None = None) -> Interval:
    return Interval(estimate=estimate or math.sqrt(low * high), low=low, high=high, n_blocks=n)


def known(low: float = 1.5, high: float = 1.6, **more: Any) -> VerdictInput:
    values: dict[str, Any] = {
        "noise_floor": 0.01,
        "speculation_reported": True,
        "drafted": 10.0,
        "block_values": (0.4, 0.45, 0.5, 0.42, 0.44),
    }
    speed = more.pop("speedup", interval(low, high))
    total = more.pop("total_time", speed)
    return VerdictInput(mode=more.pop("mode", "draft"), margin=more.pop("margin", 0.03), speedup=speed, total_time=total, **(values | more))


def said(v: VerdictInput) -> tuple[str, str]:
    verdict = judge(v)
    assert verdict.sentence
    return verdict.word, verdict.reason


HARD = Check(name="client lag", kind="hard", passed=False, sentence="the client read late")
SOFT = Check(name="drift", kind="soft", passed=False, sentence="it drifts")
UNKNOWN = Check(name="x", kind="hard", passed=False, not_checked=True, sentence="not measured")


def test_two_blocks_out_of_memory_do_not_fit_and_one_is_no_rule() -> None:
    assert said(known(oom_blocks=2)) == ("disable", "does not fit")
    assert said(known(oom_blocks=1)) == ("keep", "faster")
    assert said(known(target_layers_moved=1)) == ("disable", "does not fit")


def test_a_failed_hard_check_is_named_and_others_are_not() -> None:
    assert said(known(checks=[SOFT, HARD])) == ("invalid", "client lag")
    assert said(known(checks=[SOFT, UNKNOWN])) == ("keep", "faster")


def test_what_kept_an_arm_from_running_is_named() -> None:
    nothing = Withheld(withheld="needs 3 blocks, has 0")
    failed = known(speedup=nothing, failure="engine_exited_at_start", failure_sentence="draft-8 failed in 2 blocks: no such file")
    assert said(failed) == ("invalid", "engine_exited_at_start")
    assert "no such file" in judge(failed).sentence


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"speculation_reported": False}, "not engaged"),
        ({"drafted": 0.0}, "not engaged"),
        ({"drafted": None}, "keep"),
        ({"drafted": 0.0, "mode": "ngram-simple"}, "keep"),
        ({"speculation_reported": False, "mode": "ngram-simple"}, "not engaged"),
        ({"speculation_reported": None}, "keep"),
    ],
)
def test_engagement(more: dict[str, Any], word: str) -> None:
    assert said(known(**more))[0] == word


def test_below_three_blocks_only_faults_are_said() -> None:
    few: dict[str, Any] = {"speedup": Interval(estimate=0.5, n_blocks=2, withheld="needs 3 blocks, has 2")}
    lost: dict[str, Any] = {"required_context": 100, "context": 50}
    assert said(known(**few, **lost)) == ("inconclusive", "too few blocks")
    assert said(known(**few, oom_blocks=2))[1] == "does not fit"
    assert said(known(**few, checks=[HARD]))[0] == "invalid"
    assert said(known(**few, drafted=0.0))[0] == "not engaged"


def test_requirements_at_their_boundary() -> None:
    assert said(known(required_context=4096, context=4096))[0] == "keep"
    assert said(known(required_context=4096, context=4095)) == ("disable", "context")
    assert said(known(required_slots=2, slots=2))[0] == "keep"
    assert said(known(required_slots=2, slots=1)) == ("disable", "concurrency")
    assert "draft-2, with a shorter limit, holds it" in judge(known(required_slots=2, slots=1, shorter_that_holds="draft-2")).sentence
    assert said(known(required_slots=2, slots=None)) == ("inconclusive", "requirement not checked")
    assert holds_requirements(known(required_slots=2, slots=2))
    assert not holds_requirements(known(required_slots=2, slots=None))
    assert not holds_requirements(known(required_slots=2, slots=1))


def passes(low: float, high: float) -> stats.PassDifference:
    return stats.PassDifference(n=40, baseline=0.9, arm=0.9 + (low + high) / 2, low=low, high=high, needed=300)


def test_quality_is_lost_held_or_not_shown() -> None:
    assert said(known(quality=passes(-0.3, -0.021))) == ("disable", "quality")
    assert said(known(quality=passes(-0.3, -0.019)))[0] == "keep"
    assert "quality not shown, n = 40, needs about 300 prompts" in judge(known(quality=passes(-0.3, -0.019))).sentence
    assert "quality" not in judge(known(quality=passes(-0.019, 0.3))).sentence


def shorter(low: float, *, worth: bool = True) -> Shorter:
    return Shorter(arm="draft-2", draft_limit=2, worth_keeping=worth, versus=interval(low, low + 0.1))


def test_a_shorter_limit_must_be_worth_keeping_and_better_by_more_than_the_margin() -> None:
    assert said(known(shorter=[shorter(1.031)]))[0] == "shorten"
    assert said(known(shorter=[shorter(1.03)]))[0] == "keep"
    assert said(known(shorter=[shorter(1.5, worth=False)]))[0] == "keep"
    assert said(known(0.8, 0.85, shorter=[shorter(1.5)]))[0] == "shorten"
    unknown = Shorter(arm="draft-2", draft_limit=2, worth_keeping=True, versus=Withheld(withheld="needs 3 blocks, has 0"))
    assert said(known(shorter=[unknown]))[0] == "keep"


@pytest.mark.parametrize(
    ("low", "high", "floor", "expected"),
    [
        (1.0301, 1.2, 0.01, ("keep", "faster")),
        (1.03, 1.2, 0.01, ("inconclusive", "noise-limited")),
        (1.06, 1.2, 0.05, ("keep", "faster")),
        (1.04, 1.2, 0.05, ("inconclusive", "noise-limited")),
        (0.9, 1 / 1.01 - 1e-9, 0.01, ("disable", "slower")),
        (0.9, 1 / 1.01 + 1e-9, 0.01, ("disable", "not worth it")),
        (0.9, 0.999, 0.0, ("disable", "slower")),
        (0.9, 0.999, None, ("disable", "slower")),
        (1.01, 1.0299, 0.01, ("disable", "not worth it")),
        (1.01, 1.0299, 0.03, ("disable", "not worth it")),
        (1.01, 1.03, 0.01, ("inconclusive", "noise-limited")),
        (1.01, 1.0299, 0.04, ("inconclusive", "floor-limited")),
        (0.97, 1.04, 0.04, ("inconclusive", "floor-limited")),
        (0.95, 1.04, 0.04, ("inconclusive", "noise-limited")),
        (0.97, 1.05, 0.04, ("inconclusive", "noise-limited")),
    ],
)
def test_by_time(low: float, high: float, floor: float | None, expected: tuple[str, str]) -> None:
    assert said(known(low, high, noise_floor=floor)) == expected


@pytest.mark.parametrize(
    ("low", "high", "total", "reason"),
    [
        (1.2, 1.3, 0.99, "prompts disagree"),
        (1.2, 1.3, 1.0, "faster"),
        (0.7, 0.8, 1.01, "prompts disagree"),
        (0.7, 0.8, 1.0, "slower"),
        (1.0, 1.02, 1.031, "prompts disagree"),
        (1.0, 1.02, 1.03, "not worth it"),
        (0.9, 1.2, 0.5, "noise-limited"),
    ],
)
def test_total_time_on_the_other_side_means_that_prompts_disagree(low: float, high: float, total: float, reason: str) -> None:
    assert said(known(low, high, total_time=interval(total, total)))[1] == reason


def test_a_control_is_never_kept_and_never_not_engaged() -> None:
    control: dict[str, Any] = {"mode": "off", "control": True, "speculation_reported": None, "drafted": None}
    assert said(known(1.1, 1.2, **control)) == ("inconclusive", "floor-limited")
    assert said(known(0.8, 0.9, **control)) == ("inconclusive", "floor-limited")
    assert said(known(0.995, 1.005, **control)) == ("disable", "not worth it")


def test_off_with_what_speculation_implies_is_no_answer_however_fast_and_no_second_baseline() -> None:
    control: dict[str, Any] = {"mode": "off", "control": True, "explains": True}
    for low, high in ((1.1, 1.2), (0.8, 0.9), (0.995, 1.005)):
        assert said(known(low, high, **control)) == ("inconclusive", "explains only")


def test_noise_limited_says_how_many_more_blocks() -> None:
    values = (0.03, -0.02, 0.06, 0.08, 0.01)
    speedup = stats.ratio_interval(values)
    sentence = judge(known(speedup=speedup, block_values=values)).sentence
    needed = stats.blocks_needed(values, math.log1p(0.03))
    assert needed is not None
    assert f"needs {needed - 5} more blocks for ±3 %" in sentence
    assert sentence.startswith("1.03×")
    far = (-0.25, -1.2, -0.9, -0.35)
    assert (
        "needs 1 more block to settle it, if it stays at this" in judge(known(speedup=stats.ratio_interval(far), block_values=far)).sentence
    )
    wild = (0.9, -0.8, 0.7, -0.9, 0.3)
    assert "make the host quieter" in judge(known(speedup=stats.ratio_interval(wild), block_values=wild)).sentence


# --- the order of the rules ---


def test_rules_apply_in_their_order() -> None:
    """Everything wrong at once, then one fault less each time."""
    faults: list[tuple[str, dict[str, Any]]] = [
        ("does not fit", {"oom_blocks": 2}),
        ("client lag", {"checks": [HARD]}),
        ("not engaged", {"drafted": 0.0}),
        ("context", {"required_context": 9, "context": 8}),
        ("concurrency", {"required_slots": 2, "slots": 1}),
        ("quality", {"quality": passes(-0.3, -0.1)}),
        ("shorter limit is better", {"shorter": [shorter(1.5)]}),
    ]
    for i, (reason, _) in enumerate(faults):
        left = {key: value for _, more in faults[i:] for key, value in more.items()}
        assert said(known(**left))[1] == reason
    assert said(known())[1] == "faster"


def test_never_keep_with_a_failed_hard_check_and_always_the_same_answer() -> None:
    rng = random.Random(4)
    words = set()
    for _ in range(2000):
        low = rng.uniform(0.5, 1.6)
        checks = [c for c in (HARD, SOFT, UNKNOWN) if rng.random() < 0.4]
        v = known(
            low,
            low + rng.uniform(0.0001, 0.5),
            mode=rng.choice(["draft", "ngram-simple", "mtp"]),
            noise_floor=rng.choice([None, 0.0, 0.02, 0.1]),
            total_time=interval(t := rng.uniform(0.6, 1.5), t),
            oom_blocks=rng.choice([0, 0, 0, 2]),
            checks=checks,
            drafted=rng.choice([0.0, 5.0, None]),
            slots=rng.choice([1, 2, None]),
            required_slots=rng.choice([None, 2]),
            shorter=[shorter(rng.uniform(0.9, 1.3), worth=rng.random() < 0.5)] if rng.random() < 0.3 else [],
        )
        verdict = judge(v)
        words.add(verdict.word)
        assert verdict == judge(v)
        assert verdict.sentence
        if HARD in checks:
            assert verdict.word != "keep"
            assert verdict.word == "invalid" or verdict.reason == "does not fit"
        if verdict.word == "keep":
            assert isinstance(v.speedup, Interval)
            assert v.speedup.low is not None
            assert v.speedup.low > 1 + max(0.03, v.noise_floor or 0)
    assert words == {"keep", "shorten", "disable", "inconclusive", "invalid", "not engaged"}
