"""A page about one comparison reads that one alone, whatever the others of its job are."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from speccore.measurement import AttemptMeasurement, JobAnalysis

from specweb.results.narrowed import analysis_of, measurement_at

UNREADABLE: dict[str, Any] = {"arm": "draft-3", "point": "other", "warmup": False}
FAILED = {"withheld": "it failed"}
PROBE: dict[str, Any] = {
    **{"probe": "p", "point": "here", "item": "i", "warmup": False, "ok": False, "line": 3, "n_events": 0, "n_chunks": 0, "n_first": 0},
    **dict.fromkeys(("prompt_tokens", "completion_tokens", "server_tokens", "cache_hit_tokens", "decode_tokens_per_s"), FAILED),
    **dict.fromkeys(("ttft_any_s", "ttft_content_s", "e2e_s"), FAILED),
    "counters": dict.fromkeys(("drafted", "accepted", "committed", "verify_steps", "decode_steps", "emitted"), FAILED)
    | dict.fromkeys(("draft_ms", "eval_ms", "accepted_by_position"), FAILED),
}


def test_no_other_comparison_is_read() -> None:
    stored = {"comparisons": [UNREADABLE], "checks": [], "answers": [{"word": "keep"}], "attempts_used": ["a"]}
    found = analysis_of(stored, "draft-3", "here")
    assert (found.comparisons, found.answers, found.attempts_used) == ([], [{"word": "keep"}], ["a"])
    for read in (lambda: analysis_of(stored, "draft-3", "other"), lambda: JobAnalysis.model_validate(stored)):
        with pytest.raises(ValidationError):
            read()


def test_no_probe_is_read_that_is_elsewhere_or_warmed_up() -> None:
    told = {"attempt_id": "a", "trial": "t", "arm": "off", "mode": "off", "block": 2, "log": {}, "engaged": None, "pair_fields": {}}
    peaks = dict.fromkeys(("peak_memory_bytes", "peak_device_bytes"), FAILED)
    probes = [UNREADABLE, PROBE, PROBE | {"warmup": True}, PROBE | {"line": 4}]
    stored = {**told, **peaks, "probes": probes}
    found = measurement_at(stored, "here")
    assert ([p.line for p in found.probes], found.block) == ([3, 4], 2)
    assert stored["probes"] == probes  # what is stored stays as it is
    with pytest.raises(ValidationError):
        AttemptMeasurement.model_validate(stored)
