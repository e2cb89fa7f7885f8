"""Cycles rebuilt from streams equal a real llama-server's own counters, over the demo's workloads, alone and four at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from specagent.load import Closed, Request, Target, records_of, run_load
from speccore.cycles import cycles, is_retreat
from speccore.engines import MetricsPair
from speccore.engines.llamacpp_counts import ACCEPTED, BY_POSITION, DRAFTED, DRAFTS, PREDICTED
from speccore.inventory import Capabilities
from speccore.measurement import value_of
from speccore.spec import Point, Sampling
from speccore.workloads import builtin

from tests.engines.test_llamacpp_server import DRAFT, LLAMA, Server, binary, capabilities, name_of, server

__all__ = ["binary", "capabilities"]  # fixtures

MODES: list[dict[str, Any]] = [
    DRAFT,
    {"mode": "ngram-simple", "draft_limit": 8, "ngram_size": 3},
    {"mode": "ngram-map-k", "draft_limit": 8, "ngram_size": 3, "ngram_hits": 1},
    {"mode": "ngram-map-k4v", "draft_limit": 8, "ngram_size": 3},
    {"mode": "ngram-mod", "draft_limit": 8, "ngram_size": 3},
    {"mode": "draft", "draft_model": "draft", "draft_limit": 4, "also": ["ngram-mod"], "also_limit": 8, "ngram_size": 3},
    {"mode": "ngram-map-k", "draft_limit": 8, "ngram_size": 4, "also": ["ngram-simple", "ngram-cache"]},
    {"mode": "mtp", "draft_limit": 3},
    {"mode": "mtp", "draft_limit": 2, "also": ["ngram-simple"], "also_limit": 6, "ngram_size": 3},
]
#: Temperatures of the demo's kinds of work.
WORK = {"count": 0.0, "python-code": 0.2, "free-text": 0.8}
N_DECODE = "llamacpp:n_decode_total"  # every pass of the target, those of prompts too


def requests_of(n: int) -> list[Request]:
    """``n`` prompts of each workload, as a trial would ask them."""
    workloads = builtin()
    found = []
    for name, temperature in WORK.items():
        point = Point(workload=name, sampling=Sampling(temperature=temperature), max_tokens=48)
        for i, item in enumerate(workloads[name].items[:n]):
            path, body = LLAMA.request(item.prompt, point, 100 + i)
            found.append(Request(body, path=path, probe=f"{name}-{i}", point=point.key, item=item.id, seed=100 + i))
    return found


def snapshot(running: Server) -> dict[str, Any]:
    parsed: dict[str, Any] = LLAMA.parse_metrics(running.get("/metrics"))
    return parsed


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("arm", MODES, ids=name_of)
def test_cycles_add_up_to_the_servers_counters(
    binary: Path, capabilities: Capabilities, arm: dict[str, Any], concurrency: int, tmp_path: Path
) -> None:
    with server(binary, capabilities, arm, tmp_path, slots=concurrency) as running:
        running.wait_healthy()
        before = snapshot(running)
        result = run_load(Target("127.0.0.1", running.port), requests_of(8 if concurrency > 1 else 4), Closed(concurrency), timeout_s=60)
        pair = MetricsPair(before=before, after=snapshot(running), line=1)
    records = [r for r, _ in records_of(result, LLAMA)]
    counts = [LLAMA.probe_counts(r, i, off=False, metrics=None, log=None) for i, r in enumerate(records, 1)]
    assert [r.failure_message for r in records] == [""] * len(records)
    assert [c.disagreements for c in counts] == [[]] * len(records)
    steps = [s for r in records for s in cycles(r) or []]
    assert [r.probe for r in records if any(s.fused for s in cycles(r) or [])] == []

    assert sum(s.drafted for s in steps) == pair.growth(DRAFTED) > 0
    assert sum(s.accepted for s in steps) == pair.growth(ACCEPTED)
    assert sum(s.drafted > 0 for s in steps) == pair.growth(DRAFTS)
    assert sum(value_of(c.completion_tokens) or 0 for c in counts) == pair.growth(PREDICTED)
    by_position = pair.growth_by_label(BY_POSITION) or {}
    assert {i: sum(s.accepted > int(i) for s in steps) for i in by_position} == by_position
    if concurrency == 1:  # a pass serves one answer; each prompt took one of its own, and one more where its state is kept for a retreat
        of_prompts = (2 if arm["mode"] == "mtp" else 1) * len(records)
        back = sum(is_retreat(s) for s in steps)  # drafts that such a model could not take back: a further pass each
        assert len(steps) + back + of_prompts == pair.growth(N_DECODE)
        assert back == 0 or name_of(arm) == "mtp+ngram-simple"
    assert LLAMA.window_disagreements(counts, pair) == []
    assert LLAMA.window_disagreements(counts[1:], pair) != []
