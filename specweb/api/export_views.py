"""Tables as files, for programs: the rows, filters and rights of the lists, streamed and without pages. Read, call, answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import StreamingHttpResponse
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from specweb.accounts.scopes import Scope
from specweb.exports import tables
from specweb.exports.answering import streamed
from specweb.exports.files import FORMS
from specweb.exports.table import Table

from . import people_query as query
from .describing import JSON, Query, choice, describe
from .errors import BadRequest
from .paging import filtered, filters_of
from .people_renderers import OtherThanJson


class _File(BaseRenderer):
    """Only names the type: the answer is a stream of its own."""

    charset = None


class CsvFile(_File):
    media_type, format = FORMS["csv"].media, "csv"


class JsonFile(_File):
    media_type, format = FORMS["json"].media, "json"


class JsonLinesFile(_File):
    media_type, format = FORMS["jsonl"].media, "jsonl"


class ParquetFile(_File):
    media_type, format = FORMS["parquet"].media, "parquet"


_BYTES = {"type": "string", "format": "binary"}
MEDIA: Mapping[str, Any] = {
    FORMS["csv"].media: {"type": "string"},
    JSON: {"type": "array", "items": {"type": "object"}},
    FORMS["jsonl"].media: {"type": "string"},
    FORMS["parquet"].media: _BYTES,
}
FORM = choice("format", "Kind of file; without it what Accept asks for, or CSV.", list(FORMS))


def asks(table: Table) -> list[Query]:
    return [FORM, *filters_of(table.filters)]


class TableFile(OtherThanJson):
    """Base of the tables."""

    renderer_classes = [CsvFile, JsonFile, JsonLinesFile, ParquetFile]

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        given = query.text(request, FORM.name)
        if given and given not in FORMS and not force:
            raise BadRequest(f"format is {given[:60]!r}", f"Known: {', '.join(FORMS)}.", parameter=FORM.name)
        return super().perform_content_negotiation(request, force)

    def answer(self, request: Request, table: Table) -> StreamingHttpResponse:
        rows = filtered(request, table.filters, table.base(request.user))
        asked = {name: value for name in table.filters.base_filters if (value := query.text(request, name))}
        return streamed(table, request.accepted_renderer.format, rows, request.user, asked)


class ComparisonsFileView(TableFile):
    @describe("Comparisons as a file", tag="Exports", media=MEDIA, query=asks(tables.COMPARISONS), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        """In the order of the Compare page, with its filters; `first_of_row` marks the run that stands for its row there."""
        return self.answer(request, tables.COMPARISONS)


class ExperimentsFileView(TableFile):
    @describe("Experiments as a file", tag="Exports", media=MEDIA, query=asks(tables.EXPERIMENTS), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        return self.answer(request, tables.EXPERIMENTS)


class AttemptsFileView(TableFile):
    @describe("Trials and attempts as a file", tag="Exports", media=MEDIA, query=asks(tables.ATTEMPTS), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        """Each with what its evidence says of the start as a whole."""
        return self.answer(request, tables.ATTEMPTS)


class ProbesFileView(TableFile):
    @describe("Timed requests as a file", tag="Exports", media=MEDIA, query=asks(tables.PROBES), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        """As the newest reading of the evidence has them; `source_line` is the line of `records.jsonl`."""
        return self.answer(request, tables.PROBES)


class NumbersFileView(TableFile):
    @describe("Numbers of comparisons as a file", tag="Exports", media=MEDIA, query=asks(tables.NUMBERS_TABLE), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        """Arm × point × metric: the value or why it is withheld, its unit and definition, the file and line that it was read from."""
        return self.answer(request, tables.NUMBERS_TABLE)


class EvidenceFileView(TableFile):
    @describe("The list of evidence as a file", tag="Exports", media=MEDIA, query=asks(tables.EVIDENCE), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        return self.answer(request, tables.EVIDENCE)


class HostsFileView(TableFile):
    @describe("Hosts as a file", tag="Exports", media=MEDIA, query=asks(tables.HOSTS), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        return self.answer(request, tables.HOSTS)


class WorkloadsFileView(TableFile):
    @describe("Workloads as a file", tag="Exports", media=MEDIA, query=asks(tables.WORKLOADS), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        """Without their prompts, which `workloads/ID/file` has."""
        return self.answer(request, tables.WORKLOADS)


class ReportedFileView(TableFile):
    @describe("What other tools report as a file", tag="Exports", media=MEDIA, query=asks(tables.REPORTED), refuses=[501])
    def get(self, request: Request) -> StreamingHttpResponse:
        """One row for each number, with its definition there."""
        return self.answer(request, tables.REPORTED)


class AuditFileView(TableFile):
    @describe("The audit log as a file", tag="Exports", media=MEDIA, query=asks(tables.AUDIT), refuses=[501], scope=Scope.MANAGE)
    def get(self, request: Request) -> StreamingHttpResponse:
        return self.answer(request, tables.AUDIT)
