"""Recorded vLLM output as an attempt's evidence, for tests."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speccore.canonical import sha256_of
from speccore.engines import MetricsPair, ParsedStream, engine
from speccore.records import AttemptSummary, Launch, Manifest, MetricsSnapshot, Sample, StreamRecord, TextRecord
from speccore.spec import ExperimentSpec

LOGS = Path(__file__).parents[1] / "logs" / "vllm"
VLLM = engine("vllm")
SENT_AT_S = 10.0
#: case: its arm
ARMS: dict[str, dict[str, Any]] = {
    "off": {"name": "off", "mode": "off"},
    "ngram4": {"name": "ngram", "mode": "ngram", "draft_limit": 4, "ngram_size": 4, "ngram_min": 2},
    "draft3": {"name": "draft", "mode": "draft", "draft_model": "draft", "draft_limit": 3},
    "eagle3": {"name": "eagle", "mode": "eagle", "draft_model": "eagle", "draft_limit": 3},
    "mtp1": {"name": "mtp", "mode": "mtp", "draft_limit": 1},
    "suffix16": {"name": "suffix", "mode": "suffix", "draft_limit": 16},
}
SPECULATING = [case for case in ARMS if case != "off"]


def read(name: str) -> str:
    return (LOGS / f"v0.32.0-{name}").read_text(encoding="utf-8")


def spec_of(case: str) -> ExperimentSpec:
    """A baseline and the case's arm (of ``off``, a control) at one point."""
    arm = ARMS[case] if case != "off" else {"name": "control", "mode": "off", "control": True}
    return ExperimentSpec.model_validate(
        {
            "name": "t",
            "target": {"model": "target"},
            "runtime": {"engine": "vllm"},
            "engine": {"context": 1024, "slots": 4},
            "arms": [ARMS["off"], arm],
            "points": [{"workload": "w", "max_tokens": 64}],
            "warmup": {"mode": "fixed"},
        }
    )


@functools.cache
def asked(case: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(read(f"asked-{case}.streams.json"))
    return found


def stream(case: str, n: int) -> ParsedStream:
    return VLLM.stream_events([(SENT_AT_S + at, line) for at, line in asked(case)[n]["events"]])


def record(case: str, n: int, **over: Any) -> StreamRecord:
    """The n-th request: sent when the clock of its recording began."""
    return record_of(stream(case, n), probe=f"r{n}", item=f"i{n}", **over)


def record_of(parsed: ParsedStream, **over: Any) -> StreamRecord:
    base = StreamRecord(
        probe="r0",
        point="w/c1/ctx0/t0",
        item="i0",
        seed=1,
        path="/v1/completions",
        request_sha256="",
        connected_at_s=SENT_AT_S,
        sent_at_s=SENT_AT_S,
        closed_at_s=99,
        status=200,
        events=parsed.events,
        final=parsed.final,
        ids_sha256=sha256_of([t for ids in parsed.ids for t in ids]),
        failure=parsed.failure,
        failure_message=parsed.failure_message,
    )
    return base.model_copy(update=over)


def pair(case: str, n: int) -> MetricsPair:
    """/metrics around the n-th request, as two lines of an evidence file."""
    texts = [read(f"asked-{case}.metrics{i}.txt") for i in (n, n + 1)]
    return MetricsPair(before=VLLM.parse_metrics(texts[0]), after=VLLM.parse_metrics(texts[1]), line=2 * n + 2)


def evidence(case: str, *, block: int = 1) -> dict[str, bytes]:
    """All files of an attempt whose requests are the recorded ones."""
    now = datetime(2026, 11, 1, tzinfo=UTC)
    arm, started = ARMS[case]["name"], json.loads(read(f"asked-{case}.argv.json"))
    records = [record(case, n) for n in range(3)]
    texts = [TextRecord(probe=f"r{n}", request=asked(case)[n]["request"], texts=(s := stream(case, n)).texts, ids=s.ids) for n in range(3)]
    snapshots = [
        MetricsSnapshot(at_s=1, when=when, probe=f"r{n}", status=200, text=read(f"asked-{case}.metrics{n + i}.txt"))
        for n in range(3)
        for i, when in ((0, "before"), (1, "after"))
    ]
    samples = [Sample(at_s=2, phase="probing", rss_bytes=3 << 30, pss_bytes=3 << 30, cpu_percent=40)]
    launch = Launch(
        argv=started["argv"],
        env=started["env"],
        cwd="/",
        port=9130,
        pid=7,
        started_at=now,
        healthy_after_s=28.0,
        props=VLLM.loaded({"/v1/models": json.loads(read(f"asked-{case}.models.json"))}),
    )
    manifest = Manifest(
        runtime={"vllm": "a"},
        runtime_hash="rh",
        runtime_version="v",
        target={"config.json": "b"},
        target_hash="th",
        workloads={"w": "wh"},
        agent_version="0.1.0",
        inventory_hash="ih",
        boot_id="boot",
        os={"system": "Linux"},
    )
    summary = AttemptSummary(
        attempt_id=f"A-{arm}-{block}",
        job_id="J",
        trial=f"b{block}-{arm}",
        arm=arm,
        block=block,
        n=1,
        outcome="ok",
        started_at=now,
        ended_at=now,
        phases=[],
    )
    return {
        "server.log": read(f"asked-{case}.log").encode(),
        "launch.json": launch.model_dump_json().encode(),
        "manifest.json": manifest.model_dump_json().encode(),
        "records.jsonl": _lines(records),
        "texts.jsonl": _lines(texts),
        "metrics.jsonl": _lines(snapshots),
        "samples.jsonl": _lines(samples),
        "attempt.json": summary.model_dump_json().encode(),
    }


def _lines(values: list[Any]) -> bytes:
    return "".join(v.model_dump_json() + "\n" for v in values).encode()
