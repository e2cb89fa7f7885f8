"""A typed client of the public API: one method for each thing to ask, lists as iterators over their pages."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
from speccore.plain import one_line
from speccore.spec import SpecProblem

from . import models
from .config import Account, load_account
from .errors import BadInput, NotTheApi
from .models import Answer
from .transport import Query, Transport, Upload, body_json

A = TypeVar("A", bound=Answer)
YAML = "application/yaml"
#: Pages of lists that are read to their end.
PAGE = 200


def user_agent() -> str:
    from . import __version__

    return f"specweb/{__version__}"


class Client:
    """``with Client(url, token) as client``; :meth:`from_config` takes both from the environment or from ``specweb login``.

    Raises what :mod:`.errors` has. Reading is repeated after lost answers, and so is what can't happen twice; what is asked too often
    waits as long as the service says.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``say`` is told, in a line, whenever something is tried again."""
        self._http = Transport(url, token, user_agent=user_agent(), transport=transport, sleep=sleep, say=say)
        self.url = self._http.url

    @classmethod
    def from_config(cls, profile: str = "", **options: Any) -> Self:
        """As the command line does it: SPECWEB_URL and SPECWEB_TOKEN, else the profile that ``specweb login`` has kept."""
        account: Account = load_account(profile)
        return cls(account.url, account.token, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, **query: str | int | bool | None) -> Any:
        """The JSON answer of any address under ``/api/v1/``, for what has no method here."""
        return self._http.json("GET", path, query)

    def pages(self, path: str, **query: str | int | bool | None) -> Iterator[dict[str, Any]]:
        """The answers of a list, page by page; the next one is asked for when it is wanted."""
        seen: set[str] = set()
        page = self._http.json("GET", path, {"limit": PAGE, **query})
        while True:
            if not isinstance(page, dict):
                raise NotTheApi("the service's answer can't be read: it is no object")
            yield page
            after = page.get("next")
            if not after:
                return
            if not isinstance(after, str) or after in seen:
                raise NotTheApi(f"the service names a next page that can't be: {one_line(str(after))[:100]}")
            seen.add(after)
            page = self._http.json("GET", after)

    def _all(self, kind: type[A], path: str, name: str, query: Query) -> Iterator[A]:
        for page in self.pages(path, **query):
            yield from models.read_list(kind, page, name)

    # You

    def me(self) -> models.Me:
        return models.Me.read(self.get("me"))

    def tokens(self) -> list[models.Token]:
        return models.read_list(models.Token, self.get("tokens/"), "tokens")

    # Experiments

    def experiments(self, **filters: str | int | bool | None) -> Iterator[models.Experiment]:
        """The newest first. Filters as the API names them: team, state, q, host, since, …"""
        return self._all(models.Experiment, "experiments/", "experiments", filters)

    def experiment(self, experiment: str) -> models.ExperimentWhole:
        """All of one: its spec, each job with its progress, each comparison."""
        return models.ExperimentWhole.read(self.get(f"experiments/{_id(experiment)}"))

    def experiment_spec(self, experiment: str) -> str:
        """As YAML, to be changed and sent again."""
        return self._http.text(f"experiments/{_id(experiment)}/spec.yaml")

    def check(self, text: bytes, *, team: str = "") -> list[SpecProblem]:
        """Every fault that the service finds, with its line; nothing is stored."""
        told = self._send("experiments/check", Upload(text, YAML), {"team": team}, repeatable=True)
        return [SpecProblem.model_validate(p) for p in told.get("problems", [])] if isinstance(told, dict) else []

    def preview(self, text: bytes, *, team: str = "", budget: str = "") -> dict[str, Any]:
        """What would run, where, and for how long; nothing is stored."""
        told = self._send("experiments/preview", Upload(text, YAML), {"team": team, "budget": budget}, repeatable=True)
        return dict(told)

    def submit(self, text: bytes, *, team: str = "", visibility: str = "", key: str = "") -> models.Experiment:
        """An experiment in YAML or JSON. It is stored once under its key, a UUID; without one, one is drawn for this call and its repeats."""
        headers = {"Idempotency-Key": _id(key) if key else str(uuid4())}
        query = {"team": team, "visibility": visibility}
        return models.Experiment.read(self._send("experiments/", Upload(text, YAML), query, headers=headers, repeatable=True))

    # Jobs

    def job(self, job: str) -> models.Job:
        return models.Job.read(self.get(f"jobs/{_id(job)}"))

    def job_spec(self, job: str) -> str:
        """What it asked, pinned to what it ran with, as YAML."""
        return self._http.text(f"jobs/{_id(job)}/spec.yaml")

    def report(self, job: str) -> str:
        """An answered job as Markdown."""
        return self._http.text(f"jobs/{_id(job)}/report.md")

    def cancel(self, job: str) -> models.Job:
        return self._steer(job, "cancel")

    def pause(self, job: str) -> models.Job:
        return self._steer(job, "pause")

    def resume(self, job: str) -> models.Job:
        return self._steer(job, "resume")

    def retry(self, job: str) -> models.Job:
        """The new job; the old one stays as history."""
        return self._steer(job, "retry")

    def _steer(self, job: str, what: str) -> models.Job:
        return models.Job.read(self._send(f"jobs/{_id(job)}/{what}", Upload(b"", ""), {}))

    def numbers(self, job: str, arm: str, point: str) -> dict[str, Any]:
        """Every number of a comparison with its definition and the line that it was read from."""
        return dict(self.get(f"jobs/{_id(job)}/numbers", arm=arm, point=point))

    # Across experiments

    def compare(self, **filters: str | int | bool | None) -> Iterator[models.Row]:
        """The rows of Compare: target, engine, work, concurrency, context, hardware, mode."""
        return self._all(models.Row, "compare/", "rows", filters)

    def comparisons(self, **filters: str | int | bool | None) -> Iterator[models.Row]:
        """Each comparison by itself, the newest first."""
        return self._all(models.Row, "comparisons/", "comparisons", filters)

    def hosts(self, *, team: str = "") -> list[models.Host]:
        return models.read_list(models.Host, self.get("hosts/", team=team), "hosts")

    def workloads(self, *, team: str = "") -> list[models.Workload]:
        return models.read_list(models.Workload, self.get("workloads/", team=team), "workloads")

    def push_workload(self, content: bytes, name: str, *, share: bool = False, **about: str) -> models.Workload:
        """Prompts as JSONL; the same file under the same name is there once. ``about``: team, title, description."""
        query: Query = {"name": name, "share": "yes" if share else "", **about}
        return models.Workload.read(self._send("workloads/", Upload(content, "application/jsonl"), query, repeatable=True))

    # Evidence

    def evidence(self, job: str, **filters: str | int | bool | None) -> Iterator[models.EvidenceFile]:
        return self._all(models.EvidenceFile, f"jobs/{_id(job)}/evidence", "evidence", filters)

    def download_evidence(self, file: models.EvidenceFile, to: BinaryIO) -> None:
        """Writes a file's bytes. Raises :class:`NotTheApi` where they are not those that their hash names."""
        digest = hashlib.sha256()
        with self._http.stream(f"attempts/{_id(file.attempt)}/evidence/{quote(file.file, safe='')}") as answer:
            for piece in answer.iter_bytes():
                digest.update(piece)
                to.write(piece)
        if digest.hexdigest() != file.sha256:
            raise NotTheApi(f"{file.file} of {file.trial} came damaged: its SHA-256 is not the stored one", remedy="Fetch it again.")

    # Other tools' results

    def reports(self, **filters: str | int | bool | None) -> Iterator[models.Report]:
        return self._all(models.Report, "reported/", "reports", filters)

    def push_report(self, content: bytes, name: str, *, mapping: str = "", **about: str) -> models.Report:
        """A result file of another tool, or a table with the JSON of a mapping. ``about``: team, tool, title, source_url, …"""
        upload = Upload(file=("file", name, content, "application/octet-stream"), fields={"mapping": mapping} if mapping else {})
        return models.Report.read(self._send("reported/", upload, about, repeatable=True))

    def download(self, path: str, to: BinaryIO, **query: str | int | bool | None) -> int:
        """Writes the body of any address under ``/api/v1/`` as it comes; returns its bytes."""
        n = 0
        with self._http.stream(path, query) as answer:
            for piece in answer.iter_bytes():
                to.write(piece)
                n += len(piece)
        return n

    # Archives

    def import_archive(self, path: Path, *, team: str = "", visibility: str = "") -> models.Taken:
        """An archive that another service made: whole or not at all, and the same one once."""
        query = {"team": team, "visibility": visibility}
        return models.Taken.read(self._send("archives/", Upload(path=path, kind="application/zip"), query, repeatable=True))

    def imported(self, experiment: str) -> models.Imported:
        """Where it came from, and which numbers computed here are not the archive's."""
        return models.Imported.read(self.get(f"experiments/{_id(experiment)}/import"))

    def _send(self, path: str, body: Upload, query: Query, *, headers: Mapping[str, str] | None = None, repeatable: bool = False) -> Any:
        return self._http.json("POST", path, query, body=body, headers=headers, repeatable=repeatable)

    def send_json(self, method: str, path: str, value: Any) -> Any:
        """Any address under ``/api/v1/`` that takes JSON, for what has no method here. A POST is not repeated."""
        return self._http.json(method, path, body=body_json(value))


def _id(text: str) -> str:
    """A UUID as it stands in addresses. Raises :class:`BadInput`."""
    try:
        return str(UUID(text))
    except ValueError:
        raise BadInput(f"{one_line(text)[:80]!r} is no id", remedy="An id looks like 0198f3c2-7d1e-7000-8000-3f2a91c4b5d6.") from None


def read_file(path: Path, most: int) -> bytes:
    """Raises :class:`BadInput` in words; more than ``most`` bytes are not read."""
    try:
        with path.open("rb") as f:
            content = f.read(most + 1)
    except OSError as error:
        raise BadInput(f"{path} can't be read: {error.strerror}") from None
    if len(content) > most:
        raise BadInput(f"{path} has more than the {most:,} bytes that are read")
    return content
