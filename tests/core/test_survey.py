"""A survey's sums: medians and spreads, what is missing and why, warnings, and the comparison that is no verdict."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from speccore.engines import llamacpp
from speccore.measure import measure_probe
from speccore.measurement import Number, ProbeMeasurement, Withheld
from speccore.records import ClientHealth, StreamEvent, StreamRecord
from speccore.survey import (
    BY_REQUEST,
    NO_VERDICT,
    POOLED,
    WINDOW_SPEED,
    Cell,
    ServerFacts,
    Settings,
    Spread,
    Survey,
    SurveysDiffer,
    cell_of,
    compare_surveys,
    missing,
    spread,
)

HEALTHY = ClientHealth(n_events=100, n_late=0, cpu_share=0.1, observed_concurrency=1.0, stamps="kernel")


def probe(
    item: str, *, ttft_s: float = 0.1, step_s: float = 0.02, n: int = 11, draft: tuple[int, int] | None = None, **changes: Any
) -> ProbeMeasurement:
    """``n`` tokens, one a step; with ``draft`` (drafted, accepted) in sum, told by the final event."""
    events = [StreamEvent(at_s=ttft_s + i * step_s, tokens=1) for i in range(n)]
    timings: dict[str, Any] = {"predicted_n": n, "predicted_ms": (n - 1) * step_s * 1000, "prompt_n": 5, "cache_n": 0}
    timings |= {"draft_n": draft[0], "draft_n_accepted": draft[1]} if draft else {}
    record = StreamRecord(
        probe=item,
        point="p",
        item=item,
        seed=1,
        path="/completion",
        request_sha256="0",
        connected_at_s=0,
        sent_at_s=0,
        closed_at_s=9,
        status=200,
        events=events,
        final={"tokens_predicted": n, "tokens_evaluated": 5, "stop_type": "limit", "timings": timings},
    ).model_copy(update=changes)
    return measure_probe(record, 1, llamacpp.probe_counts(record, 1, off=False, metrics=None, log=None), None, None, "")


def cell(*probes: ProbeMeasurement, client: ClientHealth = HEALTHY, concurrency: int = 1, **more: Any) -> Cell:
    return cell_of("w@1", concurrency, probes, client, 10.0, **more)


def test_quartiles_by_hand() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == Spread(median=3, low=2, high=4, least=1, most=5, n=5)
    assert spread([7.0]) == Spread(median=7, low=7, high=7, least=7, most=7, n=1)
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_medians_over_requests() -> None:
    found = cell(probe("a", ttft_s=0.1), probe("b", ttft_s=0.2), probe("c", ttft_s=0.9))
    assert found.numbers["ttft_any_s"].median == pytest.approx(0.2)
    assert found.numbers["decode_tokens_per_s"].median == pytest.approx(50)  # 10 tokens in 0.2 s
    assert found.numbers["completion_tokens"].median == 11
    assert found.numbers[WINDOW_SPEED].median == pytest.approx(33 / 10)  # 3 answers of 11 tokens in 10 s
    assert (found.n, found.n_ok, found.failures) == (3, 3, {})
    assert found.values["ttft_any_s"] == pytest.approx({"a": 0.1, "b": 0.2, "c": 0.9})


def test_acceptance_weighs_tokens_not_requests() -> None:
    found = cell(probe("a", draft=(10, 5)), probe("b", draft=(90, 9)))
    assert found.pooled["acceptance_rate"].value == pytest.approx(14 / 100)
    assert found.pooled["acceptance_rate_by_request"].value == pytest.approx((0.5 + 0.1) / 2)
    assert not found.warnings


def test_the_engines_own_counters_stand_in_where_requests_bring_none() -> None:
    from_metrics = {"acceptance_rate": Number(value=0.7, source={"file": "metrics.jsonl"})}
    found = cell(probe("a"), counted=from_metrics, by_position=[0.8, 0.6])
    assert found.pooled["acceptance_rate"].value == 0.7
    assert found.accepted_by_position == [0.8, 0.6]
    own = cell(probe("a", draft=(10, 5)), counted=from_metrics)
    assert own.pooled["acceptance_rate"].value == 0.5


@pytest.mark.parametrize("metric", [*BY_REQUEST, *POOLED, WINDOW_SPEED, "accepted_by_position"])
def test_what_is_missing_is_missing_with_its_reason_and_never_zero(metric: str) -> None:
    failed = probe("a", status=503, events=[], final={}, failure="probe_failed", failure_message="HTTP 503: no slot")
    found = cell(failed)
    number = found.accepted_by_position if metric == "accepted_by_position" else found.numbers.get(metric) or found.pooled.get(metric)
    assert isinstance(number, Withheld)
    assert number.withheld
    assert missing([found])[metric] == number.withheld
    assert found.failures == {"probe_failed: HTTP 503: no slot": 1}


def test_one_failed_request_spoils_no_median_and_is_counted() -> None:
    failed = probe("a", status=500, events=[], final={}, failure="probe_failed", failure_message="x")
    found = cell(failed, probe("b"), probe("c"))
    assert (found.n, found.n_ok) == (3, 2)
    assert found.numbers["ttft_any_s"].n == 2


def test_a_client_that_was_the_bottleneck_says_so() -> None:
    found = cell(probe("a"), client=HEALTHY.model_copy(update={"observed_concurrency": 0.5}), doubt="the client was late")
    assert found.warnings == ["the client was late", "0.50 requests were in flight on average, asked for were 1"]


@pytest.mark.parametrize(
    ("draft", "said"), [((100, 3), "the drafter seems dead: its first token is taken 3.0 %"), ((0, 0), "nothing was drafted")]
)
def test_a_dead_drafter_is_named(draft: tuple[int, int], said: str) -> None:
    (warning,) = cell(probe("a", draft=draft)).warnings
    assert said in warning


def survey(cells: list[Cell], **settings: Any) -> Survey:
    given = {
        "workloads": {"w@1": "abc"},
        "api": "llama",
        "model": "m",
        "max_tokens": 128,
        "temperature": 0.0,
        "seed": 1,
        "salt": "cache off",
        "n_warmup": 2,
    }
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Survey(
        agent_version="0",
        began_at=now,
        ended_at=now,
        server=ServerFacts(url="u", engine="llama-server", api="llama"),
        settings=Settings(**given | settings),
        cells=cells,
    )


def ladder(factor: float, n: int = 8) -> Cell:
    return cell(*(probe(f"i{k}", ttft_s=(0.1 + 0.01 * k) / factor, step_s=(0.02 + 0.001 * k) / factor) for k in range(n)))


def test_twice_as_fast_by_every_measure() -> None:
    (compared,) = compare_surveys(survey([ladder(1)]), survey([ladder(2)]))
    assert [r.metric for r in compared.ratios] == ["equal_work_s", "decode_tokens_per_s", "ttft_any_s"]
    for ratio in compared.ratios:
        assert ratio.ratio == pytest.approx(2)
        assert ratio.low == pytest.approx(2)  # each prompt is twice as fast
        assert ratio.high == pytest.approx(2)
        assert ratio.n == 8
    (back,) = compare_surveys(survey([ladder(2)]), survey([ladder(1)]))
    assert back.ratios[0].ratio == pytest.approx(0.5)


def test_a_wordier_answer_is_no_slower_one() -> None:
    a, b = cell(*(probe(f"i{k}", n=11) for k in range(4))), cell(*(probe(f"i{k}", n=31) for k in range(4)))
    (compared,) = compare_surveys(survey([a]), survey([b]))
    assert compared.ratios[0].ratio == pytest.approx(1)


def test_the_interval_holds_what_the_prompts_disagree_on() -> None:
    a = ladder(1)
    b = cell(*(probe(f"i{k}", ttft_s=0.1, step_s=0.01 if k % 2 else 0.04) for k in range(8)))
    (compared,) = compare_surveys(survey([a]), survey([b]))
    pace = compared.ratios[1]
    assert pace.low < 0.8 < 1.5 < pace.high
    (again,) = compare_surveys(survey([a]), survey([b]))
    assert again == compared


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"workloads": {"w@1": "xyz"}}, "workloads: w@1 abc and w@1 xyz"),
        ({"model": "other"}, "model: m and other"),
        ({"temperature": 0.8}, "temperature: 0.0 and 0.8"),
        ({"max_tokens": 64}, "max_tokens: 128 and 64"),
        ({"api": "chat"}, "api: llama and chat"),
        ({"seed": 2}, "seed: 1 and 2"),
        ({"salt": "text"}, "salt: cache off and text"),
    ],
)
def test_what_differs_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(SurveysDiffer, match=named):
        compare_surveys(survey([ladder(1)]), survey([ladder(1)], **changes))


def test_other_concurrencies_and_too_few_prompts() -> None:
    with pytest.raises(SurveysDiffer, match="no concurrency is in both"):
        compare_surveys(survey([ladder(1)]), survey([ladder(1).model_copy(update={"concurrency": 4})]))
    (compared,) = compare_surveys(survey([ladder(1, n=2)]), survey([ladder(1, n=2)]))
    assert compared.ratios == []
    assert "2 prompts have it in both, 3 are needed" in compared.notes[0]
    assert "no verdict" in NO_VERDICT


def test_doubts_go_along_into_the_comparison() -> None:
    (compared,) = compare_surveys(survey([ladder(1).model_copy(update={"warnings": ["the client was late"]})]), survey([ladder(1)]))
    assert compared.notes == ["A: the client was late"]


def test_it_survives_its_own_json() -> None:
    made = survey([ladder(1), cell(probe("a", draft=(10, 5)))])
    assert Survey.model_validate_json(made.model_dump_json()) == made
    assert made.definitions["acceptance_rate"].startswith("acceptance_rate/1: ")
