"""What vLLM says of one request: recorded answers in every mode, streams cut and garbled, builds that count less."""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.engines import MetricsPair, vllm_steps
from speccore.engines.shapes import ProbeCounts
from speccore.measurement import Number, Withheld, value_of
from speccore.records import StreamRecord

from tests.core.vllm_recordings import SPECULATING, VLLM, asked, pair, read, record, record_of

COUNTS = ("drafted", "accepted", "verify_steps", "decode_steps", "emitted")


def counted(r: StreamRecord, *, off: bool = False, metrics: MetricsPair | None = None) -> ProbeCounts:
    found: ProbeCounts = VLLM.probe_counts(r, 1, off=off, metrics=metrics, log=None)
    return found


def numbers(counts: ProbeCounts) -> dict[str, float | None]:
    return {name: value_of(getattr(counts.counters, name)) for name in COUNTS}


def without(r: StreamRecord, *names: str) -> StreamRecord:
    """The same answer of a build that doesn't say these of its speculation, or nothing at all."""
    final = json.loads(json.dumps(r.final))
    if not names:
        del final["metrics"]
    for name in names:
        final["metrics"]["speculative_decoding"].pop(name)
    return r.model_copy(update={"final": final})


# --- the stream ---


def test_tokens_come_from_ids_and_never_from_events() -> None:
    """An event may hold 53 tokens, or one without text."""
    parsed = VLLM.stream_events([(at, line) for at, line in asked("draft3")[0]["events"]])
    assert [e.tokens for e in parsed.events] == [53, 1, 1, 0]
    assert parsed.texts[2] == ""
    assert parsed.final["tokens_predicted"] == 55 == sum(map(len, parsed.ids))
    assert (parsed.final["stop_type"], parsed.final["prompt_ids"], parsed.final["tokens_evaluated"]) == ("eos", 13, 13)
    assert parsed.failure == ""
    assert parsed.final["metrics"]["speculative_decoding"]["num_spec_steps"] == 15


def test_without_ids_the_running_usage_counts() -> None:
    lines = []
    for at, line in asked("draft3")[1]["events"]:
        if line.startswith("data: {"):
            data = json.loads(line[6:])
            for choice in data["choices"]:
                choice.pop("token_ids", None)
                choice.pop("prompt_token_ids", None)
            line = "data: " + json.dumps(data)
        lines.append((at, line))
    parsed = VLLM.stream_events(lines)
    whole = record("draft3", 1)
    assert [e.tokens for e in parsed.events] == [e.tokens for e in whole.events]
    counts = counted(record_of(parsed), metrics=pair("draft3", 1))
    assert counts.disagreements == []
    assert isinstance(counts.completion_tokens, Number)
    assert counts.completion_tokens.source.field == "events: the engine's running count"


def test_without_ids_and_usage_nothing_is_guessed_from_the_text() -> None:
    text = read("draft-per-request-completions_stream_true.txt")
    parsed = VLLM.stream_events([(i / 10, line) for i, line in enumerate(text.splitlines())])
    counts = counted(record_of(parsed))
    assert isinstance(counts.completion_tokens, Withheld)
    assert value_of(counts.server_tokens) == 40
    assert [value_of(n) for n in (counts.counters.drafted, counts.counters.accepted, counts.counters.verify_steps)] == [27, 21, 7]
    assert isinstance(counts.counters.decode_steps, Withheld)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('data: {"error": {"message": "the engine is dead", "code": 500}}', "the engine is dead"),
        ('data: {"choices": [{"index": 0, "text": "x", "finish_reason": "abort"}]}', "ended the answer itself: finish_reason abort"),
        ('data: {"choices": [', "not JSON"),
        ("", "ended early"),
    ],
)
def test_a_stream_that_fails_keeps_what_came_and_says_why(line: str, said: str) -> None:
    began = [(at, told) for at, told in asked("ngram4")[0]["events"][:4]]
    parsed = VLLM.stream_events([*began, (9.0, line)])
    assert parsed.failure == "probe_failed"
    assert said in parsed.failure_message
    assert sum(e.tokens for e in parsed.events) == 4


# --- counts ---


@pytest.mark.parametrize("case", SPECULATING)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_every_source_of_a_recorded_answer_says_the_same(case: str, n: int) -> None:
    counts = counted(record(case, n), metrics=pair(case, n))
    assert counts.disagreements == []
    assert counts.speculation_reported is True
    c = counts.counters
    for number in (c.drafted, c.accepted, c.verify_steps):
        assert isinstance(number, Number)
        assert number.source.file == "records.jsonl"
        assert [other.source.file for other in number.also] == ["metrics.jsonl"]
    told = numbers(counts)
    assert None not in told.values()
    committed = value_of(c.committed)
    assert committed is not None
    assert 0 <= committed - (told["emitted"] or 0) <= 16  # what the last step accepted and nobody got
    assert isinstance(c.accepted_by_position, list)
    assert sum(c.accepted_by_position) == told["accepted"]
    assert value_of(counts.cache_hit_tokens) == 0
    prompt, decoding = value_of(counts.prompt_ms), value_of(c.eval_ms)
    assert prompt
    assert decoding
    closed = record(case, n).events[-1].at_s - 10
    assert prompt + decoding < 1000 * closed + 1  # the engine's own times lie inside the client's


def test_counters_hold_tokens_that_nobody_got() -> None:
    """The last step accepted two tokens beyond the end of the answer."""
    counts = counted(record("draft3", 0), metrics=pair("draft3", 0))
    assert numbers(counts) == {"drafted": 45, "accepted": 42, "verify_steps": 15, "decode_steps": 15, "emitted": 54}
    assert value_of(counts.counters.committed) == 57
    assert counts.counters.accepted_by_position == [14, 14, 14]
    assert counts.finish_reason == "stop"


def test_steps_without_a_draft_are_decode_steps_all_the_same() -> None:
    counts = counted(record("ngram4", 1), metrics=pair("ngram4", 1))
    assert numbers(counts) == {"drafted": 48, "accepted": 45, "verify_steps": 12, "decode_steps": 22, "emitted": 63}


def test_a_speculating_server_that_found_nothing_has_a_zero_that_is_known() -> None:
    counts = counted(record("ngram4", 0), metrics=pair("ngram4", 0))
    assert numbers(counts) == {"drafted": 0, "accepted": 0, "verify_steps": 0, "decode_steps": 54, "emitted": 54}
    assert counts.counters.accepted_by_position == []
    assert counts.speculation_reported is True


def test_off_has_no_draft_counts_and_its_steps_are_its_tokens() -> None:
    counts = counted(record("off", 0), off=True, metrics=pair("off", 0))
    assert counts.speculation_reported is None  # the reply has no counts, and an absent counter may have another name
    assert counts.disagreements == []
    assert numbers(counts) == {"drafted": None, "accepted": None, "verify_steps": None, "decode_steps": 54, "emitted": 54}
    assert isinstance(counts.counters.decode_steps, Number)
    assert [n.value for n in counts.counters.decode_steps.also] == [54]
    alone = counted(record("off", 0), off=True)
    assert isinstance(alone.cache_hit_tokens, Withheld)


def test_a_reply_with_a_limit_of_zero_says_that_speculation_is_off_and_has_no_zeros() -> None:
    sums = {"num_spec_tokens": 0, "num_spec_steps": 0, "num_draft_tokens": 0, "num_accepted_draft_tokens": 0, "acceptance_histogram": [0]}
    final = record("off", 0).final | {"metrics": {"speculative_decoding": sums}}
    counts = counted(record("off", 0).model_copy(update={"final": final}), metrics=pair("off", 0))
    assert counts.speculation_reported is False
    assert isinstance(counts.counters.drafted, Withheld)
    assert counts.counters.drafted.reason_code == "not_engaged"
    assert isinstance(counts.counters.accepted_by_position, Withheld)


def test_a_build_without_counts_by_request_has_them_from_metrics() -> None:
    blind = counted(without(record("draft3", 1)), metrics=pair("draft3", 1))
    whole = counted(record("draft3", 1), metrics=pair("draft3", 1))
    assert numbers(blind) == numbers(whole)
    assert blind.counters.accepted_by_position == whole.counters.accepted_by_position
    assert blind.disagreements == []
    assert isinstance(blind.counters.drafted, Number)
    assert blind.counters.drafted.place() == "metrics.jsonl line 4 (vllm:spec_decode_num_draft_tokens_total after − before)"
    prompt = value_of(blind.prompt_ms)
    assert prompt == pytest.approx(value_of(whole.prompt_ms), rel=1e-6)
    assert value_of(blind.counters.eval_ms) == pytest.approx(value_of(whole.counters.eval_ms), rel=1e-6)


def test_sums_by_request_give_positions_without_a_list_of_steps() -> None:
    """What ``--per-request-spec-decode-metrics summary`` says."""
    summed = counted(without(record("draft3", 1), "per_step_drafted", "per_step_accepted"))
    whole = counted(record("draft3", 1))
    assert {n: v for n, v in numbers(summed).items() if n != "decode_steps"} == {
        n: v for n, v in numbers(whole).items() if n != "decode_steps"
    }
    assert summed.counters.accepted_by_position == whole.counters.accepted_by_position


def test_unknown_metrics_are_missing_by_name_and_never_numbers() -> None:
    renamed = MetricsPair(before={"vllm:other_total": 1.0}, after={"vllm:other_total": 9.0}, line=2)
    counts = counted(without(record("draft3", 1)), metrics=renamed)
    for number in (counts.counters.drafted, counts.counters.accepted, counts.counters.verify_steps):
        assert isinstance(number, Withheld)
        assert number.withheld.startswith("metrics missing: vllm:spec_decode_num_")
    assert isinstance(counts.counters.accepted_by_position, Withheld)
    assert isinstance(counts.counters.decode_steps, Withheld)
    assert counts.speculation_reported is None
    assert counts.disagreements == []


def test_older_names_of_counters_are_known() -> None:
    before, after = (
        {name.removesuffix("_total"): v for name, v in side.items()} for side in (pair("draft3", 1).before, pair("draft3", 1).after)
    )
    counts = counted(without(record("draft3", 1)), metrics=MetricsPair(before=before, after=after, line=2))
    assert [value_of(n) for n in (counts.counters.drafted, counts.counters.accepted, counts.counters.verify_steps)] == [75, 38, 25]


def test_metrics_of_several_engines_are_summed_and_times_are_no_counts() -> None:
    text = read("asked-draft3.metrics3.txt")
    once, twice = VLLM.parse_metrics(text), VLLM.parse_metrics(text + text.replace('engine="0"', 'engine="1"'))
    assert twice["vllm:spec_decode_num_drafts_total"] == 2 * once["vllm:spec_decode_num_drafts_total"] == 162
    assert once["vllm:spec_decode_num_accepted_tokens_per_pos_total"] == {"0": 53.0, "1": 27.0, "2": 23.0}
    assert not [name for name in once if name.endswith("_created")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_draft_tokens": 74}, "the reply's list of steps: drafted: 75 by step, 74 by num_draft_tokens"),
        ({"per_step_accepted": [3] * 25}, "accepted: 75 by step, 38 by num_accepted_draft_tokens"),
    ],
)
def test_a_reply_that_contradicts_itself_or_the_counters_is_named(change: dict[str, Any], said: str) -> None:
    r = record("draft3", 1)
    final = json.loads(json.dumps(r.final))
    final["metrics"]["speculative_decoding"] |= change
    counts = counted(r.model_copy(update={"final": final}), metrics=pair("draft3", 1))
    assert any(said in d for d in counts.disagreements)


def test_somebody_else_at_the_server_is_a_disagreement() -> None:
    around_two = MetricsPair(before=pair("draft3", 0).before, after=pair("draft3", 1).after, line=4)
    found = counted(record("draft3", 1), metrics=around_two).disagreements
    assert any(d.startswith("tokens: 64 by") for d in found)
    assert any(d.startswith("drafted: 75 by") for d in found)


def test_requests_together_must_add_up_to_the_counters_growth() -> None:
    around_all = MetricsPair(before=pair("draft3", 0).before, after=pair("draft3", 2).after, line=6)
    counts = [counted(record("draft3", n)) for n in range(3)]
    assert VLLM.window_disagreements(counts, around_all) == []
    tokens, drafted, *_ = VLLM.window_disagreements(counts[:2], around_all)
    assert tokens == "tokens: 119 in 2 requests by records.jsonl; 183 by metrics.jsonl line 6 (vllm:generation_tokens_total after − before)"
    assert "drafted: 120" in drafted


def test_a_server_that_speculates_in_the_place_of_the_baseline_is_found_out_where_requests_run_together() -> None:
    """Nobody reads /metrics around one of them, and an attached server's replies need not tell of speculation."""
    counts = [counted(without(record("draft3", n)), off=True) for n in range(3)]
    assert {c.speculation_reported for c in counts} == {None}
    speculating = MetricsPair(before=pair("draft3", 0).before, after=pair("draft3", 2).after, line=6)
    [said] = VLLM.window_disagreements(counts, speculating)
    assert said == "mode is off, yet the server counts drafts: vllm:spec_decode_num_drafts_total by metrics.jsonl line 6"
    plain = MetricsPair(before=pair("off", 0).before, after=pair("off", 2).after, line=6)
    assert VLLM.window_disagreements([counted(record("off", n), off=True) for n in range(3)], plain) == []


# --- the steps that a stream shows ---


def shown(sizes: list[int], accepted: list[int], drafted: int = 4) -> vllm_steps.StreamSteps | None:
    events = [{"at_s": i, "tokens": n} for i, n in enumerate(sizes)]
    r = StreamRecord.model_validate(record("off", 0).model_dump() | {"events": events})
    return vllm_steps.stream_steps(r, vllm_steps.Steps([drafted] * len(accepted), accepted))


@pytest.mark.parametrize(
    ("sizes", "accepted", "steps"),
    [
        ([1, 5, 1, 3, 1], [4, 2], (4, 0)),
        ([1, 5, 1, 3], [4, 0, 2], (3, 0)),
        ([1, 5, 5, 3], [4, 4, 4], (3, 2)),  # the limit cut the last
        ([1, 5, 1], [4, 3], (2, 3)),
        ([1, 1, 1], [], (2, 0)),
        ([1], [], (0, 0)),
        ([1, 6, 3], [4, 2], None),  # two steps share an event
        ([6, 3], [4, 2], None),  # the prefill's token came with a step
        ([1, 5, 3], [4, 0, 2], None),
        ([1, 3, 5], [4, 2], None),
    ],
)
def test_steps_are_told_from_events_only_where_each_event_is_one(
    sizes: list[int], accepted: list[int], steps: tuple[int, int] | None
) -> None:
    assert shown(sizes, accepted) == (None if steps is None else vllm_steps.StreamSteps(*steps))


def test_the_stream_and_the_counters_tell_the_same_steps() -> None:
    """Alone with its stream, where no step shared an event; else the steps are missing without the counters."""
    told = {}
    for case in SPECULATING:
        for n in range(3):
            with_metrics, alone = (value_of(counted(record(case, n), metrics=m).counters.decode_steps) for m in (pair(case, n), None))
            told[case, n] = alone
            assert alone in (None, with_metrics)
    assert told["draft3", 1] == 25
    assert told["draft3", 0] is None


# --- asked once more ---


def test_asking_again_brings_the_gap_of_each_token_by_its_id() -> None:
    body = asked("off")[0]["request"]
    again = VLLM.look_again(body)
    assert (again["stream"], again["logprobs"], again["return_tokens_as_token_ids"]) == (False, 2, True)
    assert "stream_options" not in again
    assert again["return_token_ids"] is True
    assert {k: again[k] for k in ("prompt", "seed", "max_tokens", "temperature")} == {
        k: body[k] for k in ("prompt", "seed", "max_tokens", "temperature")
    }
    data = json.loads(read("asked-again.json"))
    ids, gaps = VLLM.read_look(data)
    assert ids[:6] == [21, 199, 22, 199, 23, 199]
    assert (len(ids), len(gaps), gaps[0]) == (48, 48, 4.3193)
    assert min(gaps) > 0
    assert VLLM.is_cut(data)
    assert VLLM.read_ids(data) == ids
    assert VLLM.read_drafted(data) is None  # that server did not speculate


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: c.update(token_ids=None), "no token ids"),
        (lambda c: c.update(logprobs=None), "no probabilities"),
        (lambda c: c["logprobs"]["tokens"].reverse(), "not those of its tokens"),
        (lambda c: c["logprobs"]["top_logprobs"].__setitem__(3, {"token_id:199": -0.1}), "not those of its tokens"),
    ],
)
def test_a_look_that_lacks_something_says_what(spoil: Any, said: str) -> None:
    data = json.loads(read("asked-again.json"))
    spoil(data["choices"][0])
    assert said in VLLM.read_look(data)


def test_drafted_tokens_of_a_whole_answer() -> None:
    assert VLLM.read_drafted(json.loads(read("draft-per-request-completions_stream_false.txt"))) == 27
    assert VLLM.read_drafted({"metrics": None}) is None
    assert VLLM.read_drafted([]) is None
