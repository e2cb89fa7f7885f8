"""What other tools report, by program: list, import, one report with its runs and file, removal. Read, call, answer."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import django_filters as filters
from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.utils.http import content_disposition_header
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import NotAllowed, SpecError
from speccore.importers import TABLE, TOOLS, ImportFault, Mapping
from speccore.importers.csv_table import table_of
from speccore.importers.mapping import mapping_of
from speccore.importers.places import MAX_BYTES, Refused

from specweb.accounts.models import Team
from specweb.accounts.scopes import Scope
from specweb.experiments.models import Visibility
from specweb.experiments.text import storable
from specweb.reported import queries, services
from specweb.reported.models import MARK, Report, ReportedNumber, ReportedRun
from specweb.reported.services import About, Imported

from . import people_query as query
from . import people_shapes as shapes
from .bodies import Sent, sent
from .describing import BYTES, TEAM, Answer, Query, choice, describe
from .errors import BadRequest, NotThisType, TooLarge
from .paging import PAGE, Text, filtered, filters_of, page
from .people_auth import PeopleView, submitting_team
from .people_body import FILE_FIELD, FORM, FORM_ROOM, AsItCame, read_away, read_json
from .people_renderers import Bytes, OtherThanJson

TAG = "Reported"
CSV_TYPE = "text/csv"
TYPES = ("application/json", "application/jsonl", "application/x-ndjson", CSV_TYPE, "text/plain", "application/octet-stream")
REMEDY = "Leave out what the tool saved of each request, or split the file."
MAPPING_FIELD = "mapping"
MAX_MAPPING = 256 * 1024
SLUGS = [*TOOLS, TABLE]


class Yes(StrEnum):
    YES = "yes"


class ReportLine(Answer):
    """`mark` says what such numbers are, wherever they stand."""

    id: UUID
    mark: str
    title: str
    team: str
    visibility: str
    tool: str
    tool_name: str
    tool_version: str
    models: list[str]
    hardware: list[str]
    n_runs: int
    file_name: str
    file_sha256: str
    file_bytes: int
    source_url: str | None
    created_at: datetime
    url: str


class ReportsAnswer(Answer):
    reports: list[ReportLine]
    next: str | None


class ReportedNumberLine(Answer):
    """`value`, or a range from `low` to `high`; never both. `nearest_metric` is the id of the nearest number of SpecWeb's: it is not the same."""

    key: str
    name: str
    statistic: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    written: str
    note: str
    line: int | None
    definition: str
    caution: str
    nearest_metric: str | None


class ReportedRunLine(Answer):
    """Null and empty are not told."""

    index: int
    line: int | None
    title: str
    model: str
    hardware: str
    devices: list[str]
    engine: str
    arm: str
    concurrency: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    context_tokens: float | None
    n_requests: int | None
    n_failed: int | None
    at: str
    contributor: str
    notes: str
    settings: dict[str, str]
    numbers: list[ReportedNumberLine]


class ReportAnswer(ReportLine):
    notes: str
    warnings: list[str]
    mapping: dict[str, Any] | None
    runs: list[ReportedRunLine]
    next: str | None


class ReportMade(ReportLine):
    warnings: list[str]


class TemplateLine(Answer):
    id: int
    name: str
    team: str
    mapping: dict[str, Any]
    updated_at: datetime


class TemplatesAnswer(Answer):
    templates: list[TemplateLine]


class ReportVisibilityAsked(Sent):
    visibility: Visibility


class ReportVisibilityAnswer(Answer):
    """`changed`: it was another before."""

    report: UUID
    visibility: str
    changed: bool


class ReportFilter(filters.FilterSet):
    team = Text("team__slug", label="Of this team.")
    tool = filters.ChoiceFilter(choices=[(slug, slug) for slug in SLUGS], label="Of this tool; table: a CSV whose columns were mapped.")
    model = filters.CharFilter(
        method="by_words", label="Of a run whose model's name has these letters and digits, whatever stands between."
    )
    hardware = filters.CharFilter(method="by_words", label="The same of one of its devices; with model, both of one run.")

    class Meta:
        model = Report
        fields: list[str] = []

    def by_words(self, rows: Any, name: str, value: str) -> Any:
        return rows  # both are asked of one run: see filter_queryset

    def filter_queryset(self, queryset: Any) -> Any:
        rows = super().filter_queryset(queryset)
        found = queries.matching(self.form.cleaned_data.get("model") or "", self.form.cleaned_data.get("hardware") or "")
        return rows if found is None else rows.filter(pk__in=ReportedRun.objects.filter(found).values("report"))


class ReportInvalid(SpecError):
    """A file that is not taken: its faults in ``details.problems``, each with line, field, value, reason and remedy."""

    def __init__(self, faults: tuple[ImportFault, ...], n_faults: int) -> None:
        more = f", and {n_faults - 1} more in details.problems" if n_faults > 1 else ""
        told = [{"line": f.line, "field": f.field, "value": f.value, "message": f.reason, "remedy": f.remedy} for f in faults]
        super().__init__(f"{faults[0].words}{more}", remedy=faults[0].remedy, problems=told, n_problems=n_faults)


class ResultFile(AsItCame):
    """As it came, within what a result file may have."""

    max_bytes = MAX_BYTES
    remedy = REMEDY


class ReportsView(PeopleView):
    parser_classes = [MultiPartParser, ResultFile]

    @describe("What other tools report, the newest first", tag=TAG, answer=ReportsAnswer, query=[*filters_of(ReportFilter), *PAGE])
    def get(self, request: Request) -> Response:
        """Reported, not verified: nothing here enters a comparison or a verdict."""
        rows: QuerySet[Report] = Report.objects.visible_to(request.user).select_related("team")
        found, more = page(request, filtered(request, ReportFilter, rows))
        return Response({"reports": [_line(r) for r in found], "next": more})

    @describe(
        "Import a result file of another tool, or a table",
        tag=TAG,
        answer=ReportMade,
        status=201,
        also={200: "The same file is here already, read the same way."},
        body={
            TYPES[0]: {},
            CSV_TYPE: {"type": "string"},
            FORM: {
                "type": "object",
                "properties": {
                    FILE_FIELD: {"type": "string", "format": "binary"},
                    MAPPING_FIELD: {"type": "string", "description": "What a table's columns are, as JSON."},
                },
                "required": [FILE_FIELD],
            },
        },
        query=[
            TEAM,
            choice("tool", "By default the one that the file looks like.", SLUGS),
            Query("name", "The file's name, where it comes as the body."),
            Query("title", "What it is called on pages; by default the file's name."),
            Query("source_url", "The page that it is from."),
            Query("notes", "What else is to be known."),
            choice("visibility", "Who may read it; by default the team.", Visibility.values),
            choice("public_table", "Rows of a public table that others measured: source_url is required then.", Yes),
            Query("template", "A kept mapping of the team, for a table."),
            Query("keep_as", "Keeps the mapping that came with the file under this name."),
        ],
        refuses=[409, 422],
    )
    def post(self, request: Request) -> Response:
        """Taken whole or not at all: a fault names its line, field and value, and what to do."""
        team = submitting_team(request.user, query.text(request, "team"))
        tool = query.text(request, "tool")
        public = query.one_of(request, "public_table", Yes)
        visibility = query.text(request, "visibility") or Visibility.TEAM
        data, name, said = _file_of(request)
        mapping = _mapping_of(request, team, data, said)
        about = About(
            file_name=query.text(request, "name") or name,
            title=query.text(request, "title"),
            source_url=query.text(request, "source_url"),
            notes=query.text(request, "notes"),
            visibility=visibility,
            public_table=public is not None,
        )
        done = services.import_file(data, team, request.user, about, tool=tool, mapping=mapping)
        if done.report is None:
            raise ReportInvalid(done.faults, done.n_faults)
        _keep(request, team, mapping)
        return _made(done)


def _made(done: Imported) -> Response:
    assert done.report is not None
    told = _line(done.report) | {"warnings": done.report.warnings}
    return Response(told, status=201 if done.created else 200, headers={"Location": told["url"]})


def _keep(request: Request, team: Team, mapping: Mapping | None) -> None:
    name = query.text(request, "keep_as")
    if not name:
        return
    if mapping is None:
        raise BadRequest("keep_as keeps a mapping, and none came", "Send mapping with the file.", parameter="keep_as")
    if fault := services.keep_template(team, request.user, storable(name), mapping):
        raise BadRequest(f"keep_as {fault.reason}", fault.remedy, parameter="keep_as")


class ReportView(PeopleView):
    @describe("A report with its runs and numbers", tag=TAG, answer=ReportAnswer, query=PAGE)
    def get(self, request: Request, report_id: UUID) -> Response:
        """Its runs come in pages, in the order of the file."""
        row = _shown(request, report_id)
        runs, more = page(request, row.runs.prefetch_related("numbers"), ("index",))
        told = {"notes": row.notes, "warnings": row.warnings, "mapping": row.mapping}
        return Response(_line(row) | told | {"runs": [_run(r) for r in runs], "next": more})

    @describe("Remove a report with its file and numbers", tag=TAG, status=204)
    def delete(self, request: Request, report_id: UUID) -> Response:
        """For who imported it, and for maintainers of its team."""
        row = _shown(request, report_id)
        if not services.may_change(request.user, row):
            raise NotAllowed("this report is another's", remedy="Who imported it, or a maintainer of its team, can remove it.")
        if not services.delete_report(row):
            raise Http404
        return Response(status=204)


class ReportVisibilityView(PeopleView):
    @describe("Change who may read a report", tag=TAG, answer=ReportVisibilityAnswer, body=ReportVisibilityAsked, scope=Scope.MANAGE)
    def put(self, request: Request, report_id: UUID) -> Response:
        """For who imported it, and for maintainers of its team; `private` for who imported it alone."""
        row = _shown(request, report_id)
        to = sent(request, ReportVisibilityAsked).visibility
        if not services.may_change(request.user, row) or not services.may_set(request.user, row, to):
            raise NotAllowed("this report is another's", remedy="Who imported it, or a maintainer of its team, can change who reads it.")
        return Response({"report": str(row.pk), "visibility": to.value, "changed": services.change_visibility(row, to)})


class ReportFileView(OtherThanJson):
    renderer_classes = [Bytes]

    @describe("The file as it was imported", tag=TAG, media=BYTES)
    def get(self, request: Request, report_id: UUID) -> HttpResponse:
        row = _shown(request, report_id)
        answer = HttpResponse(services.raw_bytes(row), content_type=BYTES)
        answer["Content-Disposition"] = content_disposition_header(True, row.file_name) or "attachment"
        answer["X-Content-SHA256"] = row.file_sha256
        return answer


class MappingTemplatesView(PeopleView):
    @describe("Kept mappings of tables", tag=TAG, answer=TemplatesAnswer)
    def get(self, request: Request) -> Response:
        """Of one's teams. One is kept with an import: `keep_as`."""
        rows = queries.templates_listed(request.user)
        told = [{"id": t.pk, "name": t.name, "team": t.team.slug, "mapping": t.mapping, "updated_at": t.updated_at} for t in rows]
        return Response({"templates": told})


class MappingTemplateView(PeopleView):
    @describe("Remove a kept mapping", tag=TAG, status=204)
    def delete(self, request: Request, template_id: int) -> Response:
        """What was imported by it stays. For who kept it, and for maintainers of its team."""
        row = queries.template_shown(request.user, template_id)
        if row is None:
            raise Http404
        if not services.may_remove_template(request.user, row):
            raise NotAllowed("this mapping is another's", remedy="Who kept it, or a maintainer of its team, can remove it.")
        services.delete_template(row)
        return Response(status=204)


def _shown(request: Request, report_id: UUID) -> Report:
    row = queries.report_shown(request.user, report_id)
    if row is None:
        raise Http404
    return row


def _line(r: Report) -> dict[str, Any]:
    same = ("title", "visibility", "tool", "tool_name", "tool_version", "n_runs", "file_name", "file_sha256", "file_bytes", "created_at")
    words = {"models": r.model_words, "hardware": r.hardware_words, "source_url": r.source_url or None}
    where = {"id": str(r.pk), "mark": MARK, "team": r.team.slug, "url": shapes.address("reported-one", r.pk)}
    return where | words | {name: getattr(r, name) for name in same}


def _run(run: ReportedRun) -> dict[str, Any]:
    told = {name: getattr(run, name) for name in ReportedRunLine.model_fields if name != "numbers"}
    return told | {"numbers": [_number(n) for n in run.numbers.all()]}


def _number(n: ReportedNumber) -> dict[str, Any]:
    told = {name: getattr(n, name) for name in ReportedNumberLine.model_fields if name != "nearest_metric"}
    return told | {"nearest_metric": n.metric or None}


def _file_of(request: Request) -> tuple[bytes, str, str]:
    """The file, its name, and the mapping's text that a form has beside it."""
    length = request.headers.get("Content-Length", "")
    if not length.isdecimal() or int(length) == 0:
        raise BadRequest("the request has no body", "Send the result file, with Content-Length.")
    if int(length) > MAX_BYTES + MAX_MAPPING + FORM_ROOM:
        read_away(request)
        raise TooLarge(int(length), MAX_BYTES, REMEDY)
    kind = (request.content_type or "").partition(";")[0].strip().lower()
    if kind != FORM:
        if kind not in TYPES:
            raise NotThisType(
                f"a body of type {kind[:60]!r} is not read", remedy=f"Send {TYPES[0]}, {CSV_TYPE}, or a form.", taken=[*TYPES, FORM]
            )
        body: bytes = request.data
        return body, "", ""
    files = [f for name in request.FILES for f in request.FILES.getlist(name)]
    if len(files) != 1 or FILE_FIELD not in request.FILES:
        words = f"the form has {len(files)} files, one named {FILE_FIELD!r} is due"
        raise BadRequest(words, f"curl -F {FILE_FIELD}=@result.json does it.", field=FILE_FIELD)
    if files[0].size > MAX_BYTES:
        raise TooLarge(files[0].size, MAX_BYTES, REMEDY)
    content: bytes = files[0].read()
    return content, files[0].name or "", str(request.data.get(MAPPING_FIELD, ""))


def _mapping_of(request: Request, team: Team, data: bytes, text: str) -> Mapping | None:
    """The mapping that came with a table or that is kept under a name. Raises :class:`ReportInvalid`."""
    name = query.text(request, "template")
    if not text and not name:
        return None
    if text and name:
        raise BadRequest("there are a mapping and a template", "Send one of the two.", parameter="template")
    if name:
        row = queries.template_named(team, name)
        if row is None:
            raise BadRequest(f"template is {name[:60]!r}", "reported/templates lists those of your teams.", parameter="template")
        said: Any = row.mapping
    else:
        try:
            said = read_json(text.encode("utf-8", "replace"))
        except ValueError as error:
            raise ReportInvalid((ImportFault(f"is no JSON: {error}", "Send a JSON object.", MAPPING_FIELD),), 1) from None
    try:
        headers = table_of(data).headers
    except Refused as error:
        raise ReportInvalid((error.fault,), 1) from None
    found, faults = mapping_of(said, headers)
    if found is None:
        raise ReportInvalid(tuple(faults), len(faults))
    return found
