"""Who may read an experiment, and its published versions. Read, call, answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_POST, require_safe
from speccore.errors import SpecWebError

from specweb.experiments.models import Experiment, Visibility
from specweb.experiments.services.sharing import change_visibility, may_share
from specweb.results import page_queries, publication_queries
from specweb.results.models import Publication
from specweb.results.services import publishing
from specweb.results.store import open_blob

from .evidence_views import pieces
from .publication_page import page_of
from .views import missing

View = Callable[..., HttpResponse]


def _shared(request: HttpRequest, experiment_id: UUID) -> Experiment:
    """The experiment, if the person may share it; :class:`Http404` if they may not even read it."""
    found = page_queries.experiment_shown(request.user, experiment_id)
    if found is None:
        raise Http404
    if not may_share(request.user, found):
        raise PermissionDenied
    return found


@require_safe
def share(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    """Who may read it, and what was published of it."""
    if not request.user.is_authenticated:
        return missing(request)
    return _page(request, _shared(request, experiment_id))


def _page(request: HttpRequest, found: Experiment, status: int = 200, **fields: Any) -> HttpResponse:
    versions = publication_queries.versions_of(found.pk)
    states = publication_queries.states(versions)
    context = {
        "experiment": found,
        "choices": [v for v in Visibility if v != Visibility.PRIVATE or found.created_by_id == request.user.pk],
        "versions": [(v, states[v.version]) for v in reversed(versions)],
        "is_correction": bool(versions),
        "finished": any(j.processed_at for j in found.jobs.all()),
        **fields,
    }
    return render(request, "dashboard/share.html", context, status=status)


def _posted(view: View) -> View:
    """A form of the share page. After the login that a visitor is sent to, that page is the way back. A refusal is told on it."""

    @wraps(view)
    def checked(request: HttpRequest, experiment_id: UUID, **more: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("experiment-share", args=[experiment_id]))
        found = _shared(request, experiment_id)
        try:
            return view(request, found, **more)
        except SpecWebError as error:
            return _page(request, found, 409, error=f"{error.message}. {error.remedy_text}", reason=request.POST.get("reason", ""))

    return require_POST(checked)


@_posted
def visibility(request: HttpRequest, found: Experiment) -> HttpResponse:
    wanted = request.POST.get("visibility", "")
    if wanted not in Visibility.values:
        words = f"visibility: {wanted[:40]!r} is none; there are {', '.join(Visibility.values)}."
        return _page(request, found, 400, error=words)
    if change_visibility(found, Visibility(wanted), request.user):
        messages.success(
            request, f"The experiment is {wanted} now." if wanted != "team" else f"The experiment is for {found.team.name} now."
        )
    return redirect("experiment-share", found.pk)


@_posted
def publish(request: HttpRequest, found: Experiment) -> HttpResponse:
    shown = {name: request.POST.get(name) == "on" for name in ("hosts", "people")}
    made = publishing.publish(found, request.user, now=timezone.now(), reason=request.POST.get("reason", ""), **shown)
    messages.success(request, f"Version {made.version} is published: everybody who has its link can read it.")
    return redirect("publication", found.pk, made.version)


@_posted
def withdraw(request: HttpRequest, found: Experiment, version: int) -> HttpResponse:
    row = publication_queries.publication(found.pk, version)
    if row is None:
        raise Http404
    if publishing.withdraw(row, request.user, now=timezone.now(), reason=request.POST.get("reason", "")):
        messages.success(request, f"Version {version} is withdrawn: its page shows the reason in its place.")
    else:
        messages.info(request, f"Version {version} was withdrawn before.")
    return redirect("experiment-share", found.pk)


def _published(experiment_id: UUID, version: int) -> tuple[Publication, publication_queries.Version, list[Publication]]:
    versions = publication_queries.versions_of(experiment_id)
    if version not in [v.version for v in versions]:
        raise Http404
    row = publication_queries.publication(experiment_id, version)
    if row is None:
        raise Http404
    return row, publication_queries.states(versions)[version], versions


@require_safe
def newest(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    """To the newest version that stands, or where none does to the last one, which says why."""
    versions = publication_queries.versions_of(experiment_id)
    if not versions:
        raise Http404
    standing = [v for v in versions if not v.withdrawn] or versions
    return redirect("publication", experiment_id, standing[-1].version)


@require_safe
def publication(request: HttpRequest, experiment_id: UUID, version: int) -> HttpResponse:
    """The numbers as they were published; a version that was withdrawn is gone, with the reason in its place."""
    row, state, versions = _published(experiment_id, version)
    others = [v for v in versions if v.version != version]
    context: dict[str, Any] = {"publication": row, "state": state, "others": others, "experiment_id": experiment_id}
    if state.state == "withdrawn":
        return render(request, "dashboard/publication_gone.html", context, status=410)
    context |= page_of(row, request.GET.get("job", ""))
    return render(request, "dashboard/publication.html", context)


@require_safe
def publication_json(request: HttpRequest, experiment_id: UUID, version: int) -> HttpResponse:
    """The content in the very bytes that its hash is of."""
    row, state, _ = _published(experiment_id, version)
    if state.state == "withdrawn":
        return render(
            request, "dashboard/publication_gone.html", {"publication": row, "state": state, "experiment_id": experiment_id}, status=410
        )
    answer = HttpResponse(publishing.canonical(row.content), content_type="application/json")
    answer["Content-Disposition"] = content_disposition_header(True, f"{experiment_id}-v{version}.json") or "attachment"
    answer["X-Content-SHA256"] = row.content_hash
    return answer


@require_safe
def published_file(request: HttpRequest, experiment_id: UUID, version: int, attempt_id: UUID, name: str) -> StreamingHttpResponse:
    """The timings of an attempt, under the hash that the version names. No other file is published."""
    row, state, _ = _published(experiment_id, version)
    file = None if state.state == "withdrawn" else publication_queries.published_file(row, attempt_id, name)
    if file is None:
        raise Http404
    try:
        stream = open_blob(file.blob)
    except OSError:
        raise Http404 from None
    answer = StreamingHttpResponse(pieces(stream), content_type="application/octet-stream")
    answer["Content-Disposition"] = content_disposition_header(True, f"{attempt_id}-{file.name}") or "attachment"
    answer["Content-Length"] = str(file.blob.bytes)
    answer["X-Content-SHA256"] = file.blob.sha256
    return answer
