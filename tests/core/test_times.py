"""Durations of one request: chunks, gaps, latency by token, peaks, and arrivals that are bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speccore.measurement import Maybe, Number, Withheld, value_of
from speccore.times import percentile, probe_times

from tests.core.streams import stream_of


def said(m: Maybe) -> str:
    assert isinstance(m, Withheld)
    return m.withheld


def test_gaps_beside_a_bound_are_left_out() -> None:
    # arrivals 100, 120, 150, 170, 200 ms; the one at 150 was joined with later bytes and is a bound
    times = probe_times(stream_of([(100, 1), (120, 1), (150, 1), (170, 1), (200, 1)], queued=[2]), 1)
    assert times.n_queued_events == 1
    assert value_of(times.chunk_gap_ms_p50) == pytest.approx(20)  # of 20 and 30 the smaller is the nearest rank at one half
    assert value_of(times.chunk_gap_ms_p95) == pytest.approx(30)
    assert isinstance(times.chunk_gap_ms_p95, Number)
    assert times.chunk_gap_ms_p95.source.field == "p95 of 2 of 4 gaps between chunks"
    assert value_of(times.decode_tokens_per_s) == pytest.approx(4 / 0.1)  # its ends were stamped exactly


def test_no_exact_gap_is_no_gap() -> None:
    times = probe_times(stream_of([(100, 1), (120, 1), (150, 1)], queued=[1]), 1)
    assert "upper bound" in said(times.chunk_gap_ms_p50)
    assert "exact arrivals" in said(times.token_latency_ms_p95)


def test_a_first_arrival_that_is_a_bound_says_so() -> None:
    ttft = probe_times(stream_of([(100, 1), (120, 1)], queued=[0]), 1).ttft_any_s
    assert isinstance(ttft, Number)
    assert "an upper bound" in ttft.source.field


def test_one_arrival_has_no_pace() -> None:
    times = probe_times(stream_of([(100, 3), (100.4, 2)]), 1)
    assert (times.n_chunks, times.n_first) == (1, 5)
    assert value_of(times.batch_ratio) == pytest.approx(1 / 5)
    for m in (
        times.decode_tokens_per_s,
        times.chunk_gap_ms_p50,
        times.token_latency_ms,
        times.token_latency_ms_p95,
        times.peak_tokens_per_s,
    ):
        assert "one arrival" in said(m)


def test_what_arrives_before_it_was_sent_was_stamped_late() -> None:
    times = probe_times(stream_of([(100, 1), (120, 1)], sent_at_s=0.11), 1)
    assert "stamped as sent" in said(times.ttft_any_s)
    assert value_of(times.e2e_s) == pytest.approx(0.01)
    assert value_of(times.decode_tokens_per_s) == pytest.approx(50)


def test_arrivals_that_run_backwards_are_no_times() -> None:
    times = probe_times(stream_of([(100, 1), (50, 1), (120, 1)]), 1)
    assert "run backwards" in said(times.ttft_any_s)
    assert "run backwards" in said(times.decode_tokens_per_s)
    jitter = probe_times(stream_of([(100, 1), (99.99, 1), (120, 1)]), 1)
    assert value_of(jitter.ttft_any_s) == pytest.approx(0.1)


def test_nearest_rank() -> None:
    values = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert [percentile(values, q) for q in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


@given(st.lists(st.tuples(st.floats(0, 400), st.integers(1, 16)), min_size=2, max_size=60))
def test_the_peak_is_never_below_the_mean(steps: list[tuple[float, int]]) -> None:
    at, arrivals = 100.0, []
    for gap, tokens in steps:
        at += gap
        arrivals.append((at, tokens))
    times = probe_times(stream_of(arrivals), 1)
    peak, mean = value_of(times.peak_tokens_per_s), value_of(times.decode_tokens_per_s)
    if peak is not None:
        assert mean is not None
        assert peak >= mean * (1 - 1e-9)
    assert (peak is None) is (mean is None or arrivals[-1][0] - arrivals[0][0] < 1000 - 1e-6)
