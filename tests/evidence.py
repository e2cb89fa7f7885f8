"""Evidence of an attempt as an agent would leave it, with known speeds: for tests of what the service makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from speccore.canonical import sha256_of
from speccore.inventory import Peer
from speccore.protocol import JobOffer, ProbePlan, TrialPlan, WarmupPlan
from speccore.records import AttemptSummary, Launch, Manifest, MetricsSnapshot, Sample, StreamEvent, StreamRecord, TextRecord

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TTFT_S = 0.05
N_CYCLES = 7
N_TOKENS = 1 + 4 * N_CYCLES
#: Milliseconds of a cycle; a cycle of the baseline sends 1 token, one of an arm with a draft 4 (3 accepted of 4 drafted).
STEP_MS, CYCLE_MS = 10.0, 20.0
#: By the definition of equal_work_s: 0.05 + 28 ÷ 100 against 0.05 + 28 ÷ 200 seconds.
SPEEDUP = (TTFT_S + 28 / 100) / (TTFT_S + 28 / 200)


def files_of(offer: JobOffer, trial: TrialPlan, attempt_id: str) -> dict[str, bytes]:
    """All evidence files of one good attempt at a trial."""
    drafting = offer.spec.arm(trial.arm).mode != "off"
    requests = [*trial.warmup, *trial.probes]
    records = [_record(r, i, drafting, trial.block) for i, r in enumerate(requests)]
    texts = [TextRecord(probe=r.id, request={"prompt": "…"}, texts=["x"], ids=[[1]]) for r in requests]
    snapshots = [MetricsSnapshot(at_s=1, when="before", probe=r.id, status=200, text="") for r in requests]
    memory = 600_000_000 if drafting else 500_000_000
    launch = Launch(argv=["llama-server", "--port", "1"], env={}, cwd="/", port=1, pid=1, started_at=NOW, healthy_after_s=0.7)
    manifest = Manifest(
        runtime={"llama-server": "a"},
        runtime_hash=offer.runtime_hash,
        runtime_version="v",
        target={"t.gguf": "b"},
        target_hash=offer.target_hash,
        draft_hash=offer.draft_hashes.get(trial.arm, ""),
        workloads=offer.plan.workloads,
        agent_version="0.1.0",
        inventory_hash="i",
        boot_id="boot-1",
        os={"system": "Linux"},
    )
    summary = AttemptSummary(
        attempt_id=attempt_id,
        job_id=offer.job_id,
        trial=trial.id,
        arm=trial.arm,
        block=trial.block,
        n=1,
        outcome="ok",
        started_at=NOW,
        ended_at=NOW,
        phases=[("starting", 0.0), ("probing", 1.0)],
        client_events=len(records) * N_TOKENS,
    )
    return {
        "server.log": f"a log of {attempt_id}\n".encode(),
        "launch.json": launch.model_dump_json().encode(),
        "manifest.json": manifest.model_dump_json().encode(),
        "records.jsonl": _lines(records),
        "texts.jsonl": _lines(texts),
        "metrics.jsonl": _lines(snapshots),
        "samples.jsonl": _lines([Sample(at_s=2, phase="probing", pss_bytes=memory, rss_bytes=memory)]),
        "attempt.json": summary.model_dump_json().encode(),
    }


def _record(request: ProbePlan | WarmupPlan, i: int, drafting: bool, block: int) -> StreamRecord:
    sent = 10.0 * i
    stretch = 1 + 0.001 * block  # blocks differ a little, as they do
    events = [StreamEvent(at_s=sent + TTFT_S * stretch, tokens=1, predicted_n=1, predicted_ms=0.001)]
    n_cycles, per_cycle, ms = (N_CYCLES, 4, CYCLE_MS) if drafting else (4 * N_CYCLES, 1, STEP_MS)
    for cycle in range(1, n_cycles + 1):
        for k in range(per_cycle):
            events.append(
                StreamEvent(
                    at_s=sent + (TTFT_S + cycle * ms / 1000) * stretch,
                    tokens=1,
                    predicted_n=1 + (cycle - 1) * per_cycle + k + 1,
                    predicted_ms=cycle * ms,
                    draft_n=4 * cycle if drafting else None,
                    draft_n_accepted=3 * cycle if drafting else None,
                )
            )
    timings = {"predicted_n": N_TOKENS, "predicted_ms": n_cycles * ms, "prompt_n": 9, "cache_n": 0}
    if drafting:
        timings |= {"draft_n": 4 * n_cycles, "draft_n_accepted": 3 * n_cycles}
    return StreamRecord(
        probe=request.id,
        warmup=isinstance(request, WarmupPlan),
        point=request.point,
        item=request.item,
        seed=request.seed,
        path="/completion",
        request_sha256=sha256_of(request.id),
        connected_at_s=sent,
        sent_at_s=sent,
        closed_at_s=sent + 1,
        status=200,
        events=events,
        final={"tokens_predicted": N_TOKENS, "tokens_evaluated": 9, "stop_type": "limit", "timings": timings},
        generation_settings={"speculative.types": "draft-simple" if drafting else "none"},
        ids_sha256=sha256_of(request.item),
    )


def _lines(values: Iterable[Peer]) -> bytes:
    return b"".join(v.model_dump_json().encode() + b"\n" for v in values)
