"""Bringing in another tool's file: choose it, see what would be read, map the columns of a table, import. Without JavaScript too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods
from speccore.importers import TABLE, TOOLS, ImportFault, Mapping, Reading, tool_of
from speccore.importers.cells import UNITS
from speccore.importers.csv_table import Table, table_of
from speccore.importers.mapping import CONSTANTS, STATISTICS, WORDS, mapping_of, proposed
from speccore.importers.places import MAX_BYTES, Refused
from speccore.metrics import METRICS

from specweb.accounts.models import Team
from specweb.accounts.services import may_submit, team_of, teams_submitted
from specweb.experiments.models import Visibility
from specweb.experiments.text import storable
from specweb.reported import queries, services
from specweb.reported.models import MARK, Draft
from specweb.reported.services import About

from . import reported_page
from .reported_views import tool_choices

N_PREVIEWED, MOST_TYPED = 3, 256 * 1024
TYPED = ("title", "source_url", "notes", "visibility", "tool")
PARTS = ("as", "name", "unit", "statistic", "metric", "definition")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def reported_new(request: HttpRequest) -> HttpResponse:
    """Choosing a file and saying where it is from."""
    teams = list(teams_submitted(request.user))
    if request.method == "POST" and (slug := request.POST.get("team")) is not None:
        team = team_of(request.user, storable(slug))
        if team is None:
            raise Http404
        if not may_submit(request.user, team):
            raise PermissionDenied
        return _chosen(request, teams, team)
    if not teams:
        raise PermissionDenied
    return _choose(request, teams, {"visibility": Visibility.TEAM, "team": storable(request.GET.get("team", ""))})


def _chosen(request: HttpRequest, teams: list[Team], team: Team) -> HttpResponse:
    typed = {key: storable(request.POST.get(key, "")).strip() for key in TYPED}
    file = request.FILES.get("file")
    text = request.POST.get("text", "")
    data = file.read(MAX_BYTES + 1) if file is not None else text.encode("utf-8", "replace")
    name = storable(file.name or "")[:200] if file is not None else "pasted"
    about = {**typed, "file_name": name, "public_table": request.POST.get("public_table") == "on"}
    sent = {**about, "team": team.slug, "text": storable(text), "file": name if file is not None else ""}
    faults = services.faults_of(_about(about).tidy())
    tool = typed["tool"] or tool_of(data)
    if tool == TABLE:
        try:
            table_of(data)
        except Refused as error:
            faults.append(error.fault)
        beside = services.read(data, TABLE, None).faults
        faults += [f for f in beside if f.field != "mapping" and f not in faults]
    else:
        faults += services.read(data, tool).faults
    if faults:
        return _choose(request, teams, sent, faults)
    draft = services.keep_draft(data, team, request.user, {**about, "tool": tool}, timezone.now())
    return redirect("reported-draft", draft.pk)


def _about(said: dict[str, Any]) -> About:
    return About(
        file_name=said.get("file_name", ""),
        title=said.get("title", ""),
        source_url=said.get("source_url", ""),
        notes=said.get("notes", ""),
        visibility=said.get("visibility") or Visibility.TEAM,
        public_table=bool(said.get("public_table")),
    )


def _choose(request: HttpRequest, teams: list[Team], sent: dict[str, Any], faults: list[ImportFault] | None = None) -> HttpResponse:
    context = {
        "teams": teams,
        "sent": sent,
        "faults": faults or [],
        "by_field": {f.field: f for f in faults or []},
        "tools": list(TOOLS.values()),
        "choices": tool_choices(),
        "visibilities": list(Visibility),
        "max_bytes": MAX_BYTES,
        "most_typed": MOST_TYPED,
        "mark": MARK,
        "templates": queries.templates_listed(request.user),
    }
    return render(request, "dashboard/reported_new.html", context, status=400 if faults else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def reported_draft(request: HttpRequest, draft_id: UUID) -> HttpResponse:
    """What would be read of a chosen file; of a table, what its columns are. Nothing is stored before "Import"."""
    found = services.draft_of(request.user, draft_id, timezone.now())
    if found is None or not may_submit(request.user, found[0].team):
        raise Http404
    draft, data = found
    do = request.POST.get("do", "") if request.method == "POST" else ""
    if do == "discard":
        draft.delete()
        messages.info(request, "Nothing was imported.")
        return redirect("reported")
    tool = draft.about["tool"]
    if tool != TABLE:
        return _imported(request, draft, data, None) if do == "import" else _previewed(request, draft, services.read(data, tool))
    table = table_of(data)
    said, faults = _mapping_said(request, draft, table, do)
    mapping, wrong = mapping_of(said, table.headers)
    faults += wrong
    if do == "keep" and mapping is not None and not faults:
        if fault := services.keep_template(draft.team, request.user, request.POST.get("template_name", ""), mapping):
            faults.append(fault)
        else:
            messages.success(request, f"Kept as the template “{' '.join(request.POST.get('template_name', '').split())}”.")
    if do == "import" and mapping is not None and not faults:
        return _imported(request, draft, data, mapping)
    reading = services.read(data, TABLE, mapping) if mapping is not None and do != "apply" else None
    return _mapped(request, draft, table, said, reading, faults)


def _mapping_said(request: HttpRequest, draft: Draft, table: Table, do: str) -> tuple[dict[str, Any], list[ImportFault]]:
    """The mapping that the form says, that a template says, or the one that is proposed."""
    if do == "apply":
        name = request.POST.get("template", "")
        row = queries.template_named(draft.team, name)
        if row is None:
            fault = ImportFault("is no template of the team", "Choose one of the list.", "template", storable(name)[:60])
            return proposed(table.headers, table.samples).as_json(), [fault]
        told = dict(row.mapping)
        told["columns"] = {h: told["columns"].get(h, {"as": "skip"}) for h in table.headers}
        return told, []
    if not do:
        return proposed(table.headers, table.samples).as_json(), []
    columns: dict[str, Any] = {}
    for i, header in enumerate(table.headers):
        given = {part: storable(request.POST.get(f"{part}-{i}", "")).strip() for part in PARTS}
        role = given["as"] or "skip"
        kept = {k: v for k, v in given.items() if v and k != "as"} | {"unit": given["unit"]}
        columns[header] = {"as": role} | (kept if role == "number" else {})
    constants = {c: text for c in CONSTANTS if (text := storable(request.POST.get(f"all-{c}", "")).strip())}
    return {"columns": columns, "decimal": request.POST.get("decimal", "."), "constants": constants}, []


def _imported(request: HttpRequest, draft: Draft, data: bytes, mapping: Mapping | None) -> HttpResponse:
    done = services.import_file(data, draft.team, request.user, _about(draft.about), tool=draft.about["tool"], mapping=mapping)
    if done.report is None:
        reading = replace(done.reading or Reading(""), faults=done.faults, n_faults=done.n_faults)
        if mapping is None:
            return _previewed(request, draft, reading)
        return _mapped(request, draft, table_of(data), mapping.as_json(), reading, [])
    draft.delete()
    if done.created:
        messages.success(request, f"Imported {done.report.n_runs} run{'s' if done.report.n_runs != 1 else ''}: {MARK}.")
    else:
        messages.info(request, "The same file is here already, read the same way.")
    return redirect("reported-one", done.report.pk)


def _shown(reading: Reading | None, *, of_a_table: bool) -> dict[str, Any]:
    runs = [reported_page.run_previewed(r, i) for i, r in enumerate(reading.runs[: 10 * N_PREVIEWED])] if reading else []
    heads = reported_page.heads(runs, of_a_table=of_a_table)
    runs = runs if heads else runs[:N_PREVIEWED]
    common = reported_page.in_common(runs)
    runs = reported_page.apart(runs, common)
    return {
        "runs": runs,
        "heads": heads,
        "common": common,
        "rows": [(run, run.cells(heads)) for run in runs] if heads else [],
        "n_runs": len(reading.runs) if reading else 0,
        "n_more": len(reading.runs) - len(runs) if reading else 0,
        "warnings": reading.warnings if reading else (),
        "n_numbers": sum(len(r.numbers) for r in reading.runs) if reading else 0,
        "mark": MARK,
    }


def _previewed(request: HttpRequest, draft: Draft, reading: Reading) -> HttpResponse:
    context = _shown(reading, of_a_table=False) | {
        "draft": draft,
        "faults": reading.faults,
        "n_faults": reading.n_faults,
        "tool": TOOLS.get(draft.about["tool"]),
    }
    return render(request, "dashboard/reported_preview.html", context, status=400 if reading.faults else 200)


def _mapped(
    request: HttpRequest, draft: Draft, table: Table, said: dict[str, Any], reading: Reading | None, faults: list[ImportFault]
) -> HttpResponse:
    told = [*faults, *(reading.faults if reading else ())]
    columns = []
    for i, header in enumerate(table.headers):
        cells = [row[i] for row in table.samples if i < len(row) and row[i]]
        columns.append({"i": i, "header": header, "samples": cells[:3], "said": said["columns"].get(header, {"as": "skip"})})
    context = _shown(reading, of_a_table=True) | {
        "draft": draft,
        "columns": columns,
        "n_rows": len(table.rows),
        "faults": told,
        "n_faults": len(faults) + (reading.n_faults if reading else 0),
        "roles": WORDS,
        "units": [u for u in UNITS if u],
        "statistics": STATISTICS,
        "metrics": [(m.id, m.name) for m in METRICS.values()],
        "constants": [(c, {"tool": "tool", "version": "its version"}.get(c) or WORDS[c], said["constants"].get(c, "")) for c in CONSTANTS],
        "decimal": said["decimal"],
        "templates": queries.templates_of(draft.team),
        "previewed": reading is not None and not told,
    }
    return render(request, "dashboard/reported_table.html", context, status=400 if told and request.method == "POST" else 200)
