"""What a run on the real engine says of answers: greedy ones beside the baseline's, and the test of the sampling rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specagent import local
from specagent.evidence import read
from speccore import measure, records
from speccore.measurement import Number
from speccore.quality_results import AgreementResult, SamplingResult
from speccore.records import Continuation, SecondLook, TextRecord


def lines(folder: Path, name: str, model: type) -> list:
    return [model.model_validate_json(line) for line in (folder / name).read_text().splitlines()]


def test_a_run_asks_its_baseline_again_and_tests_the_sampling_rule(job: Callable, spec_with: Callable) -> None:
    test = {"workload": "numbers", "continuations": 240, "positions": 3}
    points = [
        {"workload": "numbers", "max_tokens": 16, "probes": 2},
        {"workload": "numbers", "sampling": {"temperature": 0.8}, "max_tokens": 8},
    ]
    ran = job(spec_with(blocks=2, sampling_test=test, points=points))
    assert ran.run().outcome == "completed"
    folders = {report.trial: folder for report, folder in ran.sink.done}
    by_trial = {trial: lines(folder, records.CONTINUATIONS, Continuation) for trial, folder in folders.items()}
    greedy = ran.offer.spec.points[0].key

    for trial in ("b1-off", "b2-off"):
        looks = lines(folders[trial], records.SECOND_LOOK, SecondLook)
        planned = [p.item for t in ran.offer.plan.trials if t.id == trial for p in t.probes if p.point == greedy]
        assert [(look.point, look.item) for look in looks] == [(greedy, item) for item in planned]
        answers = {t.probe: [i for ids in t.ids for i in ids] for t in lines(folders[trial], records.TEXTS, TextRecord)}
        for look in looks:
            assert look.problem == ""
            assert len(look.gaps_nat) == len(look.ids) == 16
            assert look.cut
            assert all(gap >= 0 for gap in look.gaps_nat)
            assert look.ids[0] == answers[look.probe][0]
        assert len(by_trial[trial]) == 240  # of which the second half is the control
    for trial in ("b1-draft-3", "b2-draft-3"):
        assert not (folders[trial] / records.SECOND_LOOK).exists()
        assert len(by_trial[trial]) == 120
        assert sum(c.drafted or 0 for c in by_trial[trial]) > 0
    every = [c for drawn in by_trial.values() for c in drawn]
    assert len({c.seed for c in every}) == len(every) == 720
    assert all(len(c.ids) == 3 and not c.problem for c in every)

    # What was asked afterwards changes nothing of what was timed: the log's own counts are still those of the probes.
    for trial, folder in folders.items():
        measured = measure.measure_attempt(read(folder), ran.offer.spec, ran.workloads)
        assert measured.disagreements == [] == measured.problems
        numbers = [n for p in measured.probes for n in p.counters.__dict__.values() if isinstance(n, Number)]
        assert records.LOG in {source.source.file for n in numbers for source in (n, *n.also)}, trial

    analysis = local.analyse(ran.offer, ran.workloads, ran.sink)
    by_point = {c.point: c for c in analysis.comparisons}
    compared = by_point[greedy]
    assert isinstance(compared.agreement, AgreementResult)
    assert isinstance(compared.own_agreement, AgreementResult)
    assert (compared.agreement.n, compared.own_agreement.n_prompts) == (4, 4)
    assert compared.agreement.n_identical + compared.agreement.n_near_tie == 4, compared.agreement.words
    assert next(c for c in compared.checks if c.name == "baseline agrees with itself").state == "passed"
    assert isinstance(analysis.sampling, SamplingResult)
    assert (analysis.sampling.n_baseline, analysis.sampling.control.n, analysis.sampling.arms[0].n) == (240, 240, 240)
    assert analysis.sampling.arms[0].outcome == "not accused"
    assert [m.name for m in by_point[ran.offer.spec.points[1].key].quality] == ["task checks", "sampling rule"]
    assert [m.name for m in compared.quality] == ["task checks", "greedy answers"]


def test_who_wants_no_second_look_gets_none(job: Callable, spec_with: Callable) -> None:
    ran = job(spec_with(second_look="never"))
    assert ran.run().outcome == "completed"
    assert not [folder for _, folder in ran.sink.done if (folder / records.SECOND_LOOK).exists()]
    compared = local.analyse(ran.offer, ran.workloads, ran.sink).comparisons[0]
    own = next(c for c in compared.checks if c.name == "baseline agrees with itself")
    assert (own.state, own.sentence) == ("not checked", "no prompt has two answers to compare")
