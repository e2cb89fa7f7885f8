"""How an address says what it takes and answers: one decorator on a view's method.

From what it says come the OpenAPI schema and the page of it, the check of the token's scope, and the refusal of query
parameters that the address doesn't know::

    class ThingsView(PeopleView):
        @describe("Things that hosts have, newest first.", tag="Things", answer=ThingsAnswer, query=[TEAM, *PAGE])
        def get(self, request: Request) -> Response:
            ...

``answer`` is a pydantic model in :mod:`specweb.api.answers` or beside its views, a child of :class:`Answer`; a test asks
every described operation and holds each answer against its model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import BaseModel, ConfigDict
from speccore.errors import ErrorBody

from specweb.accounts.scopes import Scope

Method = TypeVar("Method", bound=Callable[..., Any])
JSON, YAML, BYTES = "application/json", "application/yaml", "application/octet-stream"


class Answer(BaseModel):
    """Base of what answers are: no field beside those that are named."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class ErrorAnswer(Answer):
    """Every refusal: a program reads ``code``, a person ``message`` and ``remedy``."""

    error: ErrorBody


@dataclass(frozen=True)
class Query:
    """A parameter of the address. ``schema`` is its JSON schema."""

    name: str
    about: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})
    required: bool = False


def choice(name: str, about: str, choices: type[StrEnum] | Sequence[str]) -> Query:
    return Query(name, about, {"type": "string", "enum": [str(getattr(c, "value", c)) for c in choices]})


def whole(name: str, about: str, least: int, most: int, default: int | None = None) -> Query:
    told = {"type": "integer", "minimum": least, "maximum": most}
    return Query(name, about, told | ({"default": default} if default is not None else {}))


TEAM = Query("team", "The team, by its short name.")

#: What a refusal with this status says.
REFUSED = {
    400: "A parameter, header or body that can't be what was meant.",
    401: "No token, an unknown, expired or revoked one, or one of a closed account.",
    403: "The token's scope, or its owner's role in the team, is too small.",
    404: "There is no such thing, or it belongs to a team that one is not in.",
    406: "The answer is not to be had in the form that Accept asks for.",
    409: "It is not in a state for this, or another request came first.",
    411: "The request has no Content-Length.",
    413: "The body is too large.",
    415: "The body is of a type that is not read.",
    422: "What was sent has faults: `details` names them.",
    426: "The message is of a protocol that is not spoken here.",
    429: "Too many requests: `Retry-After` says when to come again.",
    500: "The service failed on this request.",
    501: "The service was installed without what this needs: `remedy` names it.",
    507: "The service has no room left.",
}
#: What an answer without a model is.
_OF_MEDIA = {JSON: None, YAML: {"type": "object"}, BYTES: {"type": "string", "format": "binary"}}
_ALWAYS = (400, 401, 403, 406, 429, 500)
_BY_METHOD = {"get": Scope.READ, "head": Scope.READ}


def describe(
    summary: str,
    *,
    tag: str,
    answer: type[BaseModel] | None = None,
    media: str | Mapping[str, Any] = JSON,
    status: int = 200,
    also: Mapping[int, str] | None = None,
    body: Any = None,
    query: Sequence[Query] = (),
    headers: Sequence[Query] = (),
    refuses: Sequence[int] = (),
    scope: Scope | None = None,
    token_free: bool = False,
) -> Callable[[Method], Method]:
    """``also``: further good statuses with the same answer. ``media``: one type, or media type → JSON schema of several.

    ``body``: a model, or media type → model or JSON schema.

    ``scope`` is by default READ for GET and SUBMIT for all else. ``token_free``: the address is open to everybody.
    """

    def decorate(method: Method) -> Method:
        needed = scope or _BY_METHOD.get(method.__name__, Scope.SUBMIT)
        forms = {media: _OF_MEDIA.get(media, {"type": "string"})} if isinstance(media, str) else dict(media)
        told: dict[str, Any] = {m: answer if answer is not None else it for m, it in forms.items()}
        statuses = {status: summary, **(also or {})}
        good = {(code, m): OpenApiResponse(it, why) for code, why in statuses.items() for m, it in told.items()}
        refusals = {*_ALWAYS, *refuses} - ({401, 403} if token_free else set())
        if len(inspect.signature(method).parameters) > 2:
            refusals.add(404)
        if body is not None:
            refusals |= {413, 415}
        bad = {(code, JSON): OpenApiResponse(ErrorAnswer, REFUSED[code]) for code in sorted(refusals)}
        text = inspect.getdoc(method) or ""
        note = "Open to everybody." if token_free else f"Needs a token with the scope `{needed}`."
        extend_schema(
            operation_id=operation_id(method),
            summary=summary,
            description=f"{text}\n\n{note}".strip(),
            tags=[tag],
            parameters=[*(_parameter(q, OpenApiParameter.QUERY) for q in query), *_headers(headers), *_answer_headers(good, bad)],
            request=body,
            responses={**good, **bad},
            extensions={} if token_free else {"x-scope": needed.value},
            auth=[] if token_free else None,
        )(method)
        method.scope, method.parameters = needed, tuple(q.name for q in query)  # type: ignore[attr-defined]
        return method

    return decorate


def operation_id(method: Callable[..., Any]) -> str:
    """``ExperimentsView.get`` → ``experiments_get``."""
    view, name = method.__qualname__.split(".")[-2:]
    return f"{re.sub(r'(?<!^)(?=[A-Z])', '_', view.removesuffix('View')).lower()}_{name}"


def _parameter(q: Query, where: str) -> OpenApiParameter:
    return OpenApiParameter(q.name, dict(q.schema), where, required=q.required, description=q.about)


def _headers(headers: Sequence[Query]) -> list[OpenApiParameter]:
    return [_parameter(q, OpenApiParameter.HEADER) for q in headers]


def _answer_headers(good: Mapping[tuple[int, str], Any], bad: Mapping[tuple[int, str], Any]) -> list[OpenApiParameter]:
    """When to come again, and how many requests are left, where limits are set."""
    number = {"type": "integer", "minimum": 0}
    told = [OpenApiParameter("Retry-After", number, OpenApiParameter.HEADER, description="Seconds.", response=[429])]
    everywhere = sorted({code for code, _ in (*good, *bad)})
    for name, about in (
        ("RateLimit-Limit", "Requests in one window."),
        ("RateLimit-Remaining", "Of them left."),
        ("RateLimit-Reset", "Seconds until the window ends."),
    ):
        told.append(OpenApiParameter(name, number, OpenApiParameter.HEADER, description=about, response=everywhere))
    return told
