"""A table as an answer that is streamed under a name that says what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from specweb.experiments.models import Viewer

from .files import FORMS
from .table import Table


def streamed(table: Table, form: str, rows: QuerySet[Any], user: Viewer, asked: Mapping[str, str]) -> StreamingHttpResponse:
    """Raises, before anything is sent, what the form's writer raises."""
    kind = FORMS[form]
    answer = StreamingHttpResponse(_not_empty(kind.write(table, table.lines(rows, user))), content_type=_media(kind.media))
    answer["Content-Disposition"] = content_disposition_header(True, file_name(table.name, asked, form)) or "attachment"
    answer["Cache-Control"] = "private, no-store"
    return answer


def file_name(table: str, asked: Mapping[str, str], form: str) -> str:
    """``specweb-comparisons-mode-draft.csv``: the table and what it was narrowed to."""
    words = [word for name, value in sorted(asked.items()) if value for word in (name, value[:8] if _is_id(value) else value)]
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(["specweb", table, *words])).strip("-.")
    return f"{plain[:120]}.{form}"


def _is_id(value: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f-]{32,64}", value))


def _media(media: str) -> str:
    return media if media.endswith("parquet") else f"{media}; charset=utf-8"


def _not_empty(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return (piece for piece in pieces if piece)
