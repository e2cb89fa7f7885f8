"""Blocks added to a finished answer, and the missing ones of a job that failed: joined where they may be, alone where not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from speccore.errors import EngineError, NotPossible, SpecError
from speccore.extending import FirstLooks, joined_confidence
from speccore.jobstate import JobState
from speccore.measurement import Interval

from specweb.experiments.models import Host, Job
from specweb.experiments.services.hosts import revoke_host, store_inventory
from specweb.experiments.services.jobs import fail_job, move_job, request_cancel, retry_job
from specweb.experiments.services.more import add_blocks
from specweb.experiments.services.plans import spec_of_job
from specweb.results import chart_queries
from specweb.results.models import Analysis, Attempt, Comparison, Listing
from specweb.results.queries import left_to_compare
from specweb.results.services.comparing import compare_job
from specweb.results.services.continuing import run_the_rest
from specweb.results.services.joining import lacking_blocks
from specweb.results.services.noise_floor import gathered
from specweb.results.services.publishing import publish
from tests.web import sample

pytestmark = pytest.mark.django_db

SMALL = {
    "name": "Does it pay?",
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "blocks": 3,
}
NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def evidence(settings, tmp_path):  # type: ignore[no-untyped-def]
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


def first(**changes: object) -> tuple[sample.People, sample.Run]:
    people = sample.people()
    return people, sample.finished(people.team, people.owner, sample.spec(**SMALL | changes))


def ran(run: sample.Run, job: Job, **knobs: object) -> sample.Run:
    """The job taken by its host, run to its end, compared."""
    more = sample.claimed(run.experiment, run.lease.host)
    assert more.job.pk == job.pk
    sample.play(more, **knobs)  # type: ignore[arg-type]
    move_job(job.pk, JobState.COMPLETED, now=NOW, by="test")
    assert compare_job(job.pk, datetime.now(UTC))
    more.job.refresh_from_db()
    return more


def current(job: Job) -> Comparison:
    return Comparison.objects.current().get(job=job)


def interval(comparison: Comparison) -> Interval:
    found = comparison.parsed.speedup
    assert isinstance(found, Interval)
    assert found.low is not None
    return found


def another_driver(host: Host) -> None:
    assert host.inventory is not None
    inventory = host.inventory.parsed
    devices = [d.model_copy(update={"driver": "570.99"}) for d in inventory.devices]
    store_inventory(host, inventory.model_copy(update={"devices": devices}), datetime.now(UTC))
    Host.objects.filter(pk=host.pk).update(last_seen_at=datetime.now(UTC))


def test_added_blocks_go_on_where_the_first_ended() -> None:
    _, run = first(seed=5)
    job = add_blocks(run.job, 4, by="owner")
    more = ran(run, job)
    assert [t.block for t in more.plan.trials] == [4, 4, 5, 5, 6, 6, 7, 7]
    assert {p.item for t in more.plan.trials for p in t.probes} - {p.item for t in run.plan.trials for p in t.probes}
    seeds = [{p.seed for t in r.plan.trials for p in t.probes} for r in (run, more)]
    assert not seeds[0] & seeds[1]
    assert more.job.host_id == run.job.host_id
    assert (more.job.runtime_id, more.job.target_id, more.job.draft_hashes) == (run.job.runtime_id, run.job.target_id, run.job.draft_hashes)
    assert more.job.commands == run.job.commands
    before = [[t.arm for t in r.plan.trials if t.block == b] for r in (run, more) for b in sorted({t.block for t in r.plan.trials})]
    assert abs(sum(1 if order[0] == "off" else -1 for order in before)) <= 1


def test_blocks_added_to_an_answer_are_compared_with_those_before_at_an_interval_that_holds_for_both() -> None:
    _, run = first()
    old = current(run.job)
    more = ran(run, add_blocks(run.job, 4, by="owner"))
    assert more.job.state == "processed"
    new = current(run.job)
    assert sorted(new.parsed.block_values) == [1, 2, 3, 4, 5, 6, 7]
    assert interval(new).n_blocks == 7
    answer = new.parsed.joined
    assert answer is not None
    assert (answer.n_first, answer.n_blocks) == (3, 7)
    assert answer.confidence == pytest.approx(joined_confidence(FirstLooks(3), 3, 7))
    assert "4 of them added" in new.parsed.verdict.sentence
    old.refresh_from_db()
    assert old.superseded_by_id == new.pk
    assert not Comparison.objects.filter(job=more.job).exists()
    assert Listing.objects.get().comparison_id == new.pk
    analysis = Analysis.objects.filter(job=run.job).last()
    assert analysis is not None
    assert [(p.job, p.blocks, p.differs) for p in analysis.parsed.parts] == [
        (str(run.job.pk), [1, 2, 3], []),
        (str(more.job.pk), [4, 5, 6, 7], []),
    ]
    assert left_to_compare() == []


def test_whoever_has_the_evidence_comes_to_the_joined_answer_again() -> None:
    _, run = first()
    more = ran(run, add_blocks(run.job, 3, by="owner"))
    told = current(run.job).numbers
    for job in (run.job, more.job):
        assert compare_job(job.pk, datetime.now(UTC), again=True)
        assert current(run.job).numbers == told
    assert not Comparison.objects.current().filter(job=more.job).exists()


def test_each_addition_is_wider_than_a_first_answer_of_as_many_blocks_and_they_all_count() -> None:
    _, run = first()
    for n in (2, 3):
        ran(run, add_blocks(run.job, n, by="owner"))
    new = current(run.job)
    assert interval(new).n_blocks == 8
    answer = new.parsed.joined
    assert answer is not None
    assert (answer.n_first, answer.n_blocks) == (3, 8)
    assert answer.confidence == pytest.approx(joined_confidence(FirstLooks(3), 3, 8))
    assert answer.confidence > joined_confidence(FirstLooks(3), 3, 5) > 0.95
    assert new.analysis.parsed.comparisons[0].joined == answer


def test_blocks_that_ran_with_another_driver_stand_alone_and_say_what_differs() -> None:
    _, run = first()
    old = current(run.job)
    another_driver(run.lease.host)
    more = ran(run, add_blocks(run.job, 3, by="owner"))
    assert current(run.job).pk == old.pk
    alone = current(more.job)
    assert sorted(alone.parsed.block_values) == [4, 5, 6]
    assert alone.parsed.joined is None
    (part,) = alone.analysis.parsed.parts
    assert part.job == str(run.job.pk)
    assert any("driver" in words and "570.99" in words for words in part.differs)


def test_an_early_stopped_answer_is_added_to_without_further_early_looks() -> None:
    _, run = first(blocks=5, sequential=True)
    Attempt.objects.filter(trial__job=run.job, trial__block=5).update(accepted=False)
    assert lacking_blocks(run.job)[1] == [5]
    Job.objects.filter(pk=run.job.pk).update(decided={"draft-3": 4})  # as if a look had left the last block out
    assert lacking_blocks(run.job)[1] == []
    Job.objects.filter(pk=run.job.pk).update(decided={})
    Attempt.objects.filter(trial__job=run.job, trial__block=5).update(accepted=True)
    job = add_blocks(run.job, 3, by="owner")
    asked = spec_of_job(Job.objects.select_related("experiment").get(pk=job.pk))
    assert (asked.blocks, asked.sequential, asked.fit) == (3, False, False)
    ran(run, job)
    answer = current(run.job).parsed.joined
    assert answer is not None
    assert answer.confidence == pytest.approx(joined_confidence(FirstLooks(5, sequential=True), 5, 8))
    assert current(run.job).parsed.look is None


def failed_after(n_trials: int, **changes: object) -> tuple[sample.People, sample.Run]:
    people = sample.people()
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL | {"blocks": 5} | changes)), host)
    sample.play(run, n_trials=n_trials)
    assert fail_job(run.job.pk, EngineError("the host was lost").body(), now=NOW, by="test")
    compare_job(run.job.pk, datetime.now(UTC))
    run.job.refresh_from_db()
    return people, run


def test_the_rest_of_a_failed_job_is_its_missing_blocks_and_one_that_was_begun_is_run_whole() -> None:
    _, run = failed_after(7)
    assert interval(current(run.job)).n_blocks == 3
    job = run_the_rest(run.job, by="owner")
    assert job.blocks == [4, 5]
    more = ran(run, job)
    assert [t.id for t in more.plan.trials] == [t.id for t in run.plan.trials if t.block >= 4]
    new = current(run.job)
    assert sorted(new.parsed.block_values) == [1, 2, 3, 4, 5]
    used = set(new.analysis.parsed.attempts_used)
    assert used == {str(a.pk) for a in [*run.attempts[:6], *more.attempts]}
    assert new.parsed.joined is not None
    assert new.parsed.joined.n_first == 3
    run.job.refresh_from_db()
    assert run.job.state == "failed"
    assert run.experiment.state == JobState.PROCESSED


def test_where_too_few_blocks_had_said_nothing_the_whole_is_a_first_answer() -> None:
    _, run = failed_after(4)
    ran(run, run_the_rest(run.job, by="owner"))
    answer = current(run.job).parsed.joined
    assert answer is not None
    assert (answer.n_first, answer.confidence) == (0, 0.95)


def test_a_failed_job_of_added_blocks_keeps_what_it_measured_and_can_be_tried_again() -> None:
    _, run = first()
    job = add_blocks(run.job, 3, by="owner")
    more = sample.claimed(run.experiment, run.lease.host)
    sample.play(more, n_trials=2)
    fail_job(job.pk, EngineError("the engine died").body(), now=NOW, by="test")
    assert job.pk in left_to_compare()
    assert compare_job(job.pk, datetime.now(UTC))
    assert job.pk not in left_to_compare()
    assert sorted(current(run.job).parsed.block_values) == [1, 2, 3, 4]
    again = retry_job(job, now=NOW, by="owner")
    assert (again.extends_id, again.blocks) == (run.job.pk, [4, 5, 6])
    anew = ran(run, again)
    answer = current(run.job)
    assert sorted(answer.parsed.block_values) == [1, 2, 3, 4, 5, 6]
    # A block that was whole stays as it was seen: else one could stop and try again until it pleases.
    assert set(answer.analysis.parsed.attempts_used) == {str(a.pk) for a in [*run.attempts, *more.attempts, *anew.attempts[2:]]}


def test_a_cancelled_addition_that_no_host_took_leaves_the_way_free() -> None:
    _, run = first()
    job = add_blocks(run.job, 2, by="owner")
    assert request_cancel(job, now=NOW, by="owner")
    more = ran(run, retry_job(job, now=NOW, by="owner"))
    assert sorted({t.block for t in more.plan.trials}) == [4, 5]
    assert sorted(current(run.job).parsed.block_values) == [1, 2, 3, 4, 5]


def test_nothing_is_added_while_a_job_of_the_answer_runs() -> None:
    people = sample.people()
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    with pytest.raises(NotPossible, match="is running: nothing can be added"):
        add_blocks(run.job, 2, by="owner")
    with pytest.raises(NotPossible, match="is running"):
        run_the_rest(run.job, by="owner")


def test_what_can_not_be_added_is_refused_with_the_reason() -> None:
    """No such number, nothing missing, a build or model that is gone, a revoked host."""
    _, run = first()
    for n in (0, -3, 198, 10**9):
        with pytest.raises(SpecError) as refused:
            add_blocks(run.job, n, by="owner")
        assert refused.value.details["field"] == "blocks"
        assert "197" in refused.value.remedy_text
    with pytest.raises(NotPossible, match=r"no block of job .* is missing"):
        run_the_rest(run.job, by="owner")
    host = run.lease.host
    assert host.inventory is not None
    inventory = host.inventory.parsed
    other = [r.model_copy(update={"manifest_hash": "e" * 64}) for r in inventory.runtimes]
    store_inventory(host, inventory.model_copy(update={"runtimes": other}), datetime.now(UTC))
    with pytest.raises(NotPossible, match="no longer offers the engine build aaaaaaaaaaaa"):
        add_blocks(run.job, 2, by="owner")
    gone = [m for m in inventory.models if m.alias != "demo-draft"]
    store_inventory(host, inventory.model_copy(update={"models": gone}), datetime.now(UTC))
    with pytest.raises(NotPossible, match="no longer has the helper of draft-3 cccccccccccc"):
        add_blocks(run.job, 2, by="owner")
    revoke_host(host, now=NOW, by="owner")
    with pytest.raises(NotPossible, match="was revoked"):
        add_blocks(run.job, 2, by="owner")
    assert not Job.objects.exclude(extends=None).exists()


def test_a_build_that_changes_after_the_button_leaves_the_job_waiting_with_the_reason() -> None:
    _, run = first()
    job = add_blocks(run.job, 2, by="owner")
    host = run.lease.host
    assert host.inventory is not None
    inventory = host.inventory.parsed
    other = [r.model_copy(update={"manifest_hash": "e" * 64}) for r in inventory.runtimes]
    store_inventory(host, inventory.model_copy(update={"runtimes": other}), datetime.now(UTC))
    Host.objects.filter(pk=host.pk).update(last_seen_at=datetime.now(UTC))
    sample.dispatch_waiting(datetime.now(UTC), online_within=timedelta(minutes=5), on_queued=sample.create_trials)
    job.refresh_from_db()
    assert job.state == "waiting"
    assert "manifest hash aaaa" in job.reason


def test_a_job_without_a_whole_block_has_no_rest() -> None:
    _, run = failed_after(1)
    with pytest.raises(NotPossible, match=r"no block of job .* is whole"):
        run_the_rest(run.job, by="owner")
    with pytest.raises(NotPossible, match="no finished answer to add to"):
        add_blocks(run.job, 2, by="owner")


@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_press_at_once_one_adds_blocks() -> None:
    _, run = first()
    gate, found = threading.Barrier(2), []

    def press() -> None:
        gate.wait()
        try:
            found.append(add_blocks(Job.objects.get(pk=run.job.pk), 2, by="owner"))
        except NotPossible as error:
            found.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=press) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(type(f).__name__ for f in found) == ["Job", "NotPossible"]
    assert Job.objects.filter(extends=run.job).count() == 1


def test_the_memory_of_an_answer_is_that_of_all_its_blocks() -> None:
    _, run = first()
    more = ran(run, add_blocks(run.job, 4, by="owner"))
    for each, growth in ((run, 10.0), (more, 50.0)):
        for attempt in Attempt.objects.filter(trial__job=each.job).select_related("trial__arm", "measurement"):
            took = {"value": 1000.0 + (0.0 if attempt.trial.arm.is_baseline else growth), "source": {"file": "samples.jsonl"}}
            assert attempt.measurement is not None
            attempt.measurement.numbers |= {"peak_memory_bytes": took, "peak_device_bytes": took}
            attempt.measurement.save()
    answer = Comparison.objects.current().select_related("arm", "point").get(job=run.job)
    taken = chart_queries.memory([answer])[answer.pk]
    assert isinstance(taken, chart_queries.Memory)
    assert (taken.baseline_bytes, taken.growth_bytes) == (1000.0, 50.0)  # four of the seven blocks


def test_what_is_published_of_an_answer_has_the_evidence_of_all_its_blocks() -> None:
    people, run = first()
    more = ran(run, add_blocks(run.job, 2, by="owner"))
    (answer,) = publish(run.experiment, people.owner, now=NOW).jobs
    assert (answer["job"], answer["host"]) == (str(run.job.pk), "host 1")
    assert {file["attempt"] for file in answer["evidence"]} == {str(a.pk) for a in [*run.attempts, *more.attempts]}
    assert set(answer["analysis"]["attempts_used"]) <= {file["attempt"] for file in answer["evidence"]}


def test_what_is_published_of_blocks_that_stand_alone_is_an_answer_of_its_own_on_the_same_host() -> None:
    people, run = first()
    job = add_blocks(run.job, 3, by="owner")
    another_driver(run.lease.host)
    ran(run, job)
    answers = publish(run.experiment, people.owner, now=NOW).jobs
    assert [(a["job"], a["host"]) for a in answers] == [(str(run.job.pk), "host 1"), (str(job.pk), "host 1")]


def test_a_contrast_stays_in_the_class_of_its_plan_when_blocks_are_added() -> None:
    control = {"name": "off-again", "mode": "off", "control": True}
    _, run = first(arms=[*SMALL["arms"], control])
    before = gathered(run.lease.host.pk, NOW).contrasts
    ran(run, add_blocks(run.job, 2, by="owner"))
    after = gathered(run.lease.host.pk, NOW).contrasts
    assert [c.scope.n_blocks for c in (*before, *after)] == [3, 3]
    assert [c.estimate for c in after] == pytest.approx([c.estimate for c in before], abs=0.01)


def test_a_later_run_without_an_interval_does_not_stand_for_an_answer() -> None:
    _, run = first()
    job = add_blocks(run.job, 1, by="owner")
    another_driver(run.lease.host)
    ran(run, job)
    assert {row.comparison.job_id: row.judged for row in Listing.objects.select_related("comparison")} == {run.job.pk: True, job.pk: False}
    assert Listing.objects.get(comparison__job=job).comparison.reason == "too few blocks"
