"""The experiment form and its preview: read, call, answer. Each button sends the whole form and gets it back with all that was typed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import TooManyFieldsSent
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST
from speccore.errors import SpecError, UnknownModel
from speccore.spans import span_of
from speccore.spec import SpecProblem

from specweb.accounts.models import Team, User
from specweb.accounts.services import teams_submitted
from specweb.experiments import offers
from specweb.experiments.models import Experiment, Visibility
from specweb.experiments.services.checking import Checked, check, check_yaml
from specweb.experiments.services.preview import preview
from specweb.experiments.services.submission import submit
from specweb.results.cost_queries import trial_costs
from specweb.results.pilot_queries import pilots

from . import form_choices, form_rows, form_yaml, presets_page
from .form_data import data_of, typed_of, words_of
from .form_page import SUMMARY, Fault, Reply, Sent, faults_of, form_of, own_faults, read_sent
from .form_preview import preview_shown
from .form_session import ended, log_in_and_go_on, not_allowed
from .form_starts import start_of
from .form_take import is_take, take
from .limits import limits

N_RECENT = 12


@require_http_methods(["GET", "HEAD", "POST"])
def experiment_new(request: HttpRequest) -> HttpResponse:
    if not request.user.is_authenticated:
        if request.method != "POST":
            return redirect_to_login(request.get_full_path())
        if (refused := log_in_and_go_on(request)) is not None:
            return refused
    teams = list(teams_submitted(request.user))
    if not teams:
        return not_allowed(request)
    if request.method != "POST":
        return _start(request, teams)
    sent = _sent(request)
    team = next((t for t in teams if t.slug == sent.team), None)
    if team is None:
        fault = Fault("team", "you can’t submit for that team (any more): choose another", "Team")
        return _page(request, teams, teams[0], Reply(replace(sent, team=teams[0].slug), [fault], SUMMARY))
    action = request.POST.get("do", "")
    if action == "submit":
        return _submit(request, teams, team, sent)
    return _page(request, teams, team, _act(request, team, sent, action), with_preview=action == "preview" or is_take(action))


@require_POST
def experiment_preview(request: HttpRequest) -> HttpResponse:
    """The part of the page that follows what is typed."""
    if not request.user.is_authenticated:
        return ended(request)
    sent = _sent(request)
    teams = list(teams_submitted(request.user))
    team = next((t for t in teams if t.slug == sent.team), None)
    if team is None:
        return not_allowed(request)
    return render(request, "dashboard/_form_preview.html", _preview_context(team, sent, request.user))


def _sent(request: HttpRequest) -> Sent:
    sent = read_sent([(name, text) for name, texts in request.POST.lists() for text in texts])
    if sent.typed.is_too_long:
        raise TooManyFieldsSent("the form has more rows than are shown")
    return sent


def _start(request: HttpRequest, teams: list[Team]) -> HttpResponse:
    """A new form: with good defaults, or with what the address names."""
    start = start_of(request, teams)
    sent = Sent(key=str(uuid.uuid4()), team=start.team.slug)
    return _page(request, teams, start.team, Reply(sent, notice=start.notice), data=start.data)


def _page(
    request: HttpRequest, teams: Sequence[Team], team: Team, reply: Reply, *, data: dict[str, Any] | None = None, with_preview: bool = False
) -> HttpResponse:
    """The whole page, or only the form for a script that asks. A new form is filled with ``data``, or with what is usual."""
    offered = form_choices.choices(offers.hosts_of(team), offers.workloads_of(team, request.user), timezone.now(), limits())
    sent = reply.sent
    if request.method != "POST":
        sent = replace(sent, typed=typed_of(data or form_choices.usual_data(offered))[0])
    context: dict[str, Any] = {
        "sent": sent,
        "teams": teams,
        "team": team,
        "form": form_of(sent, offered, reply.faults, reply.focus),
        "focus": reply.focus,
        "notice": reply.notice,
        "n_hosts": len(offered.hosts),
    }
    if request.htmx:
        answer = render(request, "dashboard/_form.html", context)
        answer["HX-Trigger-After-Settle"] = "form-changed"
        return answer
    if with_preview and not reply.faults:
        context |= _preview_context(team, sent, request.user)
    context["recent"] = offers.recent_experiments(request.user, N_RECENT)
    return render(request, "dashboard/experiment_new.html", context)


def _checked(team: Team, sent: Sent, user: User) -> tuple[Checked, list[Fault]]:
    """The experiment of the view that is open, or all that is wrong with it."""
    own = own_faults(sent) if sent.view == "form" else []
    if sent.view == "yaml":
        checked: Checked = check_yaml(sent.yaml.encode("utf-8", "replace"), team, user)
    else:
        checked = check(data_of(sent.typed), team, user)
    told = {fault.name for fault in own}  # once, and by who knows why
    faults = [fault for fault in faults_of(checked.problems, sent) if not fault.name or fault.name not in told]
    return (replace(checked, spec=None) if own else checked), own + faults


def _preview_context(team: Team, sent: Sent, user: User) -> dict[str, Any]:
    checked, faults = _checked(team, sent, user)
    spec = checked.spec
    if spec is None:
        only_models = checked.asked is not None and all(p.code == UnknownModel.code for p in checked.problems)
        return {"preview_faults": faults, "builds": presets_page.build_commands(checked.asked) if checked.asked and only_models else []}
    history, earlier = trial_costs(team, spec.target.model), pilots(team, spec.target.model)
    budget_s, budget_fault = _budget(sent)
    try:
        found = preview(spec, team, now=timezone.now(), limits=limits(), history=history, pilots=earlier, budget_s=budget_s, user=user)
    except SpecError as error:  # what it names went away after the check
        return {"preview_faults": _faults_of_error(error, sent)}
    return {"preview": preview_shown(found, lambda problems: faults_of(checked.as_written(problems), sent)), "budget_fault": budget_fault}


def _budget(sent: Sent) -> tuple[float | None, str]:
    """The seconds that somebody has, and what is wrong with how they said so."""
    try:
        return (span_of(sent.budget) if sent.budget.strip() else None), ""
    except ValueError as error:
        return None, str(error)


def _faults_of_error(error: SpecError, sent: Sent) -> list[Fault]:
    told = [SpecProblem.model_validate(p) for p in error.details.get("problems", [])]
    return faults_of(told or [SpecProblem(field=str(error.details.get("field", "")), message=error.message)], sent)


def _submit(request: HttpRequest, teams: Sequence[Team], team: Team, sent: Sent) -> HttpResponse:
    checked, faults = _checked(team, sent, request.user)
    spec = checked.spec
    if spec is None:
        return _page(request, teams, team, Reply(sent, faults, SUMMARY))
    # One form, sent twice, is one experiment; changed in between, it is another one.
    key = uuid.uuid5(sent.submission_key or uuid.uuid4(), f"{spec.spec_hash()} {sent.visibility}")
    again = Experiment.objects.filter(team=team, submission_key=key).exists()
    visibility = Visibility(sent.visibility) if sent.visibility in Visibility.values else Visibility.TEAM
    try:
        experiment = submit(spec, team, request.user, visibility, submission_key=key)
    except SpecError as error:  # what it names went away after the check
        return _page(request, teams, team, Reply(sent, _faults_of_error(error, sent), SUMMARY))
    if again:
        messages.info(request, "This form was submitted before; here is the experiment that it made.")
    target = reverse("experiment", args=[experiment.pk])
    return HttpResponse(headers={"HX-Redirect": target}) if request.htmx else redirect(target)


def _act(request: HttpRequest, team: Team, sent: Sent, action: str) -> Reply:
    if (taken := take(sent, action)) is not None:
        return taken
    if (done := form_rows.act(sent.typed, action)) is not None:
        faults = [Fault(name := done.focus.removeprefix("f-"), done.fault, words_of(name))] if done.fault else []
        return Reply(replace(sent, typed=done.typed), faults, done.focus)
    if action == "to-yaml":
        return form_yaml.to_yaml(sent)
    if action == "from-yaml":
        return form_yaml.from_yaml(team, sent, request.user)
    if action == "undo" and sent.before:
        return form_yaml.from_yaml(team, replace(sent, view="yaml", yaml=sent.before, before="", kept=""), request.user)
    if action == "upload":
        return form_yaml.from_file(team, sent, request.FILES.get("file"), request.user)
    if action == "preview":
        _, faults = _checked(team, sent, request.user)
        return Reply(sent, faults, SUMMARY if faults else "do-preview")
    return Reply(sent, focus="f-name" if sent.view == "form" else "f-yaml")
