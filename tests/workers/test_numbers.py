"""From reported evidence to comparisons: parsing, comparing, doing both again, and what goes wrong on the way."""

from __future__ import annotations

import json
import uuid
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from speccore.errors import ErrorBody
from speccore.protocol import JobOffer, TrialPlan

from specweb import queue
from specweb.experiments.models import Job
from specweb.experiments.services.submission import submit
from specweb.results.models import Analysis, Attempt, Comparison, MeasurementSet, Probe
from specweb.results.queries import left_to_compare, left_to_parse
from specweb.results.services import parsing
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from tests.evidence import N_TOKENS, SPEEDUP, files_of
from tests.worlds import World, dispatch, make_world, spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: Any) -> World:
    return make_world()


@pytest.fixture
def offer(world: World) -> JobOffer:
    world.agent.poll()
    world.agent.send_inventory()
    submit(spec(), world.team, world.owner)
    dispatch()
    return world.agent.offer()


def deliver(world: World, offer: JobOffer, trial: TrialPlan, **changes: Any) -> Attempt:
    attempt_id = str(uuid.uuid4())
    files = files_of(offer, trial, attempt_id)
    reply = world.agent.deliver(offer, trial.id, files, attempt_id=attempt_id, **changes)
    assert reply.json()["stored"], reply.content
    return Attempt.objects.get(pk=attempt_id)


def finish(world: World, offer: JobOffer, outcome: str = "completed") -> None:
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": offer.lease, "outcome": outcome}])


def parse_all() -> None:
    for pk in Attempt.objects.values_list("pk", flat=True):
        parse_attempt(pk)


@pytest.fixture
def measured(world: World, offer: JobOffer) -> Job:
    """A job whose six trials went well and were parsed, and which the agent has completed."""
    for trial in offer.plan.trials:
        deliver(world, offer, trial)
    finish(world, offer)
    parse_all()
    return Job.objects.get()


class TestParsing:
    def test_reads_the_probes(self, world: World, offer: JobOffer) -> None:
        trial = next(t for t in offer.plan.trials if t.arm == "draft-4")
        attempt = deliver(world, offer, trial)
        assert parse_attempt(attempt.pk)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.parse_error) == ("parsed", None)
        probes = list(Probe.objects.filter(measurement=attempt.measurement))
        assert [p.warmup for p in probes] == [True, False, False]
        probe = probes[1]
        assert (probe.ok, probe.tokens, probe.drafted, probe.accepted, probe.verify_steps, probe.line) == (True, N_TOKENS, 28, 21, 7, 2)
        assert probe.decode_tokens_per_s == pytest.approx(200, rel=0.01)
        assert attempt.measurement is not None
        assert attempt.measurement.parsed.engaged is True

    def test_a_withheld_number_is_null(self, world: World, offer: JobOffer) -> None:
        attempt = deliver(world, offer, next(t for t in offer.plan.trials if t.arm == "off"))
        parse_attempt(attempt.pk)
        assert set(Probe.objects.values_list("drafted", "accepted")) == {(None, None)}

    def test_once(self, world: World, offer: JobOffer) -> None:
        attempt = deliver(world, offer, offer.plan.trials[0])
        assert (parse_attempt(attempt.pk), parse_attempt(attempt.pk)) == (True, False)
        assert MeasurementSet.objects.count() == 1

    def test_two_workers_leave_one_current_set(self, world: World, offer: JobOffer) -> None:
        attempt = deliver(world, offer, offer.plan.trials[0])
        late = Attempt.objects.select_related("trial__job__experiment").get(pk=attempt.pk)
        measurement = parsing.measure(late)
        parse_attempt(attempt.pk)
        assert parsing._store(late, measurement) is False
        assert MeasurementSet.objects.count() == 1

    def test_evidence_that_is_gone_is_tried_three_times(self, world: World, offer: JobOffer, evidence_folder: Path) -> None:
        attempt = deliver(world, offer, offer.plan.trials[0])
        gone = attempt.evidence.get(name="records.jsonl").blob
        (evidence_folder / gone.path).rename(evidence_folder / "away")
        for state in ("received", "received", "parse_failed"):
            assert not parse_attempt(attempt.pk)
            attempt.refresh_from_db()
            assert attempt.state == state
        assert attempt.parse_error["code"] == "evidence_unreadable"
        assert "records.jsonl" in attempt.parse_error["message"]

    def test_evidence_that_changed_on_disk(self, world: World, offer: JobOffer, evidence_folder: Path) -> None:
        attempt = deliver(world, offer, offer.plan.trials[0])
        log, records = (attempt.evidence.get(name=n).blob for n in ("server.log", "records.jsonl"))
        (evidence_folder / records.path).write_bytes((evidence_folder / log.path).read_bytes())
        for _ in range(3):
            parse_attempt(attempt.pk)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.parse_error["code"]) == ("parse_failed", "hash_mismatch")

    def test_evidence_of_another_attempt(self, world: World, offer: JobOffer) -> None:
        trial, other = offer.plan.trials[:2]
        attempt_id = str(uuid.uuid4())
        world.agent.deliver(offer, trial.id, files_of(offer, other, attempt_id), attempt_id=attempt_id)
        nothing = str(uuid.uuid4())
        world.agent.deliver(offer, other.id, {}, attempt_id=nothing)
        for pk in (attempt_id, nothing):
            assert not parse_attempt(uuid.UUID(pk))
            attempt = Attempt.objects.get(pk=pk)
            assert (attempt.state, attempt.parse_error["code"]) == ("parse_failed", "evidence_of_another")

    def test_a_parser_that_fails_says_so_and_blocks_nothing(self, world: World, offer: JobOffer, monkeypatch: pytest.MonkeyPatch) -> None:
        attempt = deliver(world, offer, offer.plan.trials[0])
        monkeypatch.setattr(parsing, "measure_attempt", lambda *a: 1 / 0)
        assert not parse_attempt(attempt.pk)
        attempt.refresh_from_db()
        assert (attempt.state, attempt.parse_error["code"]) == ("parse_failed", "parser_fault")
        assert "ZeroDivisionError" in attempt.parse_error["message"]


class TestComparing:
    def test_the_ratio_is_right(self, measured: Job) -> None:
        assert compare_job(measured.pk, timezone.now())
        comparison = Comparison.objects.get()
        assert comparison.speedup == pytest.approx(SPEEDUP, rel=1e-3)
        assert comparison.ci_low is not None
        assert comparison.ci_high is not None
        assert comparison.ci_low < comparison.speedup < comparison.ci_high
        assert (comparison.n_blocks, comparison.arm.name, comparison.point.key) == (3, "draft-4", "tiny/c1/ctx0/t0")
        numbers = comparison.parsed
        assert numbers.acceptance_rate.value == pytest.approx(0.75)  # type: ignore[union-attr]
        assert numbers.tokens_per_target_pass.value == pytest.approx(4)  # type: ignore[union-attr]
        assert numbers.memory_bill_bytes.value == 100_000_000  # type: ignore[union-attr]
        assert comparison.verdict == numbers.verdict.word
        measured.refresh_from_db()
        assert (measured.state, measured.progress) == ("processed", None)

    def test_waits_for_all_attempts_to_be_parsed(self, world: World, offer: JobOffer) -> None:
        first, *_ = [deliver(world, offer, t) for t in offer.plan.trials]
        finish(world, offer)
        job = Job.objects.get()
        for attempt in Attempt.objects.exclude(pk=first.pk):
            parse_attempt(attempt.pk)
        assert not compare_job(job.pk, timezone.now())
        assert left_to_compare() == []
        parse_attempt(first.pk)
        assert left_to_compare() == [job.pk]
        assert compare_job(job.pk, timezone.now())

    def test_once(self, measured: Job) -> None:
        assert (compare_job(measured.pk, timezone.now()), compare_job(measured.pk, timezone.now())) == (True, False)
        assert Analysis.objects.count() == 1

    def test_not_while_it_runs(self, world: World, offer: JobOffer) -> None:
        deliver(world, offer, offer.plan.trials[0])
        parse_all()
        assert not compare_job(Job.objects.get().pk, timezone.now())

    def test_again_supersedes_and_deletes_nothing(self, measured: Job) -> None:
        compare_job(measured.pk, timezone.now())
        first = Comparison.objects.get()
        out = StringIO()
        call_command("reparse", str(measured.experiment_id), stdout=out)
        assert "6 of 6 attempts read again, 1 jobs compared again" in out.getvalue()
        second = Comparison.objects.current().get()
        first.refresh_from_db()
        assert first.superseded_by == second
        assert second.speedup == first.speedup
        assert (Comparison.objects.count(), Analysis.objects.count(), MeasurementSet.objects.count()) == (2, 2, 12)
        assert Attempt.objects.filter(measurement__in=MeasurementSet.objects.order_by("-pk")[:6]).count() == 6

    def test_a_byte_changed_in_stored_evidence_makes_a_verdict_invalid_when_it_is_read_again(
        self, measured: Job, evidence_folder: Path
    ) -> None:
        compare_job(measured.pk, timezone.now())
        before = Comparison.objects.get()
        assert before.verdict != "invalid"
        damaged = Attempt.objects.order_by("pk").first()
        assert damaged is not None
        stored = evidence_folder / damaged.evidence.get(name="records.jsonl").blob.path
        data = bytearray(stored.read_bytes())
        data[len(data) // 2] ^= 1
        stored.write_bytes(data)
        call_command("reparse", str(measured.experiment_id), stdout=StringIO())
        after = Comparison.objects.current().get()
        assert (after.verdict, after.reason) == ("invalid", "evidence hashes")
        sentence = after.numbers["verdict"]["sentence"]
        assert sentence.startswith(f"{damaged.trial.plan_id}: records.jsonl has changed since it was stored")
        assert after.numbers["verdict"]["next_step"].startswith("restore the file from a copy")

    def test_a_failed_job_keeps_its_finished_blocks(self, world: World, offer: JobOffer) -> None:
        for trial in offer.plan.trials:
            deliver(world, offer, trial)
        finish(world, offer, "failed")
        parse_all()
        job = Job.objects.get()
        assert left_to_compare() == [job.pk]
        assert compare_job(job.pk, timezone.now())
        job.refresh_from_db()
        assert (job.state, Comparison.objects.count()) == ("failed", 1)
        assert left_to_compare() == []

    def test_failed_trials_are_told_and_do_not_count(self, world: World, offer: JobOffer) -> None:
        error = ErrorBody(code="engine_out_of_memory", message="out of memory", blame="engine")
        for trial in offer.plan.trials:
            bad = trial.arm == "draft-4" and trial.block < 3
            deliver(world, offer, trial, **({"outcome": "failed", "error": error} if bad else {}))
        finish(world, offer)
        parse_all()
        compare_job(Job.objects.get().pk, timezone.now())
        comparison = Comparison.objects.get()
        assert (comparison.verdict, comparison.reason) == ("disable", "does not fit")

    def test_an_attempt_that_cannot_be_parsed_is_missing_and_said(
        self, world: World, offer: JobOffer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempts = [deliver(world, offer, t) for t in offer.plan.trials]
        with monkeypatch.context() as broken:
            broken.setattr(parsing, "measure_attempt", lambda *a: 1 / 0)
            parse_attempt(attempts[0].pk)
        parse_all()
        finish(world, offer)
        assert compare_job(Job.objects.get().pk, timezone.now())
        assert Comparison.objects.get().n_blocks == 2
        assert Job.objects.get().state == "processed"

    def test_a_fault_of_the_analysis_fails_the_job_with_its_reason(self, measured: Job, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("specweb.results.services.comparing.analyse_job", lambda *a, **k: 1 / 0)
        assert not compare_job(measured.pk, timezone.now())
        measured.refresh_from_db()
        assert (measured.state, measured.error["code"]) == ("failed", "analysis_fault")


class TestReport:
    def test_the_json_of_an_experiment(self, measured: Job) -> None:
        compare_job(measured.pk, timezone.now())
        out = StringIO()
        call_command("report", str(measured.pk), "--json", stdout=out)
        told = json.loads(out.getvalue())
        assert set(told) == {"experiment", "url", "n_trials", "comparisons", "evidence"}
        assert told["experiment"] == str(measured.experiment_id)
        assert told["url"].endswith(f"/experiments/{measured.experiment_id}/")
        assert told["n_trials"] == 6
        (line,) = told["comparisons"]
        assert set(line) == {
            *("host", "arm", "mode", "workload", "concurrency", "occupied_context", "temperature", "speedup", "ci_low", "ci_high"),
            *("n_blocks", "verdict", "reason", "acceptance_rate", "drafted_per_cycle", "mean_acceptance_length", "tokens_per_target_pass"),
            *("memory_bill_bytes", "not_restarted"),
        }
        assert (line["host"], line["arm"], line["mode"], line["n_blocks"]) == ("box", "draft-4", "draft", 3)
        assert line["mean_acceptance_length"] == pytest.approx(4)
        assert len(told["evidence"]) == 6 * 8
        assert set(told["evidence"][0]) == {"trial", "attempt", "file", "sha256", "bytes"}

    def test_no_such_experiment(self, db: Any) -> None:
        from django.core.management.base import CommandError

        for wrong in ("nonsense", str(uuid.uuid4())):
            with pytest.raises(CommandError) as caught:
                call_command("report", wrong)
            assert caught.value.returncode == 2


class TestSweep:
    def test_finds_what_a_lost_message_left(self, world: World, offer: JobOffer, monkeypatch: pytest.MonkeyPatch) -> None:
        from workers import tasks

        sent: list[tuple[str, ...]] = []
        monkeypatch.setattr(queue, "send", lambda *a: sent.append(a) or True)
        attempt = deliver(world, offer, offer.plan.trials[0])
        assert left_to_parse(attempt.received_at) == []
        Attempt.objects.update(received_at=attempt.received_at - tasks.OVERDUE * 2)
        tasks.sweep()
        assert sent == [("parse_attempt", str(attempt.pk))]
        parse_all()
        sent.clear()
        finish(world, offer)
        assert sent == [("compare_job", offer.job_id)]  # the poll itself wakes the comparison
        sent.clear()
        tasks.sweep()
        assert sent == [("compare_job", offer.job_id)]
