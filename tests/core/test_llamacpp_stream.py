"""What llama-server streams: events, tokens, cycles, and counts that agree or don't."""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.cycles import Cycle, accepted_by_position, cycles
from speccore.engines import MetricsPair
from speccore.measurement import Maybe, Withheld, value_of
from speccore.records import StreamRecord
from speccore.times import probe_times

from tests.core.recordings import LLAMA, LOGS, read, record, stream

HELD = "b10434-held-tokens-draft4-lv4"
HELD_OFF = "b10434-held-tokens-off-lv4"


def counts(r: StreamRecord, *, off: bool = False, metrics: MetricsPair | None = None, log: Any = None) -> Any:
    return LLAMA.probe_counts(r, 1, off=off, metrics=metrics, log=log)


def around(case: str, n: int) -> MetricsPair:
    before, after = (LLAMA.parse_metrics(read(f"{case}.{when}{n}.metrics.txt")) for when in ("before", "after"))
    return MetricsPair(before=before, after=after, line=2)


def number(m: Maybe) -> float | None:
    return value_of(m)


# tokens and events


def test_one_event_for_each_token_with_its_id() -> None:
    parsed = stream("b10434-draft4-lv4", 0)
    assert len(parsed.events) == 65
    assert [e.tokens for e in parsed.events] == [1] * 64 + [0]
    assert parsed.events[-1].kind == "final"
    assert parsed.ids[:3] == [[262], [368], [674]]
    assert parsed.final["tokens_predicted"] == 64
    assert parsed.final["stop_type"] == "limit"
    assert "prompt" not in parsed.final
    assert "content" not in parsed.final
    assert parsed.generation_settings["speculative.types"] == "none,draft-simple"
    assert parsed.failure == ""


def test_tokens_inside_a_character_are_counted_when_it_is_whole() -> None:
    parsed = stream(HELD, 1)
    assert [e.tokens for e in parsed.events] == [4, *[2] * 10, 0]
    assert [e.without_id for e in parsed.events] == [3, *[1] * 10, 0]
    client = counts(record(HELD, 1)).completion_tokens
    assert client.value == 24
    assert client.source.field == "events: ids, and 13 held back"


def test_tokens_that_never_became_a_character_come_with_the_final_event() -> None:
    parsed = stream(HELD, 2)
    assert [e.tokens for e in parsed.events] == [4, 2, 1]
    assert parsed.events[-1].kind == "final"
    assert number(counts(record(HELD, 2)).completion_tokens) == number(counts(record(HELD, 2)).server_tokens) == 7


def test_a_gap_that_no_character_explains_stays_a_disagreement() -> None:
    lines = [(1.0, line) for line in read("b10434-draft4-lv4.resp0.sse").splitlines() if line.startswith("data: {")]
    lost = LLAMA.stream_events(lines[:20] + lines[21:])
    r = record("b10434-draft4-lv4", 0, events=lost.events)
    assert number(counts(r).completion_tokens) == 63
    assert any(d.startswith("tokens: 63 by records.jsonl") and "64" in d for d in counts(r).disagreements)


def test_without_ids_the_running_count_counts() -> None:
    lines = []
    for line in read("b10434-draft4-lv4.resp0.sse").splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            del event["tokens"]
            lines.append((1.0, json.dumps(event)))
    parsed = LLAMA.stream_events(lines)
    assert [e.tokens for e in parsed.events] == [1] * 64 + [0]
    client = counts(record("b10434-draft4-lv4", 0, events=parsed.events)).completion_tokens
    assert (client.value, client.source.field) == (64, "events: the engine's running count")


def test_answer_of_one_token() -> None:
    for r in (record("b10434-draft4-lv4", 1), record(HELD, 5)):
        c = counts(r)
        assert number(c.completion_tokens) == number(c.server_tokens) == 1
        assert number(c.counters.emitted) == 0
        assert number(c.counters.decode_steps) == 0
        assert isinstance(c.counters.eval_ms, Withheld)
    assert counts(record("b10434-draft4-lv4", 1)).finish_reason == "stop"


def test_empty_answer_is_whole_and_has_no_numbers() -> None:
    parsed = LLAMA.stream_events([(1.0, '{"content":"","tokens":[],"stop":true,"tokens_predicted":0,"stop_type":"none"}')])
    assert parsed.failure == ""
    c = counts(record(HELD, 0, events=parsed.events, final=parsed.final))
    assert number(c.completion_tokens) == 0
    assert isinstance(c.counters.emitted, Withheld)
    assert c.disagreements == []


@pytest.mark.parametrize(
    ("lines", "said", "n_events"),
    [
        ([], "the stream ended early: 0 events and no final one", 0),
        (['{"content":"a","tokens":[5],"stop":false}'], "the stream ended early: 1 events", 1),
        (['{"content":"a","tokens":[5]}', '{"error":{"code":500,"message":"slot lost"}}', "[DONE]"], "reported an error: slot lost", 2),
        (['{"content":"a","tokens":[5]}', '{"error":"plain words"}'], "reported an error: plain words", 2),
        (['{"content":"a","tokens":[5]}', '{"content":"b'], "an event of the stream is not JSON", 2),
        (["[1, 2]"], "an event of the stream is no JSON object", 1),
    ],
)
def test_broken_streams_fail_and_keep_what_came(lines: list[str], said: str, n_events: int) -> None:
    parsed = LLAMA.stream_events([(i / 10, line) for i, line in enumerate(lines)])
    assert parsed.failure == "probe_failed"
    assert said in parsed.failure_message
    assert len(parsed.events) == n_events == len(parsed.texts) == len(parsed.ids)


# cycles


def test_cycles_of_a_draft_model() -> None:
    steps = cycles(record("b10434-draft4-lv4", 0))
    assert steps is not None
    assert len(steps) == 29
    assert steps[:4] == [
        Cycle(4, 1, 2, pytest.approx(2.84), False),
        Cycle(4, 0, 1, pytest.approx(2.185), False),
        Cycle(4, 0, 1, pytest.approx(2.088), False),
        Cycle(4, 2, 3, pytest.approx(2.059), False),
    ]
    assert accepted_by_position([c.accepted for c in steps], [c.drafted for c in steps]) == [
        13,
        10,
        6,
        5,
    ]  # the log: 0.448, 0.345, 0.207, 0.172 of 29


def test_counts_of_a_draft_model() -> None:
    c = counts(record("b10434-draft4-lv4", 0)).counters
    got = [number(m) for m in (c.drafted, c.accepted, c.verify_steps, c.decode_steps, c.emitted, c.committed, c.eval_ms)]
    assert got == [116, 34, 29, 29, 63, 63, 65.872]
    assert c.accepted_by_position == [13, 10, 6, 5]
    assert round(1 + c.accepted.value / c.verify_steps.value, 2) == 2.17  # the log's "mean len"
    assert c.drafted.source.model_dump() == {"file": "records.jsonl", "line": 1, "field": "events: last draft_n"}


def test_ngram_steps_without_a_draft_count_as_decode_steps() -> None:
    c = counts(record("b10434-ngram-simple-lv4", 0)).counters
    assert [number(m) for m in (c.drafted, c.accepted, c.verify_steps, c.decode_steps)] == [69, 20, 9, 43]
    assert c.accepted_by_position == [7, 6, 3, 2, 2, 0, 0, 0]


def test_two_drafters_at_once() -> None:
    c = counts(record("b11434-ngram-mod-and-draft-lv4", 0)).counters
    assert [number(m) for m in (c.drafted, c.accepted, c.verify_steps, c.decode_steps)] == [132, 31, 32, 32]
    assert c.accepted_by_position == [16, 10, 3, 2, 0, 0, 0, 0]


def test_last_cycle_may_accept_what_was_not_sent() -> None:
    r = record("b10434-draft4-lv4", 0)
    cut = r.model_copy(update={"events": [*r.events[:7], r.events[-1].model_copy(update={"predicted_n": 7, "predicted_ms": 9.172})]})
    cut = cut.model_copy(update={"final": {"tokens_predicted": 7, "stop_type": "eos", "timings": {"predicted_n": 7, "draft_n": 16}}})
    c = counts(cut)
    assert number(c.counters.committed) == 7  # one more than the six that were sent after the prefill's
    assert number(c.counters.emitted) == 6
    assert c.disagreements == []


def test_a_cycle_in_the_middle_that_sends_less_is_a_disagreement() -> None:
    r = record("b10434-draft4-lv4", 0)
    moved = [e.model_copy(update={"predicted_ms": 3.0}) if e.predicted_n == 3 else e for e in r.events]
    found = counts(r.model_copy(update={"events": moved})).disagreements
    assert any("cycle 1 of the stream sent 1 tokens after accepting 1" in d for d in found)


def test_the_last_cycle_cannot_send_more_than_it_made() -> None:
    r = record("b10434-draft4-lv4", 0)
    ms = [e.predicted_ms for e in r.events]
    last = max(ms)  # type: ignore[type-var]
    before = max(m for m in ms if m is not None and m != last)
    merged = [e.model_copy(update={"predicted_ms": last}) if e.predicted_ms == before else e for e in r.events]
    found = counts(r.model_copy(update={"events": merged})).disagreements
    assert any("cycle 28 of the stream sent" in d for d in found)


def test_without_cycles_an_answer_that_ended_by_itself_may_hide_accepted_tokens() -> None:
    """At the length limit nothing is drafted beyond it; an end of its own may come inside a cycle."""
    r = record("b10434-draft4-lv4", 0)
    fields = dict.fromkeys(("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted"))
    blind = r.model_copy(update={"events": [e.model_copy(update=fields) for e in r.events]})
    assert number(counts(blind).counters.decode_steps) == 29
    ended = counts(blind.model_copy(update={"final": {**r.final, "stop_type": "eos"}})).counters
    assert isinstance(ended.decode_steps, Withheld)
    assert isinstance(ended.committed, Withheld)


def test_cycles_hidden_by_held_tokens_are_told_by_the_identity_and_by_metrics() -> None:
    r = record(HELD, 1)
    alone = counts(r).counters
    assert number(alone.drafted) == 82
    assert number(alone.decode_steps) == 23  # 24 tokens, nothing accepted, the first from the prefill
    assert isinstance(alone.verify_steps, Withheld)
    assert isinstance(alone.accepted_by_position, Withheld)
    both = counts(r, metrics=around(HELD, 1))
    steps = both.counters.verify_steps
    assert steps.value == 22
    assert steps.source.file == "metrics.jsonl"
    assert both.counters.accepted_by_position == [0, 0, 0, 0]
    assert both.disagreements == []


# sources and cross-checks


@pytest.mark.parametrize("n", range(6))
def test_stream_final_metrics_and_log_agree_in_every_recorded_answer(n: int) -> None:
    for case, off in ((HELD, False), (HELD_OFF, True)):
        log = LLAMA.log_requests(read(f"{case}.log"))[n]
        assert counts(record(case, n), off=off, metrics=around(case, n), log=log).disagreements == []


@pytest.mark.parametrize("case", ["b10434-draft4-lv4", "b11434-draft4-lv4", "b10434-ngram-simple-lv4", "b11434-ngram-mod-and-draft-lv4"])
def test_stream_and_log_agree_in_both_builds(case: str) -> None:
    log = LLAMA.log_requests(read(f"{case}.log"))[0]
    c = counts(record(case, 0), log=log)
    assert c.disagreements == []
    assert c.counters.draft_ms.source.file == "server.log"


def test_each_source_that_differs_is_named() -> None:
    r, log = record("b10434-draft4-lv4", 0), LLAMA.log_requests(read("b10434-draft4-lv4.log"))[0]
    wrong = log.model_copy(update={"tokens": 60, "accepted": 33, "verify_steps": 28})
    found = counts(r, log=wrong).disagreements
    assert [d.split(":")[0] for d in found] == ["tokens", "accepted", "verify_steps"]
    assert "34 by records.jsonl line 1 (events: last draft_n_accepted)" in found[1]
    assert "33 by server.log line 322 (draft acceptance)" in found[1]
    final = {**r.final, "timings": {**r.final["timings"], "draft_n": 200}}
    assert counts(r.model_copy(update={"final": final})).disagreements[0].startswith("drafted: 116 by")


def test_without_per_token_timings_the_final_response_counts() -> None:
    r = record("b10434-draft4-lv4", 0)
    blind = r.model_copy(
        update={
            "events": [e.model_copy(update=dict.fromkeys(("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted"))) for e in r.events]
        }
    )
    c = counts(blind).counters
    assert [number(m) for m in (c.drafted, c.accepted, c.decode_steps)] == [116, 34, 29]
    assert c.drafted.source.field == "final.timings.draft_n"
    assert isinstance(c.verify_steps, Withheld)
    assert isinstance(c.accepted_by_position, Withheld)
    logged = counts(blind, log=LLAMA.log_requests(read("b10434-draft4-lv4.log"))[0]).counters
    assert number(logged.verify_steps) == 29


def test_speculation_off_withholds_draft_counts() -> None:
    c = counts(record("b10434-off", 0), off=True)
    assert c.speculation_reported is False
    assert number(c.counters.decode_steps) == number(c.counters.emitted) == 63
    for m in (c.counters.drafted, c.counters.accepted, c.counters.verify_steps, c.counters.draft_ms, c.counters.accepted_by_position):
        assert isinstance(m, Withheld)
        assert m.withheld == "speculation is off"
    held = counts(record(HELD_OFF, 1), off=True).counters
    assert number(held.decode_steps) == 23


def test_no_drafts_are_zero_only_if_a_source_says_so() -> None:
    r = record("b10434-off", 0)
    assert isinstance(counts(r).counters.drafted, Withheld)
    c = counts(r, metrics=around(HELD_OFF, 0)).counters
    assert (number(c.drafted), c.drafted.source.file) == (0, "metrics.jsonl")
    assert (number(c.verify_steps), c.accepted_by_position) == (0, [])


def test_server_that_does_not_say_whether_it_speculates() -> None:
    assert counts(record("b10434-draft4-lv4", 1)).speculation_reported is None
    assert counts(record("b10434-draft4-lv4", 0)).speculation_reported is True


def test_cache_hits() -> None:
    assert [number(counts(record("b10434-cache-hit", n), off=True).cache_hit_tokens) for n in (0, 1)] == [0, 127]
    assert [number(counts(record("b11434-cache-hit", n), off=True).prompt_tokens) for n in (0, 1)] == [128, 128]


def test_metrics_text() -> None:
    parsed = LLAMA.parse_metrics(read("b10434-draft4-lv4.metrics.txt"))
    assert parsed["llamacpp:spec_decode_num_drafts_total"] == 58
    assert parsed["llamacpp:spec_decode_num_accepted_tokens_per_pos_total"] == {"0": 26, "1": 20, "2": 12, "3": 10}
    assert LLAMA.parse_metrics('a_created 5\nb{x="1",y="2"} 3\nc nonsense\n# HELP d\n') == {"b": {'x="1",y="2"': 3}}


def test_metrics_growth_sums_labels_and_knows_the_missing() -> None:
    pair = MetricsPair(before={"a": 1.0, "b": {"0": 2.0}}, after={"a": 4.0, "b": {"0": 3.0, "1": 5.0}, "c": 1.0}, line=1)
    assert (pair.growth("a"), pair.growth("b"), pair.growth("c"), pair.growth("d")) == (3, 6, None, None)
    assert pair.growth_by_label("b") == {"0": 1, "1": 5}


# streams with right values that were scripted, not recorded

SCRIPTED = {c["name"]: c for c in json.loads((LOGS.parent / "streams.json").read_text(encoding="utf-8"))}
#: Other engines' fields, or faults of HTTP that never reach this parser.
ELSEWHERE = {"ids-and-usage-disagree", "token-ids-an-event", "http-503-with-a-body", "html-instead-of-a-stream"}


def scripted(name: str) -> StreamRecord:
    data, lines = b"", []
    for ms, content, kind in SCRIPTED[name]["segments"]:
        data += bytes.fromhex(content) if kind == "hex" else content.encode()
        *whole, data = data.split(b"\n\n")
        lines += [(ms / 1000, line.decode()) for event in whole for line in event.split(b"\n")]
    parsed = LLAMA.stream_events(lines)
    return record(
        "b10434-off",
        0,
        events=parsed.events,
        final=parsed.final,
        sent_at_s=0.0,
        failure=parsed.failure,
        failure_message=parsed.failure_message,
    )


@pytest.mark.parametrize("name", sorted(SCRIPTED.keys() - ELSEWHERE))
def test_scripted_stream(name: str) -> None:
    expect, r = SCRIPTED[name]["expect"], scripted(name)
    c, times = counts(r), probe_times(r, 1)
    assert (r.failure == "") is expect["valid"]
    assert expect.get("message_contains", "") in r.failure_message
    if "tokens" in expect:
        tokens = number(c.completion_tokens)
        assert (number(c.server_tokens) if tokens is None else tokens) == expect["tokens"]
    for key, got in (("ttft_any_ms", times.ttft_any_s), ("ttft_content_ms", times.ttft_content_s), ("last_token_ms", times.e2e_s)):
        if key in expect:
            assert number(got) == (expect[key] if expect[key] is None else pytest.approx(expect[key] / 1000))
    if "decode_tokens_per_s" in expect:
        wanted = expect["decode_tokens_per_s"]
        assert number(times.decode_tokens_per_s) == (wanted if wanted is None else pytest.approx(wanted))
    if expect.get("first_chunk_tokens") is not None:
        assert times.n_first == expect["first_chunk_tokens"]
    if "finish_reason" in expect:
        assert c.finish_reason == expect["finish_reason"]
    if "cycles" in expect:
        steps = cycles(r) or []
        assert [(s.drafted, s.accepted, s.emitted, pytest.approx(s.ms)) for s in steps] == [
            (w["drafted"], w["accepted"], w["committed"], w["ms"]) for w in expect["cycles"]
        ]
