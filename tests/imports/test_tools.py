"""Real output of each tool: what is read of it, and what is said beside it."""

from __future__ import annotations

import json

import pytest
from speccore.importers import TOOLS, Number, Reading, read_file, tool_of
from speccore.metrics import METRICS

from tests.imports.recorded import RECORDED, content


def figures(reading: Reading, run: int = 0) -> dict[tuple[str, str], Number]:
    return {(n.kind.name, n.kind.statistic): n for n in reading.runs[run].numbers}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_file_is_known_and_read_whole(name: str) -> None:
    slug, n_runs = RECORDED[name]
    assert tool_of(content(name)) == slug
    found = read_file(content(name))
    assert (found.faults, len(found.runs)) == ((), n_runs)
    for run in found.runs:
        assert run.numbers
        for number in run.numbers:
            assert number.kind.definition
            assert number.value is not None
            assert number.value >= 0
            assert not number.kind.metric or number.kind.metric in METRICS


def test_every_tool_has_recorded_output() -> None:
    assert {slug for slug, _ in RECORDED.values()} == set(TOOLS)


def test_vllm_s_peak_counts_events_and_that_is_said() -> None:
    found = read_file(content("vllm-0.32-four-tokens-an-event.json"))
    run, numbers = found.runs[0], figures(found)
    assert (run.model, run.concurrency, run.prompt_tokens, run.output_tokens, run.n_requests, run.n_failed) == (
        "replay-model",
        16,
        100,
        200,
        80,
        0,
    )
    assert numbers["Output tokens a second", "whole run"].value == pytest.approx(778.7, abs=0.1)
    peak = numbers["Peak output", "max"]
    assert peak.value == 224
    assert "counts events" in peak.kind.caution
    assert any("peak of 224" in w for w in found.warnings)
    assert "No time per token" in numbers["ITL", "mean"].kind.caution
    assert numbers["ITL", "mean"].kind.metric == "chunk_gap_ms_p50"  # a gap of chunks, never a latency of tokens
    assert numbers["TPOT", "mean"].kind.metric == "token_latency_ms"


def test_vllm_s_speculation_is_read_with_its_positions() -> None:
    numbers = figures(read_file(content("vllm-0.32-ngram.json")))
    assert numbers["Acceptance rate", "whole run"].value == pytest.approx(66.67, abs=0.01)
    assert numbers["Acceptance length", "whole run"].value == pytest.approx(3.554, abs=0.001)
    assert [name for name, _ in numbers if name.startswith("Accepted at position")] == [f"Accepted at position {i}" for i in range(1, 5)]
    assert ("Acceptance rate", "whole run") not in figures(read_file(content("vllm-0.32-off.json")))  # missing, not 0


def test_llama_bench_is_a_baseline_of_the_engine_alone() -> None:
    found = read_file(content("llama-bench-b11434.json"))
    assert {r.arm for r in found.runs} == {"off"}
    assert [r.title for r in found.runs][:3] == ["pp64", "tg16", "pp64 + tg16"]
    assert [r.context_tokens for r in found.runs] == [0, 0, 0, 128, 128, 128]
    by_title = {r.title: r.numbers[0].kind for r in found.runs}
    assert (by_title["tg16"].metric, by_title["pp64"].metric, by_title["pp64 + tg16"].metric) == ("decode_tokens_per_s", "", "")
    assert found.runs[0].hardware == "AMD EPYC"
    assert found.runs[0].model.startswith("llama")


def test_speed_bench_has_a_run_for_each_category() -> None:
    found = read_file(content("speed-bench-b11434.json"))
    assert [r.title for r in found.runs] == ["math", "coding", "overall"]
    assert figures(found, 1)["Acceptance rate", "whole run"].value == pytest.approx(87 / 207)
    assert found.runs[2].output_tokens == 48
    assert found.runs[2].n_requests == 6
    assert "first token counts" in figures(found)["Decoding", "mean"].kind.caution


def test_aiperf_that_counted_with_another_tokenizer_is_told() -> None:
    found = read_file(content("aiperf-0.13-llama-server.json"))
    (warning,) = found.warnings
    assert "235 output tokens" in warning
    assert "256" in warning
    assert "-8.2%" in warning
    assert found.runs[0].output_tokens == pytest.approx(29.375)
    assert found.version == "0.13.0"
    assert read_file(content("aiperf-0.13-four-tokens-an-event.json")).warnings == ()


def test_guidellm_s_names_are_told_from_other_tools_of_the_same_name() -> None:
    found = read_file(content("guidellm-0.8-llama-server.json"))
    numbers = figures(found)
    assert "Not what other tools call TPOT" in numbers["Time per output token", "mean"].kind.caution
    assert numbers["Time per output token", "mean"].kind.metric == ""
    assert numbers["ITL", "mean"].kind.metric == "token_latency_ms"
    # of rates over time only the mean is one of the run
    assert [s for name, s in numbers if name == "Output tokens a second"] == ["mean"]


def test_what_guidellm_did_not_measure_is_missing_though_it_writes_zeros() -> None:
    found = read_file(content("guidellm-0.8-llama-server.json").replace(b'"count": 4', b'"count": 0'))
    assert ("TTFT", "mean") not in figures(found)


def test_benchy_s_depths_and_streams_are_runs_of_their_own() -> None:
    found = read_file(content("benchy-0.4-llama-server.json"))
    assert sorted((r.context_tokens, r.concurrency) for r in found.runs) == [(0, 1), (0, 2), (128, 1), (128, 2)]
    assert "laid evenly" in figures(found)["Peak generation", "mean"].kind.definition


def test_servebench_s_failed_requests_are_told() -> None:
    found = read_file(content("servebench-1.1-llama-server.json"))
    assert [r.n_failed for r in found.runs] == [3, 2]
    assert len([w for w in found.warnings if "failed" in w]) == 2


def test_servebench_that_counted_events_says_so_beside_the_number() -> None:
    found = read_file(content("servebench-1.1-four-tokens-an-event.json").replace(b'"usage": 80', b'"chunks": 80'))
    rate = figures(found)["Output tokens a second", "whole run"]
    assert "the tokens are events" in rate.kind.caution
    assert any("tokens are events" in w for w in found.warnings)


def test_results_appended_line_by_line_are_runs_of_one_file() -> None:
    one = content("vllm-0.32-off.json").strip()
    found = read_file(one + b"\n" + one + b"\n")
    assert [r.line for r in found.runs] == [1, 2]


def test_a_field_that_the_tool_does_not_know_has_a_name_that_can_be_kept() -> None:
    whole = json.loads(content("vllm-0.32-off.json")) | {"a\ud800b\x00\n" + "c" * 500: "own"}
    (run,) = read_file(json.dumps(whole).encode()).runs
    (name,) = [k for k, v in run.settings.items() if v == "own"]
    assert (name.encode().decode(), name.isprintable(), len(name)) == (name, True, 80)
