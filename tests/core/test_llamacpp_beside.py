"""Drafters that stand beside each other: what each had by the log, and a model that can't take back a long draft."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.cautions import Place, cautions
from speccore.cycles import cycles, is_retreat
from speccore.derive import Pooled, cycle_numbers, drafters_numbers, positions_numbers, speculation_numbers
from speccore.engines import MetricsPair
from speccore.engines.llamacpp_counts import ACCEPTED, BY_POSITION
from speccore.inventory import BlockShape, MemoryShape
from speccore.measure import measure_attempt
from speccore.measurement import Withheld, value_of

from tests import worlds
from tests.core import made
from tests.core.recordings import LLAMA, evidence, read, record, spec_of

DRAFT_AND_MOD, MTP_AND_SIMPLE = "b10434-draft-and-ngram-mod-lv4", "b10434-mtp-and-ngram-simple-lv4"
WORKLOADS = {"w": made.workload("w", n=4)}


def parts(case: str, n: int) -> dict[str, tuple[int | None, int | None, int | None]]:
    """By drafter: drafts, drafted, accepted of the n-th answer."""
    return {d.type: (d.drafts, d.drafted, d.accepted) for d in LLAMA.log_requests(read(f"{case}.log"))[n].drafters}


def around(case: str, n: int) -> MetricsPair:
    before, after = (LLAMA.parse_metrics(read(f"{case}.{when}{n}.metrics.txt")) for when in ("before", "after"))
    return MetricsPair(before=before, after=after, line=1)


def counts(case: str, n: int) -> Any:
    log = LLAMA.log_requests(read(f"{case}.log"))[n]
    return LLAMA.probe_counts(record(case, n), 1, off=False, metrics=around(case, n), log=log)


def test_each_drafters_part_of_an_answer_is_its_lines_growth() -> None:
    assert parts(DRAFT_AND_MOD, 0) == {"ngram-mod": (0, 0, 0), "draft-simple": (8, 31, 31)}
    assert parts(DRAFT_AND_MOD, 1) == {"ngram-mod": (1, 7, 1), "draft-simple": (13, 51, 23)}
    assert parts(DRAFT_AND_MOD, 2) == {"ngram-mod": (1, 8, 8), "draft-simple": (7, 28, 23)}
    newer = "b11434-ngram-mod-and-draft-lv4"
    assert parts(newer, 0) == {"ngram-mod": (7, 32, 9), "draft-simple": (25, 100, 22)}
    assert parts(newer, 2) == {"ngram-mod": (14, 110, 48), "draft-simple": (0, 0, 0)}


@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_parts_make_the_whole(n: int) -> None:
    found = counts(DRAFT_AND_MOD, n)
    assert found.disagreements == []
    for field, whole in (("drafted", "drafted"), ("accepted", "accepted"), ("drafts", "verify_steps")):
        assert sum(value_of(getattr(d, field)) or 0 for d in found.counters.drafters) == value_of(getattr(found.counters, whole))
    assert sum(value_of(d.draft_ms) or 0 for d in found.counters.drafters) == pytest.approx(value_of(found.counters.draft_ms))
    lines = read(f"{DRAFT_AND_MOD}.log").split("\n")
    for d in found.counters.drafters:
        assert f"statistics {d.type:>16}:" in lines[d.drafted.source.line - 1]


def test_a_lone_drafter_is_its_whole_and_an_unknown_wording_gives_none() -> None:
    alone = LLAMA.log_requests(read("b10434-draft4-lv4.log"))[0]
    assert LLAMA.probe_counts(record("b10434-draft4-lv4", 0), 1, off=False, metrics=None, log=alone).counters.drafters == []
    text = read(f"{DRAFT_AND_MOD}.log").replace("#gen tokens", "#made tokens")
    share = LLAMA.log_requests(text)[1].drafters[0]
    assert (share.drafts, share.drafted, share.accepted) == (1, None, None)
    log = LLAMA.log_requests(text)[1]
    told = LLAMA.probe_counts(record(DRAFT_AND_MOD, 1), 1, off=False, metrics=None, log=log).counters.drafters[0]
    assert isinstance(told.drafted, Withheld)
    assert value_of(told.drafts) == 1


def test_tallies_of_an_arm_are_summed_over_its_probes() -> None:
    spec = spec_of(mode="draft", draft_model="draft", draft_limit=4, also=["ngram-mod"], also_limit=8)
    measured = measure_attempt(evidence(DRAFT_AND_MOD, [0, 1, 2], "draft"), spec, WORKLOADS)
    assert [p.failure for p in measured.probes] == [""] * 3
    assert measured.engaged is True
    pooled = Pooled("draft", "w/c1/ctx0/t0", measured.probes, [1])
    assert [(d.type, value_of(d.drafts), value_of(d.drafted), value_of(d.accepted)) for d in drafters_numbers(pooled)] == [
        ("ngram-mod", 2, 15, 9),
        ("draft-simple", 28, 110, 77),
    ]


# --- a model with layers that carry a state, and drafts that it can't take back ---


def test_the_engine_counts_one_accepted_token_too_few_where_it_goes_back() -> None:
    """The recorded third answer: three cycles sent one token more than they can have, the log's tallies and the passes tell why."""
    steps = cycles(record(MTP_AND_SIMPLE, 2)) or []
    back = [c for c in steps if is_retreat(c)]
    assert [(c.drafted, c.accepted, c.emitted) for c in back] == [(6, 1, 3), (6, 2, 4), (6, 3, 5)]
    grown = around(MTP_AND_SIMPLE, 2)
    tallied = sum(accepted or 0 for _, _, accepted in parts(MTP_AND_SIMPLE, 2).values())
    assert tallied == grown.growth(ACCEPTED) + len(back) == sum(c.emitted - 1 for c in steps)  # type: ignore[operator]
    assert sum((grown.growth_by_label(BY_POSITION) or {}).values()) == grown.growth(ACCEPTED)
    of_prompt = 2
    assert grown.growth("llamacpp:n_decode_total") == len(steps) + len(back) + of_prompt


def test_such_a_count_is_withheld_and_the_answer_is_no_failure() -> None:
    found = counts(MTP_AND_SIMPLE, 2)
    assert found.disagreements == []
    c = found.counters
    for withheld in (c.accepted, c.committed, c.decode_steps, c.accepted_by_position):
        assert isinstance(withheld, Withheld)
    assert c.accepted.withheld.startswith("in 3 of 12 cycles the engine went back to a kept state of the model")
    assert (value_of(c.drafted), value_of(c.verify_steps), value_of(c.emitted)) == (36, 12, 39)
    assert {d.type: value_of(d.accepted) for d in c.drafters} == {"ngram-simple": 11, "draft-mtp": 16}
    whole = counts(MTP_AND_SIMPLE, 0)
    assert (value_of(whole.counters.accepted), whole.disagreements) == (25, [])


def test_an_arm_of_which_one_count_is_wrong_has_no_acceptance_of_the_others() -> None:
    spec = spec_of(mode="mtp", draft_limit=2, also=["ngram-simple"], also_limit=6)
    measured = measure_attempt(evidence(MTP_AND_SIMPLE, [0, 1, 2], "mtp"), spec, WORKLOADS)
    assert [p.failure for p in measured.probes] == [""] * 3
    assert measured.engaged is True
    pooled = Pooled("mtp", "w/c1/ctx0/t0", measured.probes, [1])
    numbers = {**speculation_numbers(pooled), **positions_numbers(pooled), **cycle_numbers(pooled, pooled)}
    for name in ("acceptance_rate", "mean_acceptance_length", "tokens_per_target_pass", "acceptance_rate_by_request"):
        assert isinstance(numbers[name], Withheld)
    assert isinstance(numbers["accepted_by_position"], Withheld)
    assert isinstance(numbers["cycle_ms"], Withheld)
    assert value_of(numbers["drafted_per_cycle"]) is not None  # type: ignore[arg-type]


def test_other_contradictions_stay_failures() -> None:
    """One token more than a retreat explains, or a draft that was accepted whole."""
    r = record(MTP_AND_SIMPLE, 0)
    events = [e.model_copy(update={"draft_n_accepted": e.draft_n_accepted - 1}) if e.draft_n_accepted else e for e in r.events]
    broken = LLAMA.probe_counts(r.model_copy(update={"events": events}), 1, off=False, metrics=None, log=None)
    assert any("of the stream sent" in d for d in broken.disagreements)


STATEFUL = MemoryShape(
    blocks=[BlockShape(weights=10, state=100), BlockShape(weights=10, k=4, v=4)], embedding_bytes=1, other_bytes=1, width=4
)
ATTENDING = STATEFUL.model_copy(update={"blocks": [BlockShape(weights=10, k=4, v=4)]})


@pytest.mark.parametrize(
    ("arm", "shape", "said"),
    [
        ({"mode": "ngram-simple", "draft_limit": 4}, STATEFUL, "put it beside mtp, with also_limit within draft_limit"),
        ({"mode": "mtp", "draft_limit": 2, "also": ["ngram-mod"]}, STATEFUL, "keep also_limit within draft_limit"),
        (
            {"mode": "mtp", "draft_limit": 2, "also": ["ngram-mod"], "also_limit": 3},
            STATEFUL,
            "where a draft of ngram-mod is accepted in part",
        ),
        ({"mode": "mtp", "draft_limit": 2, "also": ["ngram-mod"], "also_limit": 2}, STATEFUL, ""),
        ({"mode": "mtp", "draft_limit": 5}, STATEFUL, ""),
        ({"mode": "ngram-simple", "draft_limit": 4}, ATTENDING, ""),
    ],
)
def test_a_model_that_cannot_take_a_long_draft_back_is_told_before_it_runs(arm: dict[str, Any], shape: MemoryShape, said: str) -> None:
    spec = spec_of(**arm)
    target = worlds.inventory().models[0].model_copy(update={"memory": shape, "has_mtp": True, "n_layers": 3})
    place = Place("box", worlds.inventory(), target, {})
    found = " ".join(c.message for c in cautions(spec, WORKLOADS, [place]) if c.field == "arms.1.mode")
    assert (said in found) if said else found == ""


# --- whether all of them were on ---


@pytest.mark.parametrize(
    ("also", "engaged"),
    [(["ngram-mod"], True), (["ngram-mod", "ngram-simple"], False)],
)
def test_speculation_is_on_if_every_drafter_is_reported(also: list[str], engaged: bool) -> None:
    spec = spec_of(mode="draft", draft_model="draft", draft_limit=4, also=also)
    measured = measure_attempt(evidence(DRAFT_AND_MOD, [0, 1, 2], "draft"), spec, WORKLOADS)
    assert measured.engaged is engaged
    if not engaged:
        assert measured.engaged_why == (
            "the server reports speculation draft-simple, ngram-mod, asked for was draft-simple, ngram-mod, ngram-simple"
        )
