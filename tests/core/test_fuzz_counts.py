"""Garbage in logs, metrics and records: no crash, no hang, no number that isn't one, and no contradiction that goes unsaid."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from speccore.engines import vllm_counts
from speccore.measure import measure_attempt
from speccore.measurement import AttemptMeasurement, Number, ProbeMeasurement, value_of

from tests.core import made
from tests.core.recordings import LLAMA, read, spec_of
from tests.core.recordings import evidence as made_evidence
from tests.core.test_missing import numbers

WORKLOADS = {"w": made.workload("w", n=6)}
SPEC = spec_of(mode="draft", draft_model="draft", draft_limit=4)
LV4, HELD = "b10434-draft4-lv4", "b10434-held-tokens-draft4-lv4"
quickly = settings(max_examples=60, deadline=20_000, suppress_health_check=[HealthCheck.too_slow])

#: Pieces that the parsers look for, so that garbage comes near to what they understand.
PIECES = st.sampled_from(
    [
        "prompt eval time = ",
        "eval time = ",
        " ms / ",
        " tokens",
        "draft acceptance = ",
        " accepted / ",
        " generated)",
        ", mean len = ",
        "acc per pos = (",
        "statistics draft-simple: ",
        "#gen drafts = ",
        "dur(b,g,a) = ",
        " buffer size = ",
        " MiB",
        "offloaded 5/5 layers to GPU",
        "n_slots = ",
        "llamacpp:spec_decode_num_drafts_total ",
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} ',
        "vllm:spec_decode_num_draft_tokens_total ",
        "SpecDecoding metrics: ",
        "Accepted: ",
        "Drafted: ",
        "nan",
        "inf",
        "1e999",
        "-5",
        "1.2.3",
        "٣",
        "9" * 5000,
        "0",
        "64",
        "(",
        ", ",
        "\n",
        "\x0c",
        "\u2028",
        "\r\n",
        "{",
        "}",
    ]
)
GARBAGE = st.one_of(st.text(max_size=300), st.lists(PIECES | st.text(max_size=5), max_size=40).map("".join))


def is_count(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and math.isfinite(value) and value >= 0)


@quickly
@given(GARBAGE)
@example("prompt eval time = 1 ms / 5 tokens\neval time = 1.2.3 ms / 64 tokens")
@example("prompt eval time = 1 ms / " + "9" * 5000 + " tokens")
@example("prompt eval time = 1 ms / ٣ tokens")
def test_any_text_as_a_log(text: str) -> None:
    facts = LLAMA.parse_log(text)
    assert all(is_count(v) and v for v in facts.memory_mib.values())
    lines = text.count("\n") + 1
    for request in LLAMA.log_requests(text):
        assert all(is_count(v) for v in (request.tokens, request.eval_ms, request.drafted, request.accepted, request.mean_length))
        assert all(is_count(v) for v in (request.verify_steps, request.draft_ms, *request.rate_by_position))
        assert 1 <= request.line <= lines
    assert LLAMA.start_failure(text, 1).body().code
    LLAMA.memory_fault(text, -9, kernel_oom=True)


@quickly
@given(GARBAGE)
@example("llamacpp:spec_decode_num_drafts_total 1e999")
def test_any_text_as_metrics(text: str) -> None:
    for value in LLAMA.parse_metrics(text).values():
        for number in value.values() if isinstance(value, dict) else [value]:
            assert math.isfinite(number)
    totals = vllm_counts.totals(text)
    assert all(is_count(getattr(totals, name)) for name in vllm_counts.ALIASES)
    assert all(is_count(n) for n in totals.accepted_by_position or [])
    assert all(line >= 1 and is_count(a) and is_count(b) for line, a, b in vllm_counts.log_intervals(text))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["metrics", "speculative_decoding", "per_step_drafted", "per_step_accepted", "num_spec_steps"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@quickly
@given(JSON)
def test_any_json_as_a_reply(value: Any) -> None:
    steps = vllm_counts.request_steps(value if isinstance(value, dict) else {"metrics": value})
    if steps is not None and not steps.faults:
        assert len(steps.drafted) == len(steps.accepted)
        assert all(0 <= a <= d for a, d in zip(steps.accepted, steps.drafted, strict=True))


# --- recordings with something in them changed ---

MUTATIONS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.sampled_from(["digit", "cut", "insert", "double", "swap"]), st.integers(0, 9)),
    min_size=1,
    max_size=6,
)


def mutated(data: bytes, changes: list[tuple[float, str, int]]) -> bytes:
    """A digit exchanged, some bytes or a line taken out, doubled or put elsewhere."""
    for at, kind, n in changes:
        i = int(at * len(data))
        if kind == "digit":
            digits = [j for j in range(i, min(i + 400, len(data))) if 48 <= data[j] <= 57]
            if digits:
                data = data[: digits[0]] + str(n).encode() + data[digits[0] + 1 :]
        elif kind == "cut":
            data = data[:i] + data[i + 1 + 7 * n :]
        elif kind == "insert":
            data = data[:i] + [b"0", b"-", b"e9", b"\n", b'"', b"null", b"\xff", b"}", b".", b"99999999999"][n] + data[i:]
        else:
            lines = data.split(b"\n")
            k = int(at * len(lines))
            if kind == "double":
                lines.insert(k, lines[k])
            else:
                other = (k + 1 + n) % len(lines)
                lines[k], lines[other] = lines[other], lines[k]
            data = b"\n".join(lines)
    return data


@cache
def recorded(case: str) -> dict[str, bytes]:
    return made_evidence(case, [0, 1, 2] if case == LV4 else [0, 1, 2, 3, 4, 5], "draft")


def consistent(p: ProbeMeasurement) -> None:
    """What holds in every answer that is called valid."""
    counts = {n: value_of(getattr(p.counters, n)) for n in ("drafted", "accepted", "verify_steps", "decode_steps", "committed", "emitted")}

    def ordered(less: str, more: str) -> None:
        a, b = counts[less], counts[more]
        assert a is None or b is None or a <= b, f"{less} {a} > {more} {b}"

    ordered("accepted", "drafted")
    ordered("verify_steps", "decode_steps")
    ordered("emitted", "committed")
    ordered("verify_steps", "drafted")
    tokens, accepted = value_of(p.completion_tokens), counts["accepted"]
    if tokens is not None and counts["emitted"] is not None:
        assert counts["emitted"] == tokens - 1
    if isinstance(p.counters.accepted_by_position, list):
        assert p.counters.accepted_by_position == sorted(p.counters.accepted_by_position, reverse=True)
        if accepted is not None:
            assert sum(p.counters.accepted_by_position) == accepted
    for m in (p.completion_tokens, p.counters.drafted, p.counters.accepted, p.counters.verify_steps):
        if isinstance(m, Number):
            assert {n.value for n in m.also} <= {m.value}, "sources differ and nothing was said"


def sound(m: AttemptMeasurement) -> None:
    for path, value in numbers(m):
        if isinstance(value, Number):
            assert math.isfinite(value.value), path
            assert value.value >= 0, path
    for p in m.probes:
        if p.ok:
            consistent(p)


@pytest.mark.parametrize("case", [LV4, HELD])
@pytest.mark.parametrize("name", ["server.log", "metrics.jsonl", "records.jsonl"])
@quickly
@given(changes=MUTATIONS)
def test_a_recording_that_was_tampered_with(name: str, case: str, changes: list[tuple[float, str, int]]) -> None:
    files = recorded(case)
    m = measure_attempt(files | {name: mutated(files[name], changes)}, SPEC, WORKLOADS)
    sound(m)
    if name == "server.log":  # what the stream counted stands, whatever the log says
        for was, now in zip(measure_attempt(files, SPEC, WORKLOADS).probes, m.probes, strict=True):
            for before, after in ((was.counters.drafted, now.counters.drafted), (was.counters.accepted, now.counters.accepted)):
                if isinstance(before, Number) and before.source.file == "records.jsonl":
                    assert value_of(after) == before.value


@quickly
@given(st.dictionaries(st.sampled_from(sorted(recorded(LV4))), st.binary(max_size=200), min_size=1))
def test_any_bytes_as_evidence(files: dict[str, bytes]) -> None:
    sound(measure_attempt(recorded(LV4) | files, SPEC, WORKLOADS))


@quickly
@given(st.dictionaries(st.sampled_from(["tokens_predicted", "tokens_evaluated", "timings", "stop_type", "truncated"]), JSON))
def test_any_json_as_the_end_of_an_answer(final: dict[str, Any]) -> None:
    files = recorded(LV4)
    record = json.loads(files["records.jsonl"].split(b"\n")[0])
    m = measure_attempt(files | {"records.jsonl": json.dumps(record | {"final": final}).encode()}, SPEC, WORKLOADS)
    sound(m)


def test_the_recordings_themselves_are_sound() -> None:
    for case in (LV4, HELD):
        m = measure_attempt(recorded(case), SPEC, WORKLOADS)
        assert all(p.ok for p in m.probes)
        sound(m)
    assert LLAMA.parse_metrics(read(f"{LV4}.metrics.txt"))
