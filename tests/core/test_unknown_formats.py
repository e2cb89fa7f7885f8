"""A build that says the same in other words gives missing metrics, never numbers: both engines, from recorded runs."""

from __future__ import annotations

import json

import pytest
from speccore.engines import MetricsPair
from speccore.engines.shapes import ProbeCounts
from speccore.measurement import Withheld

from tests.core import recordings, vllm_recordings
from tests.core.recordings import LLAMA
from tests.core.vllm_recordings import VLLM

OF_SPECULATION = ("drafted", "accepted", "verify_steps")


def renamed(text: str, *names: str) -> str:
    for name in names:
        text = text.replace(name, name[::-1])
    return text


def all_missing(counts: ProbeCounts) -> None:
    for name in OF_SPECULATION:
        number = getattr(counts.counters, name)
        assert isinstance(number, Withheld), name
        assert number.withheld.startswith("metrics missing: ")
    assert isinstance(counts.counters.accepted_by_position, Withheld)
    assert counts.counters.accepted_by_position.withheld.startswith("metrics missing: ")
    assert counts.disagreements == []


@pytest.mark.parametrize("case", ["b10434-held-tokens-draft4-lv4"])
def test_llama_server(case: str) -> None:
    """Timings, counters and log with other names; what is still told (tokens, times) is still read."""
    record = recordings.record(case, 1)
    fields = dict.fromkeys(("draft_n", "draft_n_accepted"))
    timings = json.loads(renamed(json.dumps(record.final["timings"]), "draft_n"))
    record = record.model_copy(
        update={"events": [e.model_copy(update=fields) for e in record.events], "final": record.final | {"timings": timings}}
    )
    texts = [renamed(recordings.read(f"{case}.{when}1.metrics.txt"), "spec_decode_num") for when in ("before", "after")]
    pair = MetricsPair(before=LLAMA.parse_metrics(texts[0]), after=LLAMA.parse_metrics(texts[1]), line=2)
    log = LLAMA.log_requests(renamed(recordings.read(f"{case}.log"), "draft acceptance", "statistics ", "acc per pos"))[1]
    counts = LLAMA.probe_counts(record, 1, off=False, metrics=pair, log=log)
    all_missing(counts)
    assert counts.completion_tokens.value == 24


@pytest.mark.parametrize("case", ["draft3", "ngram4", "mtp1"])
def test_vllm(case: str) -> None:
    record = vllm_recordings.record(case, 1)
    final = json.loads(renamed(json.dumps(record.final), "speculative_decoding"))
    texts = [renamed(vllm_recordings.read(f"asked-{case}.metrics{n}.txt"), "vllm:spec_decode_num") for n in (1, 2)]
    pair = MetricsPair(before=VLLM.parse_metrics(texts[0]), after=VLLM.parse_metrics(texts[1]), line=2)
    counts = VLLM.probe_counts(record.model_copy(update={"final": final}), 1, off=False, metrics=pair, log=None)
    all_missing(counts)
    assert counts.speculation_reported is None
    assert counts.completion_tokens.value == 64


def test_a_vllm_without_any_counter_that_is_known() -> None:
    record = vllm_recordings.record("draft3", 1)
    final = json.loads(renamed(json.dumps(record.final), "speculative_decoding"))
    all_missing(VLLM.probe_counts(record.model_copy(update={"final": final}), 1, off=False, metrics=None, log=None))
