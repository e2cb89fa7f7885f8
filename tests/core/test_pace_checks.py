"""The check that warm-up had settled, and cache hits that a warm point means to have."""

from __future__ import annotations

from typing import Any

from speccore.compare import JobFacts, analyse_job
from speccore.dealing import settlings
from speccore.integrity import no_cache_hits
from speccore.measurement import AttemptMeasurement, Check, ComparisonResult, LoadMeasurement, Settling
from speccore.pace_checks import clock_in_words, in_words, warmup_settled
from speccore.plan import plan_job
from speccore.records import StreamRecord
from speccore.settling import settling

from tests.core.made import attempts, number, spec_of, workload
from tests.core.streams import stream_of

KEY = "count/c1/ctx0/t0"
WORK = workload(n_warmup=40)


def steady(n: int = 6, *windows_ms: float, settled: bool = True, why: str = "") -> Settling:
    windows = (windows_ms[0], windows_ms[1]) if windows_ms else None
    return Settling(point=KEY, n=n, settled=settled, windows_ms=windows, why=why)


def test_settled_in_all_starts() -> None:
    check = warmup_settled({"b1-off": steady(6, 10, 10), "b1-d": steady(8, 9, 9)})
    assert (check.state, check.kind) == ("passed", "soft")
    assert check.sentence == "the last two windows of warm-up agreed within 5 % in time per token in all 2 starts, after 6 to 8 requests"


def test_the_start_that_never_settled_is_named_with_its_windows() -> None:
    check = warmup_settled({"b1-off": steady(6, 10, 10), "b2-d": steady(10, 12.5, 10, settled=False)})
    assert (check.state, check.kind) == ("failed", "soft")
    for part in ("1 of 2 starts", "first b2-d", "12.5 and 10 ms per token", "25.0", "raise warmup.most"):
        assert part in check.sentence
    assert check.evidence["never"] == {"b2-d": [12.5, 10]}


def test_more_warm_up_is_not_advised_where_answers_come_at_once() -> None:
    at_once = settling(KEY, [None] * 10, 3)
    check = warmup_settled({"b1-off": at_once})
    assert "in 1 of 1 start, first b1-off: 6 of the last 6 requests had no time per token" in check.sentence
    assert check.sentence.endswith("; ask for longer answers, or see why they failed")
    both = warmup_settled({"b1-off": at_once, "b2-d": steady(10, 12.5, 10, settled=False)})
    assert "in 2 of 2 starts, first b2-d" in both.sentence
    assert "raise warmup.most" in both.sentence


def test_what_is_not_known_has_not_settled_nor_failed() -> None:
    assert warmup_settled({"b1-off": steady(6, 10, 10), "b1-d": None}).state == "not checked"
    assert warmup_settled({}).state == "not checked"


def test_settling_is_read_from_the_records_of_warm_up_alone() -> None:
    spec = spec_of(points=[{"workload": "count", "warm": True}, {"workload": "free"}], warmup={"mode": "settled"})
    at = f"{KEY}/warm"

    def asked(ms: float, **more: Any) -> StreamRecord:
        return stream_of([(ms * i, 1) for i in range(1, 9)], point=at, **({"warmup": True} | more))

    records = [asked(90), *[asked(10)] * 6, asked(70, ahead=True), asked(50, warmup=False)]
    found = settlings(spec, {"count": WORK, "free": workload("free", n_warmup=40)}, records)
    assert [(s.point, s.n, s.settled) for s in found] == [(at, 7, True)]
    assert settlings(spec_of(), {"count": WORK}, records) == []


def compared(mode: str, **more: Any) -> ComparisonResult:
    spec = spec_of(points=[{"workload": "count", "probes": 4}], warmup={"mode": mode}, blocks=3)
    plan = plan_job(spec, {"count": WORK})
    found: list[AttemptMeasurement] = [a.model_copy(update=more) for a in attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})]
    return analyse_job(spec, plan, found, [], JobFacts(noise_floor=0.0)).comparisons[0]


def settled_check(c: ComparisonResult) -> Check:
    return next(k for k in c.checks if k.name == "warm-up settled")


def test_a_comparison_says_how_its_warm_up_went() -> None:
    assert settled_check(compared("settled", settlings=[steady(6, 10, 10)])).state == "passed"
    never = compared("settled", settlings=[steady(10, 10, 12, settled=False)])
    assert settled_check(never).state == "failed"
    assert never.verdict.word == "keep"  # soft: it is said beside the verdict
    fixed = settled_check(compared("fixed"))
    assert (fixed.state, fixed.sentence) == ("not checked", "one fixed warm-up of 1 request, settling not checked")
    assert settled_check(compared("settled")).state == "not checked"  # measured before there was such a thing


def test_a_warm_point_is_not_judged_by_its_cache_hits() -> None:
    assert no_cache_hits({"a": 5.0, "b": 0.0}).state == "failed"
    warm = no_cache_hits({"a": 5.0, "b": 0.0}, warm=True)
    assert (warm.state, warm.kind) == ("not checked", "soft")
    assert (
        warm.sentence
        == "each prompt was asked before in the same start, on purpose: 5 prompt tokens came from the prefix cache in 1 of 2 probes"
    )
    spec = spec_of(points=[{"workload": "count", "warm": True, "probes": 4}], blocks=3)
    plan = plan_job(spec, {"count": WORK})
    found = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, change=lambda t, p: {"cache_hit_tokens": number(9)})
    assert analyse_job(spec, plan, found, [], JobFacts(noise_floor=0.0)).comparisons[0].verdict.word == "keep"


def test_one_start_in_words() -> None:
    assert in_words(steady(7, 10.12, 10)) == "settled after 7 requests: 10.1 and 10 ms per token"
    never = in_words(steady(10, 12.5, 10, settled=False))
    assert never.startswith("not settled: after 10 requests the last two windows took 12.5 and 10 ms per token, 25.0")
    assert in_words(steady(4, settled=False, why="4 requests are less than two windows of 3")).endswith("less than two windows of 3")
    load = LoadMeasurement(
        point=KEY,
        concurrency=1,
        n_requests=24,
        window_s=(0, 12),
        tokens_per_s=number(90),
        observed_concurrency=number(1.333),
        rate_per_s=2,
        observed_rate_per_s=number(1.9),
    )
    assert clock_in_words(load) == "1.9 a second, 2 asked for; 1.33 under way on average"
    assert clock_in_words(load.model_copy(update={"overloaded": "too fast"})).endswith("; overloaded: too fast")
    assert clock_in_words(load.model_copy(update={"rate_per_s": None, "observed_rate_per_s": None})) == ""
