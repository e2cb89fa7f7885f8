"""Experiment and numbers: read, call, answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe
from speccore.commandline import command_differences
from speccore.inventory import HostInventory as Inventory
from speccore.inventory import ModelInfo
from speccore.spec import ExperimentSpec

from specweb.accounts.models import Role
from specweb.accounts.roles import roles_held
from specweb.experiments.models import Experiment, Job
from specweb.results import memory_queries, page_queries
from specweb.results.models import Trial

from . import (
    break_even,
    charts,
    comparison_table,
    experiment_page,
    integrity_panel,
    job_progress,
    live_views,
    memory_chart,
    memory_section,
    numbers_page,
    order_chart,
    position_section,
    quality_section,
    settled_section,
    strips,
    take_home,
    task_section,
    time_chart,
)


def missing(request: HttpRequest) -> HttpResponse:
    """What isn't there and what one may not read look alike: a login form for strangers, else 404."""
    if not request.user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    raise Http404


def whole_number(text: str, default: int = 1) -> int:
    """A positive number of a query string; anything else is the default."""
    return int(text) if len(text) <= 12 and text.isascii() and text.isdigit() and int(text) > 0 else default


@require_safe
def experiment(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    found = page_queries.experiment_shown(request.user, experiment_id)
    if found is None:
        return missing(request)
    job = chosen_job(found, request.GET.get("job", ""))
    return render(request, "dashboard/experiment.html", _experiment_context(request, found, job))


def chosen_job(found: Experiment, wanted: str) -> Job:
    """The job that the address names, else one that has an answer, else the first that was not tried again."""
    jobs = list(found.jobs.all())
    retried = {j.retry_of_id for j in jobs}
    open_ = [j for j in jobs if j.id not in retried]
    return next((j for j in jobs if str(j.id) == wanted), None) or next((j for j in open_ if j.state == "processed"), open_[0])


def _experiment_context(request: HttpRequest, found: Experiment, job: Job) -> dict[str, Any]:
    spec = found.parsed_spec
    titles = page_queries.point_titles(found)
    inventory = page_queries.frozen_inventory(job)
    alias = page_queries.alias_of_target(job)
    hardware = job.inventory.hardware if job.inventory else ""
    base, jobs = reverse("experiment", args=[found.id]), list(found.jobs.all())
    is_member = page_queries.is_member(request.user, found)
    role = roles_held(request.user).get(found.team_id)
    allowed = role in (Role.SUBMITTER, Role.MAINTAINER)
    trials = page_queries.trials_shown(job)
    analysis = _answers(job, spec, titles, inventory, trials)
    env = page_queries.engine_environment(job) if is_member and analysis["analysis"] else {}
    answered = analysis["analysis"] is not None
    live = live_views.progress_context(job, spec, titles, timezone.now(), trials, for_team=is_member, answered=answered)
    context: dict[str, Any] = {
        "experiment": found,
        "tabs": experiment_page.job_tabs(jobs, job, base),
        "question": experiment_page.question_of(spec, alias or spec.target.model, hardware),
        "about": experiment_page.runtime_line(spec, job),
        "spec": spec,
        "controls": job_progress.controls_of(job, jobs, allowed=allowed, base=base),
        "facts": experiment_page.held_fixed(spec, job, alias, inventory),
        "commands": command_differences(spec, job.commands),
        "take": take_home.take_home(spec, job, analysis.get("strips", []), inventory, env, for_team=is_member),
        "evidence": page_queries.evidence_totals(job),
        "order_chart": order_chart.order_chart(job, spec.name),
        "is_member": is_member,
        "shares": role == Role.MAINTAINER or (allowed and found.created_by_id == request.user.pk),
        "reads_texts": page_queries.reads_texts(request.user, found),
    }
    if analysis["analysis"]:
        reachable = {t.name for t in context["evidence"] if context["reads_texts"] or not t.private}
        context["quality"] = quality_section.quality_section(
            spec, analysis["analysis"], titles, numbers_url(job), evidence_url(job, reachable)
        )
    context["fragment"], context["fragment_tag"] = live_views.fragment(live)
    return context | live | analysis


def _answers(
    job: Job, spec: ExperimentSpec, titles: Mapping[str, str], inventory: Inventory | None, starts: Sequence[Trial]
) -> dict[str, Any]:
    analysis = page_queries.newest_analysis(job)
    if analysis is None:
        return {"analysis": None}
    url = numbers_url(job)
    trials = memory_queries.memory_of_trials(starts)
    return {
        "analysis": analysis,
        "strips": strips.strips(spec, analysis, titles, url),
        "integrity": integrity_panel.integrity(analysis),
        "columns": comparison_table.columns(),
        "speedup_definition": comparison_table.definition("speedup"),
        "groups": comparison_table.groups(spec, analysis, titles, url),
        "forest": charts.forest_chart(spec, analysis, titles, url),
        "scatter": charts.scatter_chart(spec, analysis, titles, url),
        "break_even": break_even.break_even_rows(spec, analysis, titles, url),
        "tasks": task_section.task_groups(spec, analysis, titles, url),
        "task_heads": task_section.heads(),
        "positions": position_section.position_groups(spec, analysis, titles, url),
        "position_heads": position_section.heads(),
        "position_note": position_section.NOTE,
        "settled": settled_section.settled_section(spec, analysis),
        "time_chart": time_chart.time_chart(spec, analysis, titles, url),
        "memory": memory_section.memory_section(spec, analysis, trials, inventory, _models(job, spec, inventory)),
        "memory_chart": memory_chart.memory_chart(spec, trials, inventory),
    }


def _models(job: Job, spec: ExperimentSpec, inventory: Inventory | None) -> dict[str, ModelInfo]:
    """The target under the baseline's name, and each arm's helper, as the job's host had them."""
    known = {m.manifest_hash: m for m in inventory.models} if inventory else {}
    wanted = {spec.baseline.name: job.target.manifest_hash if job.target else "", **job.draft_hashes}
    return {arm: known[sha256] for arm, sha256 in wanted.items() if sha256 in known}


def numbers_url(job: Job) -> comparison_table.NumbersUrl:
    base = reverse("numbers", args=[job.id])
    return lambda arm, point, metric: f"{base}?{urlencode({'arm': arm, 'point': point})}#{metric}"


def evidence_url(job: Job, reachable: set[str]) -> quality_section.EvidenceUrl:
    """To the list of a file's evidence, where there is one that the reader may open."""
    base = reverse("evidence-list", args=[job.id])
    return lambda name: f"{base}?{urlencode({'name': name})}" if name in reachable else ""


@require_safe
def numbers(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """All that one comparison was computed from: its metrics with their definitions, its blocks, its probes."""
    job = page_queries.job_shown(request.user, job_id)
    if job is None:
        return missing(request)
    spec, computed = job.experiment.parsed_spec, whole_number(request.GET.get("computed", ""), 0)
    of = arm, point = request.GET.get("arm", ""), request.GET.get("point", "")
    analysis = page_queries.analysis_numbered(job, computed, of) if computed else page_queries.newest_analysis(job, of)
    comparison = next((c for c in analysis.comparisons if c.arm == arm and c.point == point), None) if analysis else None
    if comparison is None:
        raise Http404
    attempts = page_queries.measurements_of(job, [spec.baseline.name, arm], analysis, point)
    titles = page_queries.point_titles(job.experiment)
    context = numbers_page.context(spec, comparison, attempts, titles)
    return render(request, "dashboard/numbers.html", {"job": job, "experiment": job.experiment, "computed": computed, **context})
