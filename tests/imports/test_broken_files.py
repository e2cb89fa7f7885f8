"""Files that are cut, renamed, of another unit or version, or hostile: refused with the place and the remedy, and nothing of them is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speccore.importers import TOOLS, ImportFault, read_file
from speccore.importers.places import MAX_BYTES

from tests.imports.recorded import ONE_OF_EACH, RECORDED, changed, content


def only_fault(data: bytes, tool: str = "") -> ImportFault:
    found = read_file(data, tool)
    assert found.runs == ()
    assert found.faults
    assert found.n_faults >= len(found.faults)
    return found.faults[0]


#: Tool, path, what stands there instead, what the reason says, the field that it names.
BROKEN: list[tuple[str, str, Any, str, str]] = [
    ("vllm", "output_throughput", ..., "is missing", "output_throughput"),
    ("vllm", "duration", 20_546.0, "does not agree", "output_throughput"),
    ("vllm", "mean_ttft_ms", -1.0, "is negative", "mean_ttft_ms"),
    ("vllm", "p99_ttft_ms", 1e-6, "above its p99", "median_ttft_ms"),
    ("vllm", "completed", "80", "is no number", "completed"),
    ("vllm", "output_throughput", 1e12, "more than", "output_throughput"),
    ("llama-bench", "1.avg_ts", 6.07, "does not agree", "[1].avg_ts"),
    ("llama-bench", "0.n_gen", ..., "is missing", "[0].n_gen"),
    ("llama-bench", "0.n_prompt", 64.5, "is no whole number", "[0].n_prompt"),
    ("speed-bench", "summary.1.accept_rate", 42.0, "more than 1", "summary[1].accept_rate"),
    ("speed-bench", "summary.1.accept_rate", 0.9, "does not agree", "summary[1].accept_rate"),
    ("speed-bench", "summary", {"overall": 1}, "is no array", "summary"),
    ("guidellm", "metadata.version", 1, "only format 2", "metadata.version"),
    ("guidellm", "benchmarks.0.metrics.time_to_first_token_ms.successful.mean", 0.0773, "does not agree", "benchmarks[0].metrics.time_to_first_token_ms.successful.mean"),
    ("guidellm", "benchmarks.0.metrics.inter_token_latency_ms", ..., "is missing", "benchmarks[0].metrics.inter_token_latency_ms"),
    ("aiperf", "schema_version", "2.0", "only schema 1.x", "schema_version"),
    ("aiperf", "time_to_first_token.unit", "s", "is in 's'", "time_to_first_token.unit"),
    ("aiperf", "request_latency.p99", 1.0, "above its p99", "request_latency"),
    ("llama-benchy", "benchmarks.0.tg_throughput.mean", 1.0, "does not agree", "benchmarks[0].tg_throughput.mean"),
    ("llama-benchy", "benchmarks.0.tg_throughput", 50.0, "is no object", "benchmarks[0].tg_throughput"),
    ("servebench", "schema_version", 2, "only 1 is read", "schema_version"),
    ("servebench", "levels.0.summary.output_throughput", 0.6528, "does not agree", "levels[0].summary.output_throughput"),
    ("servebench", "levels.0.summary.ttft.p50", True, "is no number", "levels[0].summary.ttft.p50"),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "path", "value", "reason", "field"), BROKEN, ids=[f"{b[0]} {b[1]} {b[3]}" for b in BROKEN])
def test_a_broken_file_is_refused_with_its_place(tool: str, path: str, value: Any, reason: str, field: str) -> None:
    fault = only_fault(changed(ONE_OF_EACH[tool], path, value))
    assert reason in fault.reason
    assert fault.field == field
    assert fault.remedy
    assert fault.line is not None
    assert value is ... or fault.line > 1


@pytest.mark.parametrize("tool", ONE_OF_EACH)
def test_not_a_number_is_refused_with_its_line(tool: str) -> None:
    text = json.dumps(json.loads(content(ONE_OF_EACH[tool])), indent=1)
    for word in ("NaN", "Infinity", "-Infinity"):
        place = text.index("\n", len(text) // 2)
        broken = text[:place] + f'\n"later": {word},' + text[place:]
        if not broken[:place].rstrip().endswith((",", "{")):
            broken = text.replace("{", '{"first": ' + word + ",", 1)
        fault = only_fault(broken.encode(), tool)
        assert word in fault.reason
        assert fault.line == broken.count("\n", 0, broken.index(word)) + 1


@pytest.mark.parametrize("name", RECORDED)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(share=st.floats(0, 0.995))
def test_a_file_that_ends_too_early_gives_no_run_of_its_last_text(name: str, share: float) -> None:
    whole = content(name)
    cut = whole[: int(len(whole.rstrip()) * share)]
    found = read_file(cut, RECORDED[name][0])
    if name.endswith(".jsonl") and cut.rstrip().endswith(b"}"):
        assert len(found.runs) < RECORDED[name][1]
    else:
        assert found.runs == ()
        assert found.faults


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), st.text(max_size=20), st.just(10**400), st.just([]), st.just({})
)


@pytest.mark.parametrize("tool", ONE_OF_EACH)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_stands_in_one_place_is_read_or_refused_in_words(tool: str, data: st.DataObject) -> None:
    whole = json.loads(content(ONE_OF_EACH[tool]))
    place: Any = whole
    while isinstance(place, dict | list) and place:
        keys = list(place) if isinstance(place, dict) else list(range(min(len(place), 4)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 5)) == 0:
            place[key] = data.draw(values)
            break
        place = place[key]
    found = read_file(json.dumps(whole).encode(), tool)
    for fault in found.faults:
        assert fault.reason
        assert fault.remedy
    for run in found.runs:
        for number in run.numbers:
            assert number.value is not None
            assert 0 <= number.value < 1e13


HOSTILE = {
    "empty": (b"", "is empty"),
    "spaces": (b" \n ", "is empty"),
    "UTF-16": ("{}".encode("utf-16"), "UTF-16"),
    "binary": (b'{"a": "\xff\xfe"}', "no UTF-8"),
    "deep": (b"[" * 200_000, "nested deeper"),
    "deep objects": (b'{"a":' * 5_000 + b"1", "nested deeper"),
    "many digits": (b'{"a": ' + b"9" * 5_000 + b"}", "5,000 digits"),
    "twice": (b'{"a": 1,\n "a": 2}', "is there twice"),
    "nobody's": (b'{"a": 1}', "of no tool"),
    "a text": (b'{"aiperf_version": "\\ud800", "schema_version": "\\ud800"}', "only schema"),
    "an open string of escapes": (b'["' + b'\\"' * 200_000, "is no JSON"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(case: str) -> None:
    data, reason = HOSTILE[case]
    assert reason in only_fault(data).reason


def test_a_file_beyond_the_limit_is_refused_before_it_is_read() -> None:
    assert "at most" in only_fault(b"{" + b" " * MAX_BYTES + b"}", "vllm").reason


def test_a_number_beyond_all_is_refused_with_its_place() -> None:
    data = content("vllm-0.32-off.json").replace(b'"mean_ttft_ms": 14.', b'"mean_ttft_ms": 1e400, "was": 14.')
    fault = only_fault(data)
    assert (fault.field, fault.reason) == ("mean_ttft_ms", "is no number")


def test_a_renamed_key_is_named() -> None:
    assert (
        "total_output_tokenz"
        in only_fault(content("vllm-0.32-off.json").replace(b'"total_output_tokens"', b'"total_output_tokenz"')).remedy
    )


@pytest.mark.parametrize(("tool", "path"), [("aiperf", "aiperf_version"), ("servebench", "environment.servebench_version"), ("llama-benchy", "version"), ("guidellm", "metadata.guidellm_version")])  # fmt: skip
def test_another_version_of_the_same_format_is_read_and_named(tool: str, path: str) -> None:
    found = read_file(changed(ONE_OF_EACH[tool], path, "9.9.1"))
    assert found.faults == ()
    assert found.version == "9.9.1"
    if tool != "aiperf":  # its schema has a version of its own
        assert any("9.9.1" in w for w in found.warnings)


@pytest.mark.parametrize("name", ["aiperf-0.13-llama-server.csv", "servebench-1.1-requests.csv", "llama-bench-b11434.csv"])
def test_a_table_beside_the_real_file_sends_one_to_that(name: str) -> None:
    fault = only_fault(content(name))
    assert "CSV" in fault.reason
    assert "json" in fault.remedy.lower()


@pytest.mark.parametrize("tool", TOOLS)
def test_a_key_in_the_file_is_found_before_the_file_is_kept(tool: str) -> None:
    text = content(ONE_OF_EACH[tool]).decode()
    fault = only_fault(text.replace("{", '{"api_key": "sk-abcdef0123",', 1).encode(), tool)
    assert "key or password" in fault.reason
    assert "sk-" not in fault.words


def test_a_key_on_a_recorded_command_line_is_found() -> None:
    fault = only_fault(changed(ONE_OF_EACH["aiperf"], "run_info.cli_command", "aiperf profile --api-key 'sk-abcdef0123' -m x"))
    assert fault.field == "run_info.cli_command"
    assert "sk-" not in fault.words


@pytest.mark.parametrize(
    ("data", "tool", "words"),
    [
        (b'{"a":1}\n' * 2_001, "vllm", "2,001 results"),
        (b"[" + b"{}," * 40_000 + b"{}]", "llama-bench", "40,001 objects"),
        (b"{" + b",".join(b'"k%d":1' % i for i in range(30_000)) + b"}", "vllm", "is missing"),
    ],
    ids=["lines", "objects", "names"],
)
def test_more_than_any_tool_writes_is_refused_before_each_is_read(data: bytes, tool: str, words: str) -> None:
    fault = read_file(data, tool).faults[0]
    assert words in fault.reason
    assert fault.remedy.startswith("Split it" if words != "is missing" else "Send the file as the tool wrote it")
