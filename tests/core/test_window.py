"""The window of requests that ran together: when it begins and ends, what came in it, and why there may be none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from speccore.measurement import Number, Withheld, value_of
from speccore.records import StreamRecord
from speccore.window import load_of, loads, window_of

from tests.core.made import spec_of
from tests.core.streams import stream_of

POINT = "count/c2/ctx0/t0"


def answer(sent_s: float, at_s: Sequence[float], *, tokens: int = 1, closed_s: float | None = None, **more: object) -> StreamRecord:
    """A request sent at ``sent_s`` whose events of so many tokens arrive at ``at_s``."""
    closed = closed_s if closed_s is not None else max([sent_s, *at_s])
    return stream_of([(1000 * t, tokens) for t in at_s], sent_at_s=sent_s, closed_at_s=closed, point=POINT, **more)


def numbered(*records: StreamRecord) -> list[tuple[int, StreamRecord]]:
    return list(enumerate(records, 1))


#: Two at once. Both decode from 2 s on; the last is sent at 6 s.
FOUR = (
    answer(0, [1, 2, 3, 4]),
    answer(0, [2, 3, 4, 5, 6]),
    answer(4, [5, 6, 7, 8]),
    answer(6, [7, 8, 9]),
)


def test_from_all_decoding_until_the_last_is_sent() -> None:
    assert window_of(FOUR, 2) == (2.0, 6.0)


def test_tokens_in_the_window_by_its_seconds() -> None:
    load = load_of(POINT, 2, numbered(*FOUR))
    # after 2 s and up to 6 s: at 3, 4 of the first; 3, 4, 5, 6 of the second; 5, 6 of the third
    assert isinstance(load.tokens_per_s, Number)
    assert load.tokens_per_s.value == 8 / 4
    assert load.tokens_per_s.source.line == 1
    assert load.tokens_per_s.source.field.startswith("8 tokens ÷ 4.000 s, from second 2.000 to 6.000, over 4 requests")
    assert (load.n_requests, load.concurrency, load.window_s) == (4, 2, (2.0, 6.0))


def test_events_of_several_tokens_count_their_tokens() -> None:
    threes = [r.model_copy(update={"events": [e.model_copy(update={"tokens": 3}) for e in r.events]}) for r in FOUR]
    assert value_of(load_of(POINT, 2, numbered(*threes)).tokens_per_s) == 24 / 4


def test_in_flight_is_from_sending_to_the_end() -> None:
    # 2 … 6 s: the first is in flight until 4, the second throughout, the third from 4 on: always two
    assert value_of(load_of(POINT, 2, numbered(*FOUR)).observed_concurrency) == 2.0
    late = (*FOUR[:2], answer(5, [5.5, 6, 7, 8]), FOUR[3])  # nobody took the first one's place between 4 and 5 s
    assert value_of(load_of(POINT, 2, numbered(*late)).observed_concurrency) == (2 + 4 + 1) / 4


def test_the_order_of_the_records_does_not_matter() -> None:
    there, back = (load_of(POINT, 2, numbered(*rs)) for rs in (FOUR, FOUR[::-1]))
    assert value_of(there.tokens_per_s) == value_of(back.tokens_per_s)
    assert there.window_s == back.window_s


def test_one_that_ends_when_the_next_begins_makes_no_two() -> None:
    found = window_of([answer(0, [1, 2]), answer(0, [2, 3]), answer(9, [10, 11])], 2)
    assert found == Withheld(withheld="never were 2 requests decoding at once, 1 at most", reason_code="no_window")


def test_an_engine_with_fewer_slots_than_requests_has_no_window() -> None:
    """The client has three in flight, the engine answers two at a time."""
    found = window_of([answer(0, [1, 3]), answer(0, [1, 3]), answer(0, [4, 6]), answer(3, [4, 6])], 3)
    assert isinstance(found, Withheld)
    assert found.withheld == "never were 3 requests decoding at once, 2 at most"


def test_an_answer_that_came_all_at_once_never_decodes() -> None:
    found = window_of([answer(0, [1]), answer(0, [1, 5]), answer(0, [2]), answer(2, [3, 4, 9]), answer(5, [6])], 2)
    assert found == (3.0, 5.0)
    assert isinstance(window_of([answer(0, [1]), answer(0, [1]), answer(1, [2])], 2), Withheld)


def test_without_a_queue_there_is_no_window() -> None:
    found = load_of(POINT, 2, numbered(answer(0, [1, 9]), answer(0, [2, 9])))
    assert isinstance(found.tokens_per_s, Withheld)
    assert found.tokens_per_s.withheld == "no request was waiting any more when all 2 were decoding for the first time"
    assert found.observed_concurrency == found.tokens_per_s
    assert found.window_s is None


def test_tokens_that_nobody_counted_are_not_none() -> None:
    uncounted = [r.model_copy(update={"events": [e.model_copy(update={"tokens": 0, "uncounted": True}) for e in r.events]}) for r in FOUR]
    found = load_of(POINT, 2, numbered(*uncounted))
    assert isinstance(found.tokens_per_s, Withheld)
    assert found.tokens_per_s.reason_code == "no_client_count"
    assert value_of(found.observed_concurrency) == 2.0  # which needs no count


def test_a_window_in_which_nothing_came_has_no_speed() -> None:
    found = load_of(POINT, 2, numbered(answer(0, [1, 9]), answer(0, [2, 9]), answer(3, [], failure="probe_failed")))
    assert isinstance(found.tokens_per_s, Withheld)
    assert found.tokens_per_s.withheld == "no token came in the window of 1.000 s"


def test_what_a_request_brought_before_it_failed_was_work_too() -> None:
    broken = FOUR[2].model_copy(update={"failure": "probe_failed"})
    assert value_of(load_of(POINT, 2, numbered(*FOUR[:2], broken, FOUR[3])).tokens_per_s) == 8 / 4


def test_only_points_with_several_at_once_and_no_warm_up() -> None:
    spec = spec_of(points=[{"workload": "count"}, {"workload": "count", "concurrency": 2}], engine={"slots": 2})
    alone = FOUR[0].model_copy(update={"point": "count/c1/ctx0/t0"})
    warm = FOUR[0].model_copy(update={"warmup": True, "sent_at_s": 99.0})
    (found,) = loads(spec, numbered(alone, warm, *FOUR))
    assert (found.point, found.n_requests, found.window_s) == (POINT, 4, (2.0, 6.0))
    assert isinstance(found.tokens_per_s, Number)
    assert found.tokens_per_s.source.line == 3
    assert loads(spec, numbered(alone)) == []


@pytest.mark.parametrize("c", [2, 5, 16])
def test_a_closed_loop_of_equal_answers_has_its_speed(c: int) -> None:
    """Each answer takes 11 s, a token a second but for the first, and the lanes start a little apart."""
    records = [answer(11 * turn + lane / 128, [11 * turn + lane / 128 + t for t in range(2, 12)]) for turn in range(4) for lane in range(c)]
    load = load_of(POINT, c, numbered(*records))
    assert load.window_s == pytest.approx((2 + (c - 1) / 128, 33 + (c - 1) / 128))
    # in 31 s each lane brings three answers of 10 tokens, but for the first token, with which or before which the window began
    assert value_of(load.tokens_per_s) == pytest.approx(29 * c / 31)
    assert value_of(load.observed_concurrency) == pytest.approx(c)
