"""Answers of the people's API held against its OpenAPI schema: their status, their type, their content."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema_rs

from specweb.api.schema import schema

METHODS = ("get", "head", "post", "put", "patch", "delete")


def operations() -> dict[tuple[str, str], dict[str, Any]]:
    """(method, path) → the operation."""
    return {(m, path): it for path, methods in schema()["paths"].items() for m, it in methods.items() if m in METHODS}


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Fixed paths before those with a variable in the same place."""
    paths = sorted(schema()["paths"], key=lambda p: p.count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + r"\Z"), path) for path in paths]


def operation_at(method: str, path: str) -> tuple[str, dict[str, Any]] | None:
    """The operation that a path is an address of."""
    for pattern, template in _patterns():
        if pattern.match(path):
            it = schema()["paths"][template].get(method.lower())
            return (template, it) if it else None
    return None


@cache
def _validator(text: str) -> Any:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **json.loads(text), "components": schema()["components"]}
    return jsonschema_rs.validator_for(whole)


def faults(method: str, path: str, answer: Any) -> list[str]:
    """What an answer has that its description doesn't allow."""
    found = operation_at(method, path.partition("?")[0])
    if found is None or answer.status_code == 405:
        return []
    template, it = found
    where = f"{method.upper()} {template}"
    told = it["responses"].get(str(answer.status_code))
    if told is None:
        return [f"{where} answers {answer.status_code}, which is not described"]
    media = answer.headers.get("Content-Type", "").partition(";")[0]
    content = told.get("content", {})
    if not content or method.lower() == "head" or getattr(answer, "streaming", False):
        return []
    if media not in content:
        return [f"{where} {answer.status_code} is of type {media!r}, {sorted(content)} are described"]
    if media != "application/json" or not content[media].get("schema"):
        return []
    wrong = _validator(json.dumps(content[media]["schema"])).iter_errors(json.loads(answer.content))
    return [f"{where} {answer.status_code} at {'/'.join(map(str, e.instance_path))}: {e.message[:300]}" for e in wrong]
