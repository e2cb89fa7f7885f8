"""Recorded llama-server output as an attempt's evidence, for tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from speccore.canonical import sha256_of
from speccore.engines import ParsedStream, engine
from speccore.records import AttemptSummary, DeviceSample, Launch, Manifest, MetricsSnapshot, Sample, StreamRecord, TextRecord
from speccore.spec import ExperimentSpec

LOGS = Path(__file__).parents[1] / "logs" / "llamacpp"
LLAMA = engine("llama-server")
SENT_AT_S = 10.0


def read(name: str) -> str:
    return (LOGS / name).read_text(encoding="utf-8")


def spec_of(**arm: Any) -> ExperimentSpec:
    """A baseline and one arm, named after its mode, at one point."""
    arms = [{"name": "off", "mode": "off"}]
    if arm:
        arms.append({"name": arm["mode"], **arm})
    else:
        arms.append({"name": "control", "mode": "off", "control": True})
    return ExperimentSpec.model_validate(
        {
            "name": "t",
            "target": {"model": "target"},
            "engine": {"context": 2048},
            "arms": arms,
            "points": [{"workload": "w", "max_tokens": 64}],
            "warmup": {"mode": "fixed"},
        }
    )


def stream(case: str, n: int) -> ParsedStream:
    """The n-th answer; each event arrives when the engine's own clock says that its cycle ended."""
    path = LOGS / f"{case}.resp{n}.sse"
    if not path.exists():
        return LLAMA.stream_events([(SENT_AT_S, json.dumps(json.loads(read(f"{case}.resp{n}.json"))))])
    lines, at = [], SENT_AT_S
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.startswith("data: {"):
            timings = json.loads(line[6:]).get("timings")
            at = SENT_AT_S + (timings["prompt_ms"] + timings["predicted_ms"]) / 1000 if timings else at
        lines.append((at, line))
    return LLAMA.stream_events(lines)


def record(case: str, n: int, **over: Any) -> StreamRecord:
    parsed = stream(case, n)
    base = StreamRecord(
        probe=f"r{n}",
        point="w/c1/ctx0/t0",
        item=f"i{n}",
        seed=1,
        path="/completion",
        request_sha256="",
        connected_at_s=SENT_AT_S,
        sent_at_s=SENT_AT_S,
        closed_at_s=99,
        status=200,
        events=parsed.events,
        final=parsed.final,
        generation_settings=parsed.generation_settings,
        ids_sha256=sha256_of([t for ids in parsed.ids for t in ids]),
        failure=parsed.failure,
        failure_message=parsed.failure_message,
    )
    return base.model_copy(update=over)


def evidence(case: str, requests: list[int], arm: str, *, warmup: tuple[int, ...] = ()) -> dict[str, bytes]:
    """All files of an attempt whose requests are the recorded ones."""
    now = datetime(2026, 11, 1, tzinfo=UTC)
    records = [record(case, n, warmup=n in warmup) for n in requests]
    texts = [TextRecord(probe=f"r{n}", request={}, texts=(s := stream(case, n)).texts, ids=s.ids) for n in requests]
    snapshots = [
        MetricsSnapshot(at_s=1, when=when, probe=f"r{n}", status=200, text=read(f"{case}.{when}{n}.metrics.txt"))
        for n in requests
        for when in ("before", "after")
        if (LOGS / f"{case}.{when}{n}.metrics.txt").exists()
    ]
    samples = [
        Sample(at_s=1, phase="starting", rss_bytes=900, pss_bytes=900),
        Sample(
            at_s=2, phase="probing", rss_bytes=700, pss_bytes=500, device_bytes={"g0": 10, "g1": 5}, cpu_percent=40, devices=_energy(100)
        ),
        Sample(at_s=3, phase="probing", rss_bytes=710, pss_bytes=520, device_bytes={"g0": 10, "g1": 7}, cpu_percent=60),
        Sample(at_s=1.5, phase="warm-up", rss_bytes=690, device_bytes={"g0": 10, "g1": 2}),
        Sample(at_s=5, phase="probing", rss_bytes=730, device_bytes={"g0": 10, "g1": 6}, devices=_energy(130)),
    ]
    argv = read(f"{case}.argv.txt").splitlines()[0].split() if (LOGS / f"{case}.argv.txt").exists() else []
    launch = Launch(
        argv=argv,
        env={"LD_LIBRARY_PATH": "/lib"},
        cwd="/",
        port=9130,
        pid=7,
        started_at=now,
        healthy_after_s=0.8,
        props=json.loads(read(f"{case}.props.json")) if (LOGS / f"{case}.props.json").exists() else {},
    )
    manifest = Manifest(
        runtime={"llama-server": "a"},
        runtime_hash="rh",
        runtime_version="v",
        target={"t.gguf": "b"},
        target_hash="th",
        workloads={"w": "wh"},
        agent_version="0.1.0",
        inventory_hash="ih",
        boot_id="boot",
        os={"system": "Linux"},
    )
    summary = AttemptSummary(
        attempt_id="A",
        job_id="J",
        trial=f"b1-{arm}",
        arm=arm,
        block=1,
        n=1,
        outcome="ok",
        started_at=now,
        ended_at=now,
        phases=[],
        client_late_events=1,
        client_events=200,
    )
    return {
        "server.log": read(f"{case}.log").encode(),
        "launch.json": launch.model_dump_json().encode(),
        "manifest.json": manifest.model_dump_json().encode(),
        "records.jsonl": _lines(records),
        "texts.jsonl": _lines(texts),
        "metrics.jsonl": _lines(snapshots),
        "samples.jsonl": _lines(samples),
        "attempt.json": summary.model_dump_json().encode(),
    }


def _energy(joules: float) -> dict[str, DeviceSample]:
    return {"g0": DeviceSample(energy_j=joules)}


def _lines(values: list[Any]) -> bytes:
    return "".join(v.model_dump_json() + "\n" for v in values).encode()
