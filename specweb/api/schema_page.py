"""The OpenAPI schema as a page shows it: addresses by tag, with their parameters, bodies and answers in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

METHODS = ("get", "head", "post", "put", "patch", "delete")
#: Deeper than this a type is named by its model alone.
MOST_DEPTH = 4


@dataclass(frozen=True)
class Parameter:
    name: str
    where: str
    kind: str
    required: bool
    about: str


@dataclass(frozen=True)
class Told:
    """A body or an answer: its media type, and its type in words; ``model`` is the anchor of its description, where it has one."""

    status: str
    media: str
    kind: str
    model: str
    about: str


@dataclass(frozen=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    about: list[str]
    scope: str
    deprecated: bool
    parameters: list[Parameter]
    bodies: list[Told]
    answers: list[Told]
    refusals: list[Told]


@dataclass(frozen=True)
class Model:
    name: str
    about: str
    fields: list[Parameter]


def marked(text: str) -> SafeString:
    """A sentence with what stands in backticks as code."""
    return mark_safe(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text)))  # noqa: S308  # escaped before anything is added


def context(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = sorted(_operations(schema), key=lambda pair: pair[0])
    groups = [(tag, [o for _, o in pairs]) for tag, pairs in groupby(found, key=lambda pair: pair[0])]
    models = schema.get("components", {}).get("schemas", {})
    return {"groups": groups, "models": [_model(name, m) for name, m in sorted(models.items())], "version": schema["info"]["version"]}


def _operations(schema: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    for path, methods in schema["paths"].items():
        for method in METHODS:
            if it := methods.get(method):
                yield it["tags"][0], _operation(method, path, it)


def _operation(method: str, path: str, it: Mapping[str, Any]) -> Operation:
    answers = [t for status, answer in it["responses"].items() for t in _told(status, answer)]
    return Operation(
        id=it["operationId"],
        method=method.upper(),
        path=path,
        summary=it.get("summary", ""),
        about=[marked(p) for p in it.get("description", "").split("\n\n") if p],
        scope=it.get("x-scope", ""),
        deprecated=it.get("deprecated", False),
        parameters=[
            Parameter(p["name"], p["in"], kind_of(p["schema"]), p.get("required", False), marked(p.get("description", "")))
            for p in it.get("parameters", [])
        ],
        bodies=_told("", it.get("requestBody", {})),
        answers=[t for t in answers if t.status < "400"],
        refusals=[t for t in answers if t.status >= "400"],
    )


def _told(status: str, it: Mapping[str, Any]) -> list[Told]:
    about = marked(it.get("description", ""))
    found = [
        Told(status, media, kind_of(c.get("schema", {})), model_of(c.get("schema", {})), about)
        for media, c in it.get("content", {}).items()
    ]
    return found or ([Told(status, "", "nothing", "", about)] if status else [])


def model_of(schema: Mapping[str, Any]) -> str:
    """The model that it names, or a list of which it is; empty for none."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return model_of(schema["items"]) if isinstance(schema.get("items"), dict) else ""


def kind_of(schema: Mapping[str, Any], depth: int = 0) -> str:
    """A type in words: ``text, one of keep, shorten``, ``list of JobLine``."""
    if not schema or depth > MOST_DEPTH:
        return "anything"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(kind_of(s, depth + 1) for s in schema[key]))
    if "allOf" in schema:
        return kind_of(schema["allOf"][0], depth + 1)
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}), depth + 1)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind_of(schema['additionalProperties'], depth + 1)}"
    if kind == "string":
        return {"uuid": "UUID", "date-time": "time", "binary": "bytes"}.get(schema.get("format", ""), "text")
    words = {"integer": "whole number", "number": "number", "boolean": "true or false", "null": "null", "object": "object"}
    return words.get(kind, "anything") + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    return f", {low:,} to {high:,}" if low is not None and high is not None else ""


def _model(name: str, it: Mapping[str, Any]) -> Model:
    required = it.get("required", [])
    fields = [Parameter(n, "", kind_of(p), n in required, marked(p.get("description", ""))) for n, p in it.get("properties", {}).items()]
    return Model(name, marked(it.get("description", "")), fields)
