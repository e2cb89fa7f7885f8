"""Known ways in which flags, log lines and counters change under a reader, each held by a test with its number.

The numbers, 44 to 47 here, are those of a collection of public faults in benchmarks of speculation.
"""

from __future__ import annotations

import pytest
from speccore.engines import Bindings, MetricsPair
from speccore.engines.vllm_counts import log_intervals
from speccore.measure import measure_attempt
from speccore.measurement import Withheld, value_of

from tests.core import made
from tests.core.recordings import LLAMA, evidence, read, record, spec_of

DRAFT = {"mode": "draft", "draft_model": "draft", "draft_limit": 4}
WORKLOADS = {"w": made.workload("w", n=4)}
BINDINGS = Bindings(executable="/e", target="/t", draft="/d", port=1)
HELD = "b10434-held-tokens-draft4-lv4"


@pytest.mark.parametrize(
    ("help_text", "has", "lacks"),
    [
        ("b10434.help.txt", "--spec-draft-n-max", "--draft-max"),
        ("b11434.help.txt", "--spec-draft-n-max", "--draft-max"),
        ("handmade-draft-flag.help.txt", "--draft-max", "--spec-type"),
    ],
)
def test_pitfall_44_a_build_gets_the_flags_of_its_own_help(help_text: str, has: str, lacks: str) -> None:
    spec = spec_of(**DRAFT)
    rendered = LLAMA.render(spec.engine, spec.arm("draft"), LLAMA.capabilities(read(help_text)), BINDINGS, allowed_flags=(), threads=1)
    assert has in rendered.argv
    assert lacks not in rendered.argv
    assert rendered.argv[rendered.argv.index(has) + 1] == "4"


def test_pitfall_44_a_flag_that_was_removed_is_refused_before_the_start_and_typed_after_it() -> None:
    assert "--draft-max" in LLAMA.capabilities(read("b10434.help.txt")).removed_flags
    body = LLAMA.start_failure(read("b10434-old-flag-draft-max.log"), 1).body()
    assert (body.code, body.details["line"]) == ("flag_refused", 1)


WORDINGS = [
    "draft acceptance rate = 0.29310 (   34 accepted /   116 generated)",
    "draft acceptance = 0.29310 (   34 accepted /   116 generated), mean acceptance length = 2.17",
    "draft acceptance = 0.29310 (   34 accepted /   116 generated), mean len =  2.17",
]


@pytest.mark.parametrize("wording", WORDINGS)
def test_pitfall_45_each_wording_of_the_acceptance_line_gives_the_same_counts(wording: str) -> None:
    text = read("b10434-draft4-lv4.log").replace(WORDINGS[2], wording)
    assert wording in text
    log = LLAMA.log_requests(text)[0]
    assert (log.accepted, log.drafted) == (34, 116)
    assert LLAMA.probe_counts(record("b10434-draft4-lv4", 0), 1, off=False, metrics=None, log=log).disagreements == []


def test_pitfall_45_an_unknown_wording_is_missing_and_never_zero() -> None:
    text = read("b10434-draft4-lv4.log").replace("draft acceptance =", "drafts taken:").replace("statistics ", "tallies ")
    log = LLAMA.log_requests(text)[0]
    assert (log.accepted, log.drafted, log.verify_steps, log.draft_ms) == (None, None, None, None)
    files = evidence("b10434-draft4-lv4", [0, 1, 2], "draft") | {"server.log": text.encode()}
    counters = measure_attempt(files, spec_of(**DRAFT), WORKLOADS).probes[0].counters
    assert isinstance(counters.draft_ms, Withheld)
    assert value_of(counters.drafted) == 116  # the stream and the response are asked first


def test_pitfall_45_figures_stand_in_the_log_only_if_it_is_asked_to_speak() -> None:
    rendered = LLAMA.render(
        spec_of().engine, spec_of().arm("off"), LLAMA.capabilities(read("b10434.help.txt")), BINDINGS, allowed_flags=(), threads=1
    )
    assert rendered.argv[rendered.argv.index("--verbosity") + 1] == "4"


def around(n: int, *, without: str = "") -> MetricsPair:
    texts = [read(f"{HELD}.{when}{n}.metrics.txt") for when in ("before", "after")]
    kept = ["\n".join(line for line in t.splitlines() if not without or without not in line) for t in texts]
    return MetricsPair(before=LLAMA.parse_metrics(kept[0]), after=LLAMA.parse_metrics(kept[1]), line=2)


def test_pitfall_46_builds_with_counters_are_read_and_builds_without_lack_them() -> None:
    r = record(HELD, 1)  # its cycles are hidden by tokens that were held back
    newer = LLAMA.probe_counts(r, 1, off=False, metrics=around(1), log=None).counters
    assert (value_of(newer.verify_steps), newer.accepted_by_position) == (22, [0, 0, 0, 0])
    older = LLAMA.probe_counts(r, 1, off=False, metrics=around(1, without="spec_decode"), log=None).counters
    assert isinstance(older.verify_steps, Withheld)
    assert isinstance(older.accepted_by_position, Withheld)
    assert value_of(older.drafted) == 82  # of the stream
    assert LLAMA.parse_metrics("") == {}


def test_pitfall_47_a_line_of_vllm_in_another_wording_is_missing_and_never_zero() -> None:
    known = "INFO [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.47, Accepted: 279 tokens, Drafted: 426 tokens, more"
    assert log_intervals(known) == [(1, 426, 279)]
    for other in (
        "INFO Speculative metrics: Draft acceptance rate: 0.655, Number of accepted tokens: 279, Number of draft tokens: 426",
        "INFO SpecDecoding metrics: Draft acceptance rate: 65.5%",
        "INFO SpecDecoding metrics: Accepted: many tokens, Drafted: 426 tokens",
    ):
        assert log_intervals(other) == []
