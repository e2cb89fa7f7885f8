"""A program of a person's: JSON over HTTP with a token."""

from __future__ import annotations

import json
from typing import Any

from django.test import Client

from specweb.accounts.models import User
from specweb.accounts.services import create_token
from tests.web.api_answers import faults

BASE = "/api/v1/"


class Program:
    """Each call returns Django's response. Without a user it sends no token."""

    def __init__(self, user: User | None = None, token: str = "") -> None:
        self.token = token or (create_token(user, "a program")[1] if user else "")
        self.client = Client(raise_request_exception=False, enforce_csrf_checks=True)

    def headers(self, given: dict[str, str] | None) -> dict[str, str]:
        return ({"Authorization": f"Bearer {self.token}"} if self.token else {}) | (given or {})

    def get(self, path: str, headers: dict[str, str] | None = None) -> Any:
        return as_described("get", path, self.client.get(at(path), headers=self.headers(headers)))

    def post(self, path: str, body: Any = None, kind: str = "application/json", headers: dict[str, str] | None = None) -> Any:
        """``body``: a value for JSON, else text or bytes as they are."""
        text = body if isinstance(body, str | bytes) else "" if body is None else json.dumps(body)
        return as_described("post", path, self.client.post(at(path), text, content_type=kind, headers=self.headers(headers)))

    def call(self, method: str, path: str, **options: Any) -> Any:
        return as_described(method, path, self.client.generic(method, at(path), headers=self.headers(None), **options))


def as_described(method: str, path: str, answer: Any) -> Any:
    """The answer, which must be what the schema says of the address."""
    assert faults(method, at(path), answer) == []
    return answer


def at(path: str) -> str:
    """A path under the API's root, or a whole address that an answer named."""
    return path.removeprefix("http://127.0.0.1:8000") if path.startswith(("/", "http")) else BASE + path


def error(answer: Any, status: int) -> dict[str, Any]:
    """The error of a refused request, in the one shape."""
    assert answer.status_code == status, (answer.status_code, answer.content[:500])
    assert answer["Content-Type"].startswith("application/json"), answer["Content-Type"]
    body: dict[str, Any] = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "blame", "retry", "remedy", "details"}
    assert body["error"]["message"]
    return dict(body["error"])
