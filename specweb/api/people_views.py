"""The API for people's programs: experiments and hosts. Read, call, answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.yamltext import spec_to_yaml

from specweb.accounts.models import Team
from specweb.accounts.scopes import Scope
from specweb.accounts.services import memberships_of
from specweb.experiments.models import Experiment, Visibility
from specweb.experiments.services.preview import preview
from specweb.experiments.services.sharing import visibility_was_changed
from specweb.experiments.services.silence import Limits, host_state
from specweb.experiments.services.submission import submit_once
from specweb.exports.experiment_filter import ORDERS, ExperimentFilter
from specweb.results import api_queries, page_queries
from specweb.results.cost_queries import trial_costs
from specweb.results.pilot_queries import pilots

from . import answers
from . import people_query as query
from . import people_shapes as shapes
from .describing import TEAM, YAML, Query, choice, describe
from .errors import KeyReused, SpecInvalid
from .paging import PAGE, filtered, filters_of, page
from .people_auth import PeopleView, submitting_team
from .people_body import EXPERIMENT, PARSERS, body_of
from .people_renderers import OtherThanJson, Yaml

KEY_HEADER = "Idempotency-Key"
KEY = Query(
    KEY_HEADER, "A UUID that you draw: sent again with the same experiment, nothing more is stored.", {"type": "string", "format": "uuid"}
)
VISIBILITY = choice("visibility", "Who may read it.", Visibility)


class MeView(PeopleView):
    @describe("Whose token it is", tag="You", answer=answers.MeAnswer)
    def get(self, request: Request) -> Response:
        """The first thing to ask when something is refused."""
        return Response(shapes.person(request.user, memberships_of(request.user)))


class ExperimentsView(PeopleView):
    parser_classes = PARSERS

    @describe(
        "Experiments",
        tag="Experiments",
        answer=answers.ExperimentsAnswer,
        query=[*filters_of(ExperimentFilter), *PAGE],
    )
    def get(self, request: Request) -> Response:
        rows = filtered(request, ExperimentFilter, api_queries.experiments_listed(request.user))
        found, more = page(request, rows, ORDERS[query.text(request, "order") or "newest"])
        return Response({"experiments": [shapes.experiment_line(e) for e in found], "next": more})

    @describe(
        "Submit an experiment",
        tag="Experiments",
        answer=answers.ExperimentLine,
        status=201,
        also={200: "The same came before under this key."},
        body=EXPERIMENT,
        query=[TEAM, VISIBILITY],
        headers=[KEY],
        refuses=[409, 422],
    )
    def post(self, request: Request) -> Response:
        """A new experiment; one that came before under the same key and is the same is answered with what it became."""
        team = submitting_team(request.user, query.text(request, "team"))
        visibility = query.one_of(request, "visibility", Visibility) or Visibility.TEAM
        key = query.uuid_of(request.headers.get(KEY_HEADER, "").strip(), KEY_HEADER)
        body = body_of(request)
        known = _sent_before(team, key)
        if known is not None:
            _refuse_another(known, body.spec_hash(), visibility)
            return self._answer(request, known, 200)
        checked = body.checked(team, request.user)
        if checked.spec is None:
            raise SpecInvalid(checked.problems)
        stored, created = submit_once(checked.spec, team, request.user, visibility, submission_key=key)
        _refuse_another(stored, checked.spec.spec_hash(), visibility)  # another request may have come first with this key
        return self._answer(request, stored, 201 if created else 200)

    def _answer(self, request: Request, experiment: Experiment, status: int) -> Response:
        shown = page_queries.experiment_shown(request.user, experiment.pk)
        if shown is None:
            raise Http404
        line = shapes.experiment_line(shown)
        return Response(line, status=status, headers={"Location": line["api_url"]})


def _sent_before(team: Team, key: UUID | None) -> Experiment | None:
    return Experiment.objects.filter(team=team, submission_key=key).first() if key else None


def _refuse_another(known: Experiment, spec_hash: str, visibility: Visibility) -> None:
    if known.spec_hash != spec_hash or (known.visibility != visibility and not visibility_was_changed(known)):
        raise KeyReused(f"this {KEY_HEADER} came before with another experiment", experiment=str(known.pk))


class PreviewView(PeopleView):
    parser_classes = PARSERS

    @describe(
        "What would run",
        tag="Experiments",
        answer=answers.PreviewAnswer,
        body=EXPERIMENT,
        query=[TEAM, Query("budget", "The time to fill, such as 3h or 90min.")],
        refuses=[422],
        scope=Scope.READ,
    )
    def post(self, request: Request) -> Response:
        """What would run, where and for how long, and what would serve better. Nothing is stored."""
        budget_s = query.span(request, "budget")
        team = submitting_team(request.user, query.text(request, "team"))
        checked = body_of(request).checked(team, request.user)
        if checked.spec is None:
            raise SpecInvalid(checked.problems)
        target, now, limits = checked.spec.target.model, timezone.now(), Limits.of(settings)
        history, earlier = trial_costs(team, target), pilots(team, target)
        found = preview(checked.spec, team, now=now, limits=limits, history=history, pilots=earlier, budget_s=budget_s, user=request.user)
        return Response(shapes.values(replace(found, warnings=checked.as_written(found.warnings))))


class ExperimentView(PeopleView):
    @describe("An experiment with its jobs and comparisons", tag="Experiments", answer=answers.ExperimentAnswer)
    def get(self, request: Request, experiment_id: UUID) -> Response:
        found = _shown(request, experiment_id)
        jobs = list(found.jobs.all())
        by_id, counted = {j.pk: j for j in jobs}, api_queries.trials_counted(jobs)
        for_team = page_queries.is_member(request.user, found)
        whole: dict[str, Any] = shapes.experiment_line(found) | {
            "spec": found.spec,
            "spec_hash": found.spec_hash,
            "spec_yaml_url": shapes.address("api-spec-yaml", found.pk),
            "jobs": [shapes.job_whole(j, counted.get(j.pk, (0, 0)), for_team=for_team) for j in jobs],
            "comparisons": [shapes.comparison(by_id[c.job_id], c.parsed) for c in api_queries.comparisons_of(found)],
        }
        return Response(whole)


class SpecYamlView(OtherThanJson):
    renderer_classes = [Yaml]

    @describe("An experiment as a person would write it", tag="Experiments", media=YAML)
    def get(self, request: Request, experiment_id: UUID) -> Response:
        return Response(spec_to_yaml(_shown(request, experiment_id).parsed_spec))


def _shown(request: Request, experiment_id: UUID) -> Experiment:
    found = page_queries.experiment_shown(request.user, experiment_id)
    if found is None:
        raise Http404
    return found


class HostsView(PeopleView):
    @describe("Hosts of your teams, with what they offer", tag="Hosts", answer=answers.HostsAnswer, query=[TEAM])
    def get(self, request: Request) -> Response:
        hosts = api_queries.hosts_listed(request.user, team=query.text(request, "team"))
        now, limits = timezone.now(), Limits.of(settings)
        return Response({"hosts": [shapes.host_line(h, host_state(h, now, limits)) for h in hosts]})
