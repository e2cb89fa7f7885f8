"""Workloads: the list, one version, an upload, and what its owner or a maintainer does to one. Read, call, answer."""

from __future__ import annotations

import json
from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from speccore.prompt_file import FEW, KEYS, MAX_BYTES, MAX_LINES, RESERVED_EVERY, RESERVED_MOST, prompt_lines_of
from speccore.spec import SpecProblem

from specweb.accounts.models import Role, Team
from specweb.accounts.roles import roles_held
from specweb.accounts.services import may_submit, team_of, teams_submitted
from specweb.experiments.models import Workload
from specweb.experiments.services import workloads as services
from specweb.experiments.text import storable
from specweb.results import workload_queries

from . import workloads_page
from .views import missing, whole_number

N_USERS = 20
#: What is typed into the page itself; a longer file is sent as one.
MOST_TYPED = 256 * 1024


@require_safe
@login_required
def workloads(request: HttpRequest) -> HttpResponse:
    """Built-in ones and those of a person's teams."""
    found = workloads_page.lists(workload_queries.workloads_listed(request.user))
    context = {"lists": found, "may_add": teams_submitted(request.user).exists()}
    return render(request, "dashboard/workloads.html", context)


@require_safe
def workload(request: HttpRequest, workload_id: int) -> HttpResponse:
    """One version: its items, what they take, who asks with it."""
    row = workload_queries.workload_shown(request.user, workload_id)
    if row is None:
        return missing(request)
    readable = workload_queries.may_read(request.user, row)
    content = row.parsed
    everything, page = workloads_page.items_of(content), whole_number(request.GET.get("page", ""))
    first = (page - 1) * workloads_page.ITEMS_PER_PAGE
    part = everything[first : first + workloads_page.ITEMS_PER_PAGE]
    counted = workload_queries.tokens_counted(request.user, row, [item.id for item, _ in everything])
    users, n_users = workload_queries.users_of(request.user, row, N_USERS)
    context = {
        "workload": row,
        "line": workloads_page.version(row),
        "description": content.description,
        "readable": readable,
        "summary": workloads_page.summary(content, counted),
        "few": FEW,
        "items": workloads_page.lines(part, counted) if readable else [],
        "page": page,
        "n_pages": -(-len(everything) // workloads_page.ITEMS_PER_PAGE),
        "versions": workload_queries.versions_of(request.user, row),
        "users": users,
        "n_more": n_users - len(users),
        "may_change": _may_change(request, row),
        "may_delete": _may_change(request, row) and not services.is_named(row),
        "may_ask": row.team_id is None or roles_held(request.user).get(row.team_id) in (Role.SUBMITTER, Role.MAINTAINER),
    }
    return render(request, "dashboard/workload.html", context)


@require_safe
def workload_file(request: HttpRequest, workload_id: int) -> HttpResponse:
    """The items as the file that makes them."""
    row = workload_queries.workload_shown(request.user, workload_id)
    if row is None or not workload_queries.may_read(request.user, row):
        return missing(request)
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in prompt_lines_of(row.parsed))
    response = HttpResponse(text.encode(), content_type="application/jsonl; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, f"{row.name}-{row.version}.jsonl") or "attachment"
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workload_new(request: HttpRequest) -> HttpResponse:
    teams = list(teams_submitted(request.user))
    if request.method == "POST" and (slug := request.POST.get("team")) is not None:
        team = team_of(request.user, storable(slug))
        if team is None:
            raise Http404
        if not may_submit(request.user, team):
            raise PermissionDenied
        return _uploaded(request, teams, team)
    if not teams:
        raise PermissionDenied
    return _form(request, teams, {"name": storable(request.GET.get("name", ""))[:80], "team": storable(request.GET.get("team", ""))})


def _uploaded(request: HttpRequest, teams: list[Team], team: Team) -> HttpResponse:
    typed = {key: storable(request.POST.get(key, "")) for key in ("name", "title", "description", "text")}
    file = request.FILES.get("file")
    data = file.read(MAX_BYTES + 1) if file is not None else typed["text"].encode()
    share = request.POST.get("share") == "on"
    sent = {**typed, "team": team.slug, "share": share, "file": file.name if file is not None else ""}
    done = services.upload_workload(
        data,
        team,
        request.user,
        name=typed["name"].strip(),
        title=typed["title"].strip(),
        description=typed["description"].strip(),
        share=share,
    )
    if done.workload is None:
        return _form(request, teams, sent, done.problems, done.n_problems)
    if done.created:
        messages.success(request, f"Stored as {done.workload}, {'shared with the team' if share else 'for you alone until it is shared'}.")
    else:
        messages.info(request, f"The same is here already, as {done.workload}.")
    for words in done.warnings:
        messages.warning(request, words)
    return redirect("workload", done.workload.pk)


def _form(
    request: HttpRequest, teams: list[Team], sent: dict[str, object], problems: list[SpecProblem] | None = None, n_problems: int = 0
) -> HttpResponse:
    context = {
        "teams": teams,
        "sent": sent,
        "problems": problems or [],
        "faults": {p.field: p.message for p in problems or [] if p.line is None},
        "n_problems": n_problems,
        "n_untold": n_problems - len(problems or []),
        "keys": KEYS,
        "max_bytes": MAX_BYTES,
        "max_lines": MAX_LINES,
        "most_typed": MOST_TYPED,
        "every": RESERVED_EVERY,
        "most": RESERVED_MOST,
    }
    return render(request, "dashboard/workload_new.html", context, status=400 if problems else 200)


@require_POST
def share(request: HttpRequest, workload_id: int) -> HttpResponse:
    return _change(request, workload_id, services.share_workload, "{} is shared with the team.", "{} was shared already.")


@require_POST
def archive(request: HttpRequest, workload_id: int) -> HttpResponse:
    words = "{} is archived: it is offered no more, and experiments that ask with it keep it."
    return _change(request, workload_id, lambda w: services.archive_workload(w, timezone.now()), words, "{} was archived already.")


@require_POST
def restore(request: HttpRequest, workload_id: int) -> HttpResponse:
    return _change(request, workload_id, services.restore_workload, "{} is offered again.", "{} was offered all along.")


@require_POST
def delete(request: HttpRequest, workload_id: int) -> HttpResponse:
    row = _changeable(request, workload_id)
    if isinstance(row, HttpResponse):
        return row
    if services.delete_workload(row):
        messages.success(request, f"{row} is deleted.")
        return redirect("workloads")
    messages.error(request, f"{row} stays: an experiment asks with it. Archive it instead.")
    return redirect("workload", row.pk)


def _change(request: HttpRequest, workload_id: int, change: Callable[[Workload], bool], done: str, undone: str) -> HttpResponse:
    row = _changeable(request, workload_id)
    if isinstance(row, HttpResponse):
        return row
    messages.success(request, (done if change(row) else undone).format(row))
    return redirect("workload", row.pk)


def _changeable(request: HttpRequest, workload_id: int) -> Workload | HttpResponse:
    """The workload, if the person owns it or maintains its team; else the answer: login, not found, or not allowed."""
    row = workload_queries.workload_shown(request.user, workload_id)
    if row is None:
        return missing(request)
    if not _may_change(request, row):
        raise PermissionDenied
    return row


def _may_change(request: HttpRequest, row: Workload) -> bool:
    if row.team is None:
        return False
    role = roles_held(request.user).get(row.team_id)
    own = row.owner_id is not None and row.owner_id == request.user.pk
    return role == Role.MAINTAINER or (own and role == Role.SUBMITTER)
