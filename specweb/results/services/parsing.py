"""Evidence → numbers: a new measurement set for an attempt, and a pointer moved to it."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, transaction
from speccore.errors import ErrorBody, HashMismatch, ServerError, SpecWebError
from speccore.measure import measure_attempt
from speccore.measurement import PARSER_VERSION, AttemptMeasurement, Maybe, Number, ProbeMeasurement
from speccore.workload import Workload

from specweb import queue
from specweb.experiments.models import Experiment, Point
from specweb.experiments.text import storable
from specweb.results.models import Attempt, AttemptState, MeasurementSet, Probe
from specweb.results.store import read_blob

log = logging.getLogger(__name__)

#: Unreadable evidence is read this often (a disk may come back); a parser's fault is final at once.
MAX_TRIES = 3
#: No fault of the numbers.
DATABASE_AWAY = (OperationalError, InterfaceError)


class EvidenceUnreadable(ServerError):
    code = "evidence_unreadable"
    remedy = "See whether the evidence folder is there and readable; then run reparse."


class EvidenceOfAnother(ServerError):
    code = "evidence_of_another"
    retry = False
    remedy = "Look at the attempt's files: the agent sent what is not of this attempt. Its trial can be measured again."


class ParserFault(ServerError):
    code = "parser_fault"
    retry = False
    remedy = "Report the fault with the attempt's evidence; after an update, run reparse."


def parse_attempt(attempt_id: UUID, *, again: bool = False) -> bool:
    """Measures an attempt once; with ``again`` adds another set to one that was parsed before. Returns whether it did.

    A failure is recorded on the attempt, whose evidence stays, and not raised; but for those of a database that is away, full
    or cut short: the sweep tries again.
    """
    attempt = _attempts().filter(pk=attempt_id).first()
    if attempt is None or (attempt.state != AttemptState.RECEIVED and not again):
        return False
    try:
        measurement = measure(attempt)
    except DATABASE_AWAY:
        raise
    except SpecWebError as error:
        _note_failure(attempt, error.body())
    except Exception as error:
        log.exception("attempt %s can't be parsed", attempt_id)
        _note_failure(attempt, ParserFault(f"the parser failed: {type(error).__name__}: {error}").body())
    else:
        return _store(attempt, measurement)
    return False


def measure(attempt: Attempt) -> AttemptMeasurement:
    """The numbers of an attempt, read from its evidence anew. Raises :class:`SpecWebError` if a file is gone or damaged."""
    experiment = attempt.trial.job.experiment
    files = {}
    for file in attempt.evidence.select_related("blob"):
        try:
            files[file.name] = read_blob(file.blob)
        except OSError as error:
            raise EvidenceUnreadable(f"{file.name} can't be read: {error.strerror or error}", file=file.name) from None
        except HashMismatch as error:
            got = error.details.get("got")
            now = f"its SHA-256 begins with {got[:12]}" if got else "it can't be decompressed any more"
            said = f"{file.name} has changed since it was stored: {now}, announced was {file.blob.sha256[:12]}"
            raise HashMismatch(said, file=file.name, path=file.blob.path, **error.details) from None
    measurement = measure_attempt(files, experiment.parsed_spec, workloads_of(experiment))
    if (measurement.attempt_id, measurement.trial) != (str(attempt.pk), attempt.trial.plan_id):
        told = f"attempt {measurement.attempt_id or '(none)'} at trial {measurement.trial or '(none)'}"
        raise EvidenceOfAnother(f"the evidence is that of {told}, reported was {attempt.pk} at {attempt.trial.plan_id}")
    return measurement


def workloads_of(experiment: Experiment) -> dict[str, Workload]:
    """The contents behind the workload names that the experiment's points use."""
    return {p.settings["workload"]: p.workload.parsed for p in experiment.points.select_related("workload")}


def wake_comparison(attempt_id: UUID) -> None:
    job_id = Attempt.objects.filter(pk=attempt_id).values_list("trial__job_id", flat=True).first()
    if job_id is not None:
        queue.send("compare_job", str(job_id))


def _attempts() -> Any:
    return Attempt.objects.select_related("trial__job__experiment")


def _store(attempt: Attempt, measurement: AttemptMeasurement) -> bool:
    points = {p.key: p for p in Point.objects.filter(experiment=attempt.trial.job.experiment)}
    try:
        with transaction.atomic():
            numbers = storable(measurement.model_dump(mode="json"))
            kept = MeasurementSet.objects.create(attempt=attempt, parser_version=PARSER_VERSION, numbers=numbers)
            Probe.objects.bulk_create([_probe(kept, i, p, points[p.point]) for i, p in enumerate(measurement.probes)])
            # Swapped, so that two workers with one attempt leave one current set, not two.
            found = Attempt.objects.filter(pk=attempt.pk, state=attempt.state, measurement=attempt.measurement_id)
            if not found.update(measurement=kept, state=AttemptState.PARSED, parse_error=None):
                transaction.set_rollback(True)
                return False
    except DATABASE_AWAY:
        raise
    except (DatabaseError, KeyError) as error:
        log.exception("the numbers of attempt %s can't be stored", attempt.pk)
        _note_failure(attempt, ParserFault(f"the numbers can't be stored: {type(error).__name__}: {error}").body())
        return False
    return True


def _note_failure(attempt: Attempt, error: ErrorBody) -> None:
    """A set that an earlier parse left stays current; without one the attempt waits for another try, or has failed."""
    tries = attempt.n_parse_tries + 1
    state = attempt.state
    if attempt.measurement_id is None:
        state = AttemptState.RECEIVED if error.retry and tries < MAX_TRIES else AttemptState.PARSE_FAILED
    Attempt.objects.filter(pk=attempt.pk).update(state=state, n_parse_tries=tries, parse_error=storable(error.model_dump(mode="json")))


def _probe(kept: MeasurementSet, i: int, p: ProbeMeasurement, point: Point) -> Probe:
    c = p.counters
    return Probe(
        measurement=kept,
        attempt_id=kept.attempt_id,
        point=point,
        i=i,
        probe=p.probe,
        item=p.item,
        warmup=p.warmup,
        ok=p.ok,
        failure=p.failure[:60],
        failure_message=storable(p.failure_message),
        finish_reason=p.finish_reason[:40],
        line=p.line,
        ttft_any_s=_value(p.ttft_any_s),
        ttft_content_s=_value(p.ttft_content_s),
        e2e_s=_value(p.e2e_s),
        decode_tokens_per_s=_value(p.decode_tokens_per_s),
        prompt_tokens=_count(p.prompt_tokens),
        tokens=_count(p.completion_tokens),
        cache_hit_tokens=_count(p.cache_hit_tokens),
        drafted=_count(c.drafted),
        accepted=_count(c.accepted),
        verify_steps=_count(c.verify_steps),
        decode_steps=_count(c.decode_steps),
        check_passed=p.check_passed,
        check_note=storable(p.check_note),
    )


def _value(number: Maybe) -> float | None:
    return number.value if isinstance(number, Number) else None


def _count(number: Maybe) -> int | None:
    return round(number.value) if isinstance(number, Number) else None
