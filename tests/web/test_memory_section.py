"""An experiment's memory section and its break-even table: the engine's own parts, estimate beside measured, what helpers cost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from speccore.fit import ArmFit, Fit, FitTry
from speccore.inventory import HostInventory
from speccore.measurement import JobAnalysis, Number, Withheld

from specweb.dashboard.break_even import break_even_rows
from specweb.dashboard.memory_section import MemorySection, memory_section, signed_percent
from specweb.dashboard.strips import strips
from specweb.experiments.models import Job
from specweb.results import page_queries
from specweb.results.memory_queries import TrialMemory, memory_of_trials
from specweb.results.models import MeasurementSet
from tests.web import sample

pytestmark = pytest.mark.django_db
MIB = 2**20


@pytest.fixture
def run(db: None) -> sample.Run:
    people = sample.people()
    small = sample.spec(blocks=3, points=[{"workload": "count", "max_tokens": 64, "probes": 2}])
    run = sample.finished(people.team, people.owner, small)
    run.people = people  # type: ignore[attr-defined]
    return run


def section(run: sample.Run, trials: list[TrialMemory] | None = None, inventory: HostInventory | None = None) -> MemorySection | None:
    job = Job.objects.get(pk=run.job.pk)
    spec = run.experiment.parsed_spec
    analysis = page_queries.newest_analysis(job)
    assert analysis is not None
    there = inventory or page_queries.frozen_inventory(job)
    models = {m.alias: m for m in there.models} if there else {}
    named = {spec.baseline.name: models["demo-target"], **{a.name: models["demo-draft"] for a in spec.arms if a.draft_model}}
    taken = memory_of_trials(page_queries.trials_shown(job)) if trials is None else trials
    return memory_section(spec, analysis, taken, there, named)


@pytest.mark.parametrize(("share", "shown"), [(-0.0002, "+0.0 %"), (0.0, "+0.0 %"), (-0.031, "−3.1 %"), (0.2, "+20.0 %")])
def test_an_error_of_nothing_has_no_minus(share: float, shown: str) -> None:
    assert signed_percent(share) == shown


def test_the_engines_own_parts_stand_beside_the_estimate(run: sample.Run) -> None:
    found = section(run)
    assert found is not None
    draft = next(r for r in found.rows if r.mode == "draft")
    assert [c.text for c in draft.parts] == ["7.2", "8.0", "8.2", "0.6", "0.8", "3.1"]  # as the recorded log has them
    assert draft.engine.text == "27.8"
    assert "estimated before: 8.0 MiB" in draft.parts[1].title
    off = next(r for r in found.rows if r.mode == "off")
    assert off.engine.withheld  # that log names no buffers
    assert off.error.text == ""
    assert float(off.estimate.text) < float(draft.estimate.text)
    estimated, seen = float(draft.estimate.text), float(draft.engine.text)
    assert abs(estimated / seen - 1) < 0.2
    assert float(draft.error.text.replace("−", "-").removesuffix(" %")) == pytest.approx(100 * (estimated / seen - 1), abs=0.5)
    assert draft.bill.text == "+9"
    assert draft.context.text == "2,048"


def trial(arm: str, **more: Any) -> TrialMemory:
    usual: dict[str, Any] = {
        "parts": {("target", "weights", True): 100.0 * MIB},
        "peak_bytes": 120.0 * MIB,
        "context_per_slot": 4096,
        "slots": 2,
        "layers_placed": (33, 33),
        "free_bytes": 500.0 * MIB,
    }
    return TrialMemory(arm, **(usual | more))


def test_what_a_helper_costs_is_said(run: sample.Run) -> None:
    arm = next(a.name for a in run.experiment.parsed_spec.arms if a.mode == "draft")
    trials = [trial("off"), trial(arm, context_per_slot=3072, slots=1, layers_placed=(29, 33), free_bytes=200.0 * MIB), trial(arm)]
    found = section(run, trials)
    assert found is not None
    assert found.sentences[0] == (
        f"{arm} costs 1,024 tokens of context per slot (3,072 of 4,096 left) and 1 slot (1 of 2 left) "
        "and 4 layers of the target on the device (29 of 33 left)."
    )
    row = next(r for r in found.rows if r.arm == arm)
    assert (row.layers.text, row.free.text) == ("29/33", "200")
    assert found.with_layers
    assert found.with_free


def test_what_should_fit_is_said_with_and_without(run: sample.Run) -> None:
    found = section(run)
    assert found is not None
    all_alike = (
        "By the estimate 2,048 tokens per slot (all that the model was trained for) with every arm should fit into 24 GiB of memory."
    )
    assert found.sentences == [all_alike]
    inventory = page_queries.frozen_inventory(Job.objects.get(pk=run.job.pk))
    assert inventory is not None
    small = inventory.model_copy(update={"memory_bytes": 20 * MIB})
    tight = section(run, inventory=small)
    assert tight is not None
    arms = [a.name for a in run.experiment.parsed_spec.arms if a.mode == "draft"]
    assert tight.sentences[0].startswith(
        "By the estimate 2,048 tokens per slot (all that the model was trained for) with off and ngram-simple, "
    )
    assert tight.sentences[0].endswith(f" with {' and '.join(arms)} should fit into 20 MiB of memory.")


def test_what_was_tried_stands_before_what_should_fit(run: sample.Run) -> None:
    arm = next(a.name for a in run.experiment.parsed_spec.arms if a.mode == "draft")
    loads = [FitTry(context=96_256, loads=True), FitTry(context=96_512, loads=False, why="out of memory")]
    fit = Fit(
        reserve_bytes=2.0**30,
        place="GPU memory",
        arms=[
            ArmFit(arm="off", mode="off", top=131_072, tries=[FitTry(context=131_072, loads=True)]),
            ArmFit(arm=arm, mode="draft", top=131_072, tries=loads),
        ],
    )
    found = section(run, [trial("off"), trial(arm, fit=fit)])
    assert found is not None
    assert found.sentences[:4] == [
        f"Largest context that loads here, tried after the blocks: 131,072 tokens per slot without, 96,256 with {arm}.",
        "off loads up to the model's own 131,072 tokens per slot: nothing here limits it.",
        f"{arm} loads 96,256 tokens per slot and not 96,512 (out of memory).",
        "A context counts where 1 GiB of GPU memory stay free.",
    ]


def test_without_anything_known_there_is_no_section(run: sample.Run) -> None:
    assert section(run, [trial("off", parts={}, peak_bytes=None)]) is None


def test_the_page_has_both(run: sample.Run) -> None:
    client = Client()
    client.force_login(run.people.owner)  # type: ignore[attr-defined]
    page = client.get(f"/experiments/{run.experiment.pk}/").content.decode()
    assert '<h2 id="memory">' in page
    assert "with every arm should fit into 24 GiB of memory." in page
    assert re.search(r"needs \d+\.\d\d, has \d+\.\d\d: decoding (is|lacks)", page)


def test_each_arm_tells_what_it_needs_and_what_it_has(run: sample.Run) -> None:
    job = Job.objects.get(pk=run.job.pk)
    analysis: JobAnalysis | None = page_queries.newest_analysis(job)
    assert analysis is not None
    rows = break_even_rows(run.experiment.parsed_spec, analysis, {}, lambda arm, point, metric: f"#{metric}")
    assert len(rows) == len(analysis.comparisons)
    for row, c in zip(rows, analysis.comparisons, strict=True):
        needs, has = float(row.needs.text), float(row.has.text)
        assert row.sentence.startswith(f"needs {row.needs.text}, has {row.has.text}")
        assert row.sentence.endswith("decoding is faster") is (has > needs * 1.03), c.arm
        assert row.needs.href == "#break_even_tokens_per_pass"


def test_an_answer_without_a_speed_is_nobodys_best(run: sample.Run) -> None:
    analysis = page_queries.newest_analysis(Job.objects.get(pk=run.job.pk))
    assert analysis is not None
    unknown = Withheld(withheld="overloaded", reason_code="overloaded")
    bare = [c.model_copy(update={"speedup": unknown}) for c in analysis.comparisons]
    answers = [answer | {"word": "inconclusive", "arm": None} for answer in analysis.answers]
    for known, words in ((analysis.comparisons, "at best, with draft-"), (bare, "with draft-")):
        some = analysis.model_copy(update={"comparisons": known, "answers": answers})
        (strip,) = strips(run.experiment.parsed_spec, some, {}, lambda *_: "")
        assert strip.cost.startswith(words)


@pytest.mark.parametrize(
    ("needs", "has", "words"),
    [
        (0.93, 1.0, "needs 0.93, has 1.00: no draft was accepted, which can gain nothing"),
        (0.98, 1.0099, "needs 0.98, has 1.01: decoding is faster"),
        (1.01, 1.03, "needs 1.01, has 1.03: decoding is about as fast"),
        (1.03, 1.01, "needs 1.03, has 1.01: decoding is about as fast"),
        (2.44, 1.7, "needs 2.44, has 1.70: decoding lacks 0.74 a pass"),
    ],
)
def test_a_middle_without_an_interval_says_no_more_than_it_knows(run: sample.Run, needs: float, has: float, words: str) -> None:
    analysis = page_queries.newest_analysis(Job.objects.get(pk=run.job.pk))
    assert analysis is not None
    c = analysis.comparisons[0]
    number = c.tokens_per_target_pass
    assert isinstance(number, Number)
    both = {
        "break_even_tokens_per_pass": number.model_copy(update={"value": needs}),
        "tokens_per_target_pass": number.model_copy(update={"value": has}),
    }
    one = analysis.model_copy(update={"comparisons": [c.model_copy(update=both)]})
    (row,) = break_even_rows(run.experiment.parsed_spec, one, {}, lambda *_: "")
    assert row.sentence == words


def test_a_break_even_that_is_not_known_says_why(run: sample.Run) -> None:
    job = Job.objects.get(pk=run.job.pk)
    analysis = page_queries.newest_analysis(job)
    assert analysis is not None
    unknown = Withheld(withheld="no decode step was counted", reason_code="nothing_counted")
    bare = [c.model_copy(update={"break_even_tokens_per_pass": unknown}) for c in analysis.comparisons[:1]]
    (row,) = break_even_rows(run.experiment.parsed_spec, analysis.model_copy(update={"comparisons": bare}), {}, lambda *_: "")
    assert row.needs.withheld
    assert row.sentence == ""


def test_what_was_tried_is_read_from_the_stored_numbers(run: sample.Run) -> None:
    job = Job.objects.get(pk=run.job.pk)
    assert [t.fit for t in memory_of_trials(page_queries.trials_shown(job))] == [None] * len(run.plan.trials)
    stored = MeasurementSet.objects.filter(attempt__trial__job=job).order_by("attempt__trial__index").last()
    assert stored is not None
    fit = Fit(arms=[ArmFit(arm="off", mode="off", top=2048, tries=[FitTry(context=2048, loads=True)])])
    stored.numbers["fit"] = fit.model_dump(mode="json")
    stored.save()
    assert memory_of_trials(page_queries.trials_shown(job))[-1].fit == fit
    found = section(run)
    assert found is not None
    assert found.sentences[0] == "Largest context that loads here, tried after the blocks: 2,048 tokens per slot without."
