"""What a job measured, by program: its trials, the numbers of each comparison with their sources, checks, analyses. Read, call, answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args
from uuid import UUID

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.measurement import AttemptMeasurement, ComparisonResult, Number, Withheld
from speccore.metrics import METRICS

from specweb.experiments.models import Job
from specweb.results import api_queries, diff_queries, page_queries
from specweb.results.models import Analysis, Attempt, Trial

from . import number_answers as told_as
from . import people_query as query
from . import people_shapes as shapes
from . import trial_sides
from .describing import Query, describe
from .errors import BadRequest
from .paging import PAGE, page
from .people_auth import PeopleView

#: Fields of a comparison that are named otherwise than their metric.
_METRIC_OF = {"tokens_per_s": "decode_tokens_per_s", "tokens": "completion_tokens"}


def shown_job(request: Request, job_id: UUID) -> Job:
    job = page_queries.job_shown(request.user, job_id)
    if job is None:
        raise Http404
    return job


class JobView(PeopleView):
    @describe("A job: how far it is, and what it runs with", tag="Jobs", answer=told_as.JobFound)
    def get(self, request: Request, job_id: UUID) -> Response:
        found = shown_job(request, job_id)
        job = api_queries.job_with_what_it_ran_on(request.user, found.pk)
        counted = api_queries.trials_counted([job]).get(job.pk, (0, 0))
        told = shapes.job_whole(job, counted, for_team=job.for_team)
        return Response(told | {"experiment": str(found.experiment_id), "experiment_name": found.experiment.name})


class NumbersView(PeopleView):
    @describe(
        "Every number of one comparison, with its definition and its source",
        tag="Results",
        answer=told_as.NumbersAnswer,
        query=[Query("arm", "The arm's name.", required=True), Query("point", "The point's key.", required=True)],
    )
    def get(self, request: Request, job_id: UUID) -> Response:
        job = shown_job(request, job_id)
        arm, point = (_needed(request, name) for name in ("arm", "point"))
        analysis = page_queries.newest_analysis(job)
        c = next((c for c in analysis.comparisons if (c.arm, c.point) == (arm, point)), None) if analysis else None
        if c is None:
            raise Http404
        baseline = job.experiment.parsed_spec.baseline.name
        attempts = page_queries.measurements_of(job, [baseline, arm])
        told = {
            "job": str(job.pk),
            "experiment": str(job.experiment_id),
            "arm": arm,
            "baseline": baseline,
            "point": point,
            "comparison": shapes.comparison(job, c),
            "numbers": list(_numbers(c)),
            "block_values": {str(block): value for block, value in sorted(c.block_values.items())},
            "probes": list(_probes(point, attempts)),
            "url": shapes.address("numbers", job.pk, arm=arm, point=point),
        }
        return Response(told)


def _needed(request: Request, name: str) -> str:
    given = query.text(request, name)
    if not given:
        raise BadRequest(f"{name} is missing", "The comparisons of the experiment name arm and point.", parameter=name)
    return given


def _numbers(c: ComparisonResult) -> Iterator[dict[str, Any]]:
    for name, told in ComparisonResult.model_fields.items():
        if set(get_args(told.annotation)) != {Number, Withheld}:
            continue
        side = next((s for s in ("arm", "baseline") if name.startswith(f"{s}_")), "arm")
        plain = name.removeprefix(f"{side}_")
        m, value = METRICS[_METRIC_OF.get(plain, plain)], getattr(c, name)
        known = isinstance(value, Number)
        yield {
            "metric": m.id,
            "side": side,
            "name": m.name,
            "unit": m.unit,
            "definition": m.definition,
            "definition_id": m.definition_id,
            "value": value.value if known else None,
            "withheld": None if known else value.withheld,
            "source": value.source.model_dump(mode="json") if known else None,
        }


def _probes(point: str, attempts: list[tuple[Attempt, AttemptMeasurement]]) -> Iterator[dict[str, Any]]:
    for a, m in attempts:
        for p in m.probes:
            if p.point == point and not p.warmup:
                numbers = {n: v.model_dump(mode="json") for n, v in (*p, *p.counters) if isinstance(v, Number | Withheld)}
                own = {"item": p.item, "turn": p.turn, "ok": p.ok, "failure": p.failure, "numbers": numbers}
                yield {"attempt": str(a.pk), "block": m.block, "arm": m.arm} | own


class IntegrityView(PeopleView):
    @describe("The integrity checks of a job", tag="Results", answer=told_as.IntegrityAnswer)
    def get(self, request: Request, job_id: UUID) -> Response:
        """404 also for a job that is not compared yet."""
        analysis = page_queries.newest_analysis(shown_job(request, job_id))
        if analysis is None:
            raise Http404
        each = [{"arm": c.arm, "point": c.point, "checks": [_check(k) for k in c.checks]} for c in analysis.comparisons]
        return Response({"checks": [_check(k) for k in analysis.checks], "comparisons": each})


def _check(k: Any) -> dict[str, Any]:
    return {"name": k.name, "kind": k.kind, "state": k.state, "sentence": k.sentence, "evidence": k.evidence}


class AnalysesView(PeopleView):
    @describe("The analyses of a job, the newest first", tag="Results", answer=told_as.AnalysesAnswer, query=PAGE)
    def get(self, request: Request, job_id: UUID) -> Response:
        """A job is analysed again where parsers or definitions became better; older answers stay."""
        found, more = page(request, api_queries.analyses_of(shown_job(request, job_id)))
        lines = [_analysis(a) | {"n_comparisons": a.n, "current": a.current} for a in found]
        urls = [{"api_url": shapes.address("api-analysis", job_id, a.pk)} for a in found]
        return Response({"analyses": [line | url for line, url in zip(lines, urls, strict=True)], "next": more})


class AnalysisView(PeopleView):
    @describe("One analysis as it was computed", tag="Results", answer=told_as.AnalysisAnswer)
    def get(self, request: Request, job_id: UUID, analysis_id: int) -> Response:
        job = shown_job(request, job_id)
        found = api_queries.analysis_of(job, analysis_id)
        if found is None:
            raise Http404
        return Response(_analysis(found) | {"content": found.numbers})


def _analysis(a: Analysis) -> dict[str, Any]:
    return {"id": a.pk, "analysis_version": a.analysis_version, "created_at": a.created_at}


class TrialsView(PeopleView):
    @describe("The trials of a job with their attempts, in the order of running", tag="Results", answer=told_as.TrialsAnswer, query=PAGE)
    def get(self, request: Request, job_id: UUID) -> Response:
        job = shown_job(request, job_id)
        found, more = page(request, api_queries.trials_of(job), ("index",))
        return Response({"trials": [_trial(t) for t in found], "next": more})


def _trial(t: Trial) -> dict[str, Any]:
    own = {"plan_id": t.plan_id, "number": t.index + 1, "block": t.block, "position": t.position, "points": t.points}
    return own | {"arm": t.arm.name, "attempts": [_attempt(a) for a in t.attempts.all()]}


def _attempt(a: Attempt) -> dict[str, Any]:
    own = ("n", "outcome", "accepted", "void_reason", "started_at", "ended_at")
    return {"id": str(a.pk), **{name: getattr(a, name) for name in own}, "api_url": shapes.address("api-attempt", a.pk)}


class AttemptView(PeopleView):
    @describe("An attempt with every number that was read from its evidence", tag="Results", answer=told_as.AttemptAnswer)
    def get(self, request: Request, attempt_id: UUID) -> Response:
        """What a check says of an answer is for the team: it may quote it."""
        a = page_queries.attempt_shown(request.user, attempt_id)
        if a is None:
            raise Http404
        trial, experiment = a.trial, a.trial.job.experiment
        told = a.measurement.parsed.model_dump(mode="json") if a.measurement else None
        if told and not page_queries.reads_texts(request.user, experiment):
            for probe in told["probes"]:
                probe.pop("check_note")
        more = {
            "job": str(trial.job_id),
            "experiment": str(experiment.pk),
            "trial": trial.plan_id,
            "arm": trial.arm.name,
            "block": trial.block,
            "error": a.error,
            "durations_s": a.durations_s,
            "parse_error": a.parse_error,
            "measurement": told,
            "evidence_url": shapes.address("api-evidence-list", trial.job_id, attempt=str(a.pk)),
            "url": shapes.address("attempt", a.pk),
        }
        return Response(_attempt(a) | more)


class AttemptDiffView(PeopleView):
    @describe(
        "Two trials side by side",
        tag="Results",
        answer=told_as.DiffAnswer,
        query=[Query("with", "Another attempt; without it, what this one can be held against.", {"type": "string", "format": "uuid"})],
    )
    def get(self, request: Request, attempt_id: UUID) -> Response:
        one = page_queries.attempt_shown(request.user, attempt_id, whole=True)
        named = query.uuid_of(query.text(request, "with"), "with")
        other = page_queries.attempt_shown(request.user, named, whole=True) if named else None
        if one is None or (named and other is None):
            raise Http404
        told: dict[str, Any] = {"candidates": [_candidate(c) for c in diff_queries.candidates(one)]}
        if other is None:
            return Response(told | {"a": None, "b": None, "one_pair": None, "differences": []})
        a, b = (trial_sides.side(x, request.user) for x in (one, other))
        pair = trial_sides.one_pair(one, other)
        return Response(told | {"a": a, "b": b, "one_pair": pair, "differences": list(trial_sides.differences(a, b))})


def _candidate(c: diff_queries.Candidate) -> dict[str, Any]:
    return {"attempt": str(c.id), "trial": c.trial, "n": c.n, "arm": c.arm, "block": c.block, "accepted": c.accepted}
