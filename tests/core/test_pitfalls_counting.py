"""Known ways to count tokens and latency wrongly under speculation, each held by a test with its number.

The numbers, 1 to 9 here, are those of a collection of public faults in benchmarks of speculation.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import specagent
import speccore
from speccore.compare import JobFacts, analyse_job
from speccore.engines import openai_stream
from speccore.measure import measure_attempt
from speccore.measurement import ComparisonResult, Number, Withheld, value_of
from speccore.times import LEAST_BATCH_RATIO, probe_times

from tests.core import made
from tests.core.recordings import LLAMA, evidence, spec_of
from tests.core.streams import stream_of

WORKLOADS = {"w": made.workload("w", n=4)}


def events_of(sizes: list[int], *, each_ms: float = 40.0) -> list[tuple[float, str]]:
    """/completion events that hold so many tokens each, and the final one with the server's count."""
    lines, n = [], 0
    for i, size in enumerate(sizes):
        ids = list(range(n, n + size))
        n += size
        lines.append(((100 + each_ms * i) / 1000, json.dumps({"content": "ab " * size, "tokens": ids, "stop": False})))
    final = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "tokens_predicted": n, "tokens_evaluated": 4}
    return [*lines, (lines[-1][0], json.dumps(final))]


def counts_of(lines: list[tuple[float, str]]) -> Any:
    parsed = LLAMA.stream_events(lines)
    record = stream_of([], events=parsed.events, final=parsed.final)
    return LLAMA.probe_counts(record, 1, off=True, metrics=None, log=None), probe_times(record, 1)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_pitfall_01_events_are_not_tokens(size: int) -> None:
    counts, times = counts_of(events_of([size] * 10))
    assert value_of(counts.completion_tokens) == 10 * size
    # nine chunks of `size` tokens in nine gaps of 40 ms, not nine tokens
    assert value_of(times.decode_tokens_per_s) == pytest.approx(9 * size / 0.360)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_pitfall_01_events_are_not_tokens_by_running_usage_either(size: int) -> None:
    lines = []
    for i in range(1, 11):
        usage = {"prompt_tokens": 4, "completion_tokens": i * size}
        last = {"finish_reason": "length"} if i == 10 else {"finish_reason": None}
        lines.append((0.1 + 0.04 * i, json.dumps({"choices": [{"index": 0, "delta": {"content": "x"}, **last}], "usage": usage})))
    parsed = openai_stream.stream_events(lines)
    assert sum(e.tokens for e in parsed.events) == 10 * size
    assert parsed.final["tokens_predicted"] == 10 * size


def imported_names(package: Any) -> dict[str, set[str]]:
    """The modules that each file of a package imports, by their first name."""
    found: dict[str, set[str]] = {}
    for path in Path(package.__file__).parent.rglob("*.py"):
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {a.name.split(".")[0] for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
        found[path.name] = names
    return found


def test_pitfall_02_pieces_are_never_tokenised_again() -> None:
    """No tokenizer is within reach of the client or of the parsers, and a word split over events counts by its ids."""
    tokenizers = {"tokenizers", "transformers", "tiktoken", "sentencepiece"}
    for package in (speccore, specagent):
        assert {name: used & tokenizers for name, used in imported_names(package).items() if used & tokenizers} == {}
    split = [
        (0.10, '{"content":"un","tokens":[1],"stop":false}'),
        (0.12, '{"content":"believ","tokens":[2],"stop":false}'),
        (0.14, '{"content":"able","tokens":[3],"stop":false}'),
        (0.14, '{"content":"","tokens":[],"stop":true,"stop_type":"eos","tokens_predicted":3}'),
    ]
    assert value_of(counts_of(split)[0].completion_tokens) == 3


def test_pitfall_03_a_peak_is_never_below_the_mean() -> None:
    """Peaks that count events fall under the mean with several tokens an event: here one event of 16 tokens every 400 ms."""
    times = probe_times(stream_of([(100 + 400 * i, 16) for i in range(12)]), 1)
    peak, mean = value_of(times.peak_tokens_per_s), value_of(times.decode_tokens_per_s)
    assert mean == pytest.approx(11 * 16 / 4.4)  # 40 tokens/s in 2.5 events/s
    assert peak is not None
    assert peak >= 40


def test_pitfall_04_chunk_gap_and_token_latency_are_two_metrics_and_gaps_are_not_compared() -> None:
    times = probe_times(stream_of([(100 + 40 * i, 4) for i in range(20)]), 1)
    assert value_of(times.chunk_gap_ms_p50) == pytest.approx(40)
    assert value_of(times.token_latency_ms) == pytest.approx(10)
    fields = ComparisonResult.model_fields
    assert "arm_chunk_gap_ms_p50" in fields
    assert [f for f in fields if "chunk_gap" in f and f.startswith("baseline")] == []


def test_pitfall_05_client_and_server_must_count_alike() -> None:
    files = evidence("b10434-draft4-lv4", [0], "draft")
    record = json.loads(files["records.jsonl"])
    record["events"] = [e for i, e in enumerate(record["events"]) if i % 2 == 0 or e["kind"] == "final"]  # half of them overheard
    files["records.jsonl"] = json.dumps(record).encode()
    probe = measure_attempt(files, spec_of(mode="draft", draft_model="d", draft_limit=4), WORKLOADS).probes[0]
    assert (probe.ok, probe.failure) == (False, "counts_disagree")
    assert "tokens: 32 by records.jsonl line 1 (events: ids); 64 by records.jsonl line 1 (final.tokens_predicted)" in probe.failure_message
    spec = made.spec_of(blocks=3)
    plan = made.planned(spec)
    broken = made.attempts(
        spec,
        plan,
        {"off": 1.0, "draft-4": 2.0},
        change=lambda t, p: {"ok": False, "failure": "counts_disagree", "failure_message": "x"} if t.arm != "off" else {},
    )
    verdict = analyse_job(spec, plan, broken, [], JobFacts()).comparisons[0].verdict
    assert (verdict.word, verdict.reason) == ("invalid", "counts agree")


def test_pitfall_06_token_percentiles_are_withheld_where_tokens_come_in_company() -> None:
    alone = probe_times(stream_of([(100 + 20 * i, 1) for i in range(10)]), 1)
    assert value_of(alone.batch_ratio) == 1
    assert value_of(alone.token_latency_ms_p95) == pytest.approx(20)
    pairs = probe_times(stream_of([(100 + 40 * i, 2) for i in range(10)]), 1)
    ratio = value_of(pairs.batch_ratio)
    assert ratio == 0.5 < LEAST_BATCH_RATIO
    for withheld in (pairs.token_latency_ms_p50, pairs.token_latency_ms_p95):
        assert isinstance(withheld, Withheld)
        assert withheld.reason_code == "tokens_batched"
    assert value_of(pairs.token_latency_ms) == pytest.approx(20)  # the mean is known all the same


def test_pitfall_07_ids_count_whatever_the_text_would_tokenise_to() -> None:
    spaces = [
        (0.10, json.dumps({"content": " " * 24, "tokens": [5, 5, 5], "stop": False})),
        (0.12, json.dumps({"content": "", "tokens": [7], "stop": False})),  # a token without text of its own
        (0.12, json.dumps({"content": "", "tokens": [], "stop": True, "stop_type": "eos", "tokens_predicted": 4})),
    ]
    counts, _ = counts_of(spaces)
    assert value_of(counts.completion_tokens) == 4
    assert isinstance(counts.completion_tokens, Number)
    assert counts.completion_tokens.source.field == "events: ids"


def test_pitfall_08_thinking_counts_and_has_a_first_token_of_its_own() -> None:
    def chunk(delta: dict[str, Any], n: int, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": n}})

    lines = [
        (0.08, chunk({"reasoning_content": "Let"}, 1)),
        (0.12, chunk({"reasoning_content": " me"}, 2)),
        (0.20, chunk({"content": "Yes"}, 3)),
        (0.24, chunk({"content": "."}, 4, "stop")),
    ]
    parsed = openai_stream.stream_events(lines)
    times = probe_times(stream_of([], events=parsed.events, final=parsed.final), 1)
    assert sum(e.tokens for e in parsed.events) == 4
    assert value_of(times.ttft_any_s) == pytest.approx(0.08)
    assert value_of(times.ttft_content_s) == pytest.approx(0.20)


def test_pitfall_09_one_counter_counts_all_arms() -> None:
    """Both arms' tokens come by the same function from the same fields of the same file."""
    ways = set()
    for case, arm in (("b10434-off", "off"), ("b10434-draft4-lv4", "draft"), ("b10434-ngram-simple-lv4", "draft")):
        measured = measure_attempt(evidence(case, [0], arm), spec_of(mode="draft", draft_model="d", draft_limit=4), WORKLOADS)
        tokens = measured.probes[0].completion_tokens
        assert isinstance(tokens, Number)
        ways.add((tokens.source.file, tokens.source.field, *(n.source.field for n in tokens.also if n.source.file == "records.jsonl")))
    assert ways == {("records.jsonl", "events: ids", "final.tokens_predicted", "final.timings.predicted_n")}
