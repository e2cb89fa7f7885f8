"""Drafters that stand beside each other: what each had by the log, and a model that can't take back a long draft."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.cautions import Place, cautions
from speccore.cycles import Cycle, cycles, is_retreat
from speccore.derive import Pooled, drafters_numbers, speculation_numbers
from speccore.engines import MetricsPair
from speccore.engines.llamacpp_counts import ACCEPTED, BY_POSITION
from speccore.inventory import BlockShape, MemoryShape
from speccore.measure import measure_attempt
from speccore.measurement import Number, Withheld, value_of

from tests import worlds
from tests.core import made
from tests.core.recordings import LLAMA, evidence, read, record, spec_of

DRAFT_AND_MOD, MTP_AND_SIMPLE = "b10434-draft-and-ngram-mod-lv4", "b10434-mtp-and-ngram-simple-lv4"
MTP_AND_EOS = "b10434-mtp-and-ngram-simple-eos-lv4"
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


def test_going_back_takes_a_pass_more_and_gives_a_token_more() -> None:
    """The recorded third answer: three cycles sent two tokens more than were accepted of their drafts."""
    steps = cycles(record(MTP_AND_SIMPLE, 2)) or []
    back = [c for c in steps if is_retreat(c)]
    assert [(c.drafted, c.accepted, c.emitted) for c in back] == [(6, 1, 3), (6, 2, 4), (6, 3, 5)]
    grown = around(MTP_AND_SIMPLE, 2)
    assert sum(c.accepted for c in steps) == grown.growth(ACCEPTED) == sum((grown.growth_by_label(BY_POSITION) or {}).values())
    of_prompt = 2
    assert grown.growth("llamacpp:n_decode_total") == len(steps) + len(back) + of_prompt


def test_such_passes_count_as_decode_steps_and_the_answer_is_no_failure() -> None:
    found = counts(MTP_AND_SIMPLE, 2)
    assert found.disagreements == []
    c = found.counters
    assert (value_of(c.drafted), value_of(c.accepted), value_of(c.verify_steps), value_of(c.emitted)) == (36, 24, 12, 39)
    assert (value_of(c.decode_steps), value_of(c.committed)) == (12 + 3, 39)
    assert isinstance(c.decode_steps, Number)
    assert c.decode_steps.source.field == "events: moves of predicted_ms, and 3 that went back and read again"
    assert c.accepted_by_position == [12, 8, 1, 0, 0, 0] or sum(c.accepted_by_position) == 24  # type: ignore[arg-type]
    whole = counts(MTP_AND_SIMPLE, 0)
    assert (value_of(whole.counters.accepted), value_of(whole.counters.decode_steps), whole.disagreements) == (25, 14, [])


def test_the_logs_tally_of_what_was_accepted_is_then_withheld() -> None:
    """It holds a token of the target's own for each time."""
    tallied = sum(accepted or 0 for _, _, accepted in parts(MTP_AND_SIMPLE, 2).values())
    assert tallied == 24 + 3
    drafters = counts(MTP_AND_SIMPLE, 2).counters.drafters
    assert [(d.type, value_of(d.drafted), isinstance(d.accepted, Withheld)) for d in drafters] == [
        ("ngram-simple", 20, True),
        ("draft-mtp", 16, True),
    ]
    assert [value_of(d.accepted) for d in counts(MTP_AND_SIMPLE, 0).counters.drafters] == [0, 25]


def test_an_arm_with_such_passes_has_its_numbers() -> None:
    spec = spec_of(mode="mtp", draft_limit=2, also=["ngram-simple"], also_limit=6)
    measured = measure_attempt(evidence(MTP_AND_SIMPLE, [0, 1, 2], "mtp"), spec, WORKLOADS)
    assert [p.failure for p in measured.probes] == [""] * 3
    assert measured.engaged is True
    numbers = speculation_numbers(Pooled("mtp", "w/c1/ctx0/t0", measured.probes, [1]))
    passes = (14 + 0) + (18 + 1) + (12 + 3)
    assert value_of(numbers["tokens_per_target_pass"]) == pytest.approx(3 * 39 / passes)


def test_going_back_to_the_end_of_a_text_sends_no_further_token_and_the_log_tells_it() -> None:
    """The recorded answer's last step drafted 8, none was right, and the target's own token ended the text: what it read again was for nothing."""
    steps, grown = cycles(record(MTP_AND_EOS, 0)) or [], around(MTP_AND_EOS, 0)
    assert (steps[-1].drafted, steps[-1].accepted, steps[-1].emitted) == (8, 0, 1)
    back = sum(is_retreat(c) for c in steps)
    assert sum(accepted or 0 for _, _, accepted in parts(MTP_AND_EOS, 0).values()) == 10 + back + 1
    of_prompt = 2
    assert grown.growth("llamacpp:n_decode_total") == len(steps) + back + 1 + of_prompt
    found = counts(MTP_AND_EOS, 0)
    assert found.disagreements == []
    assert value_of(found.counters.decode_steps) == len(steps) + back + 1
    assert value_of(found.counters.emitted) == value_of(found.counters.committed) - 1  # type: ignore[operator]


def test_at_the_length_limit_no_step_is_taken_for_one_that_went_back() -> None:
    r = record(MTP_AND_EOS, 0)
    log = LLAMA.log_requests(read(f"{MTP_AND_EOS}.log"))[0]
    cut = r.model_copy(update={"final": {**r.final, "stop_type": "limit"}})
    assert any("accepted: 10 by" in d for d in LLAMA.probe_counts(cut, 1, off=False, metrics=None, log=log).disagreements)


def test_a_draft_that_was_accepted_whole_needs_no_going_back() -> None:
    assert is_retreat(Cycle(drafted=6, accepted=5, emitted=7, ms=1, fused=False))
    for c in (Cycle(5, 5, 7, 1, False), Cycle(6, 5, 8, 1, False), Cycle(6, 5, 7, 1, True), Cycle(0, 0, 2, 1, False)):
        assert not is_retreat(c)


def test_a_count_that_only_looks_like_going_back_is_found_out_by_the_log() -> None:
    """Of a cycle that accepted 2 of 2 the counter now says 1; of one that accepted 1 of 2 it says none: the latter looks like it."""
    r = record(MTP_AND_SIMPLE, 1)
    log = LLAMA.log_requests(read(f"{MTP_AND_SIMPLE}.log"))[1]
    first = next(i for i, e in enumerate(r.events) if e.draft_n_accepted)
    events = [e.model_copy(update={"draft_n_accepted": e.draft_n_accepted - 1}) if e.draft_n_accepted else e for e in r.events]
    assert LLAMA.probe_counts(r, 1, off=False, metrics=None, log=log).disagreements == []
    wrong = LLAMA.probe_counts(r.model_copy(update={"events": events}), 1, off=False, metrics=None, log=log)
    assert first > 0
    assert any("accepted: 19 by" in d for d in wrong.disagreements)


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


@pytest.mark.parametrize(
    ("arm", "drafted"),
    [
        ({"mode": "mtp", "draft_limit": 3, "also": ["ngram-simple"]}, 48),
        ({"mode": "mtp", "draft_limit": 3, "also": ["ngram-simple"], "also_limit": 4}, 4),
        ({"mode": "ngram-mod"}, 64),
        ({"mode": "ngram-mod", "draft_limit": 8}, 8),
    ],
)
def test_what_lookup_would_draft_follows_the_limit_that_it_has(arm: dict[str, Any], drafted: int) -> None:
    (found,) = (c.message for c in cautions(spec_of(**arm), WORKLOADS, []) if c.field == "arms.1.ngram_size")
    assert f"equal tokens and drafts {drafted}: " in found


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
