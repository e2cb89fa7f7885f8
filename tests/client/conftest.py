"""What tests of client and command line share: people with tokens, a road to the real views, and the command in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.test import Client as DjangoClient
from specclient import cli, cli_base
from specclient.client import Client

from specweb.accounts.services import create_token
from tests.web import sample

#: Exit code, standard output, standard error.
Tell = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _own_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> None:
    """No test reads or writes what somebody has at home."""
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "evidence"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [n for n in os.environ if n.startswith("SPECWEB_") and n in ("SPECWEB_URL", "SPECWEB_TOKEN", "SPECWEB_PROFILE")]:
        monkeypatch.delenv(name)


@pytest.fixture
def people(db: Any) -> sample.People:
    return sample.people()


@pytest.fixture
def token(people: sample.People) -> str:
    return create_token(people.owner, "a program")[1]


class Carrier(httpx.BaseTransport):
    """Carries requests to the real views, inside the test's transaction. The answers that ``loses`` counts down get lost on the way."""

    def __init__(self, loses: int = 0) -> None:
        self.client = DjangoClient(raise_request_exception=False)
        self.loses = loses
        self.asked: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {request.url.raw_path.decode()}")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("content-length", "host")}
        kind = request.headers.get("Content-Type", "application/octet-stream")
        answer = self.client.generic(request.method, request.url.raw_path.decode(), request.read(), kind, headers=headers)
        if self.loses:
            self.loses -= 1
            raise httpx.ReadError("the line is cut", request=request)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=content, request=request)


@pytest.fixture
def carrier() -> Carrier:
    return Carrier()


@pytest.fixture
def client(token: str, carrier: Carrier) -> Client:
    return Client("http://127.0.0.1:8000", token, transport=carrier, sleep=lambda s: None)


@pytest.fixture
def tell(client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tell:
    """The command in this process, with the owner's token."""

    def from_config(cls: type[Client], profile: str = "", *, say: Callable[[str], None]) -> Client:
        client._http._say = say
        return client

    monkeypatch.setattr(cli_base.Client, "from_config", classmethod(from_config))

    def main(*line: object) -> tuple[int, str, str]:
        try:
            code = cli.main(list(map(str, line)))
        except SystemExit as end:  # argparse's
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return main
