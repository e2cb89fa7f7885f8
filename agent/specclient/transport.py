"""HTTP to the service with a token: repeats where that is harmless, waits when told to, and takes nothing for an answer that is none."""

from __future__ import annotations

import email.utils
import json as jsons
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import ValidationError
from speccore.errors import ErrorBody
from speccore.plain import one_line, read_json

from .errors import ApiError, BadInput, NotTheApi, Unreachable, api_error

PREFIX = "/api/v1/"
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
#: For a large file, which the service looks through before it answers.
LONG = httpx.Timeout(900.0, connect=10.0)
TRIES = 4
FIRST_WAIT_S = 0.5
#: Together, when the service says when to come again.
PATIENCE_S = 180.0
#: A JSON answer that is larger is none of ours.
MAX_ANSWER = 64 << 20
#: What a proxy says while the service behind it is away or starts anew.
AWAY = (502, 503, 504)

Query = Mapping[str, str | int | bool | None]


@dataclass(frozen=True)
class Upload:
    """A body that can be sent again. ``file``: field, name, bytes, type, beside ``fields`` of a form; ``path``: one that is read while it goes."""

    content: bytes | None = None
    kind: str = ""
    path: Path | None = None
    file: tuple[str, str, bytes, str] | None = None
    fields: Mapping[str, str] | None = None

    def arguments(self) -> dict[str, Any]:
        if self.path is not None:
            return {"content": _pieces(self.path)}
        if self.file is None:
            return {"content": self.content or b""}
        field, name, content, kind = self.file
        return {"files": {field: (name, content, kind)}, "data": dict(self.fields or {})}


class Transport:
    """``sleep`` and ``transport`` can be replaced by tests. Raises :class:`BadInput` for what is no address or no token."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        user_agent: str,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.url = checked_url(url)
        checked_token(token)
        headers = {"User-Agent": user_agent, "Authorization": f"Bearer {token}"}
        self._http = httpx.Client(headers=headers, timeout=TIMEOUT, transport=transport, follow_redirects=False)
        self._sleep = sleep
        self._say = say

    def close(self) -> None:
        self._http.close()

    def json(self, method: str, path: str, query: Query | None = None, *, body: Upload | None = None, **options: Any) -> Any:
        """The JSON value of an answer; None of one without content. ``options``: ``repeatable``, ``headers``."""
        return self._retried(lambda: self._read(method, path, query, body, options.get("headers")), method, options)

    def text(self, path: str, query: Query | None = None) -> str:
        """An answer that is text and not JSON."""
        return self._retried(lambda: self._read("GET", path, query, None, None, as_text=True), "GET", {})  # type: ignore[no-any-return]

    @contextmanager
    def stream(self, path: str, query: Query | None = None) -> Iterator[httpx.Response]:
        """An answer to be read piece by piece. What breaks off while it is read is :class:`Unreachable`."""
        opened = self._retried(lambda: self._open("GET", path, query, None, None), "GET", {})
        try:
            yield opened
        except httpx.HTTPError as error:
            raise Unreachable(f"the answer broke off: {_words(error)}") from error
        finally:
            opened.close()

    def address(self, path: str) -> str:
        """Of a path under the API's root, or of one that an answer named as the next page. Never of another server."""
        if path.startswith("/") and not path.startswith("//"):
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc}{path}"
        if urlsplit(path).scheme or path.startswith("//"):
            raise NotTheApi(f"the service names the address {one_line(path)[:200]}, to which this token is not sent")
        return f"{self.url}{PREFIX}{path}"

    # One request

    def _open(self, method: str, path: str, query: Query | None, body: Upload | None, headers: Mapping[str, str] | None) -> httpx.Response:
        """An answer that succeeded, its body not yet read. Raises :class:`ApiError` and what httpx raises."""
        sent = dict(headers or {}) | ({"Content-Type": body.kind} if body and body.kind else {})
        sent |= {"Content-Length": str(body.path.stat().st_size)} if body and body.path else {}
        request = self._http.build_request(
            method,
            self.address(path),
            params=_parameters(query) or None,
            headers=sent,
            timeout=LONG if body and body.path else TIMEOUT,
            **(body.arguments() if body else {}),
        )
        answer = self._http.send(request, stream=True)
        if answer.is_success:
            return answer
        try:
            raise _refusal(answer, self.url)
        finally:
            answer.close()

    def _read(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Upload | None,
        headers: Mapping[str, str] | None,
        *,
        as_text: bool = False,
    ) -> Any:
        answer = self._open(method, path, query, body, headers)
        try:
            content = _content(answer)
        finally:
            answer.close()
        if answer.status_code == 204:
            return None
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if as_text and kind not in ("text/html", ""):
            return content.decode("utf-8", "replace")
        try:
            if kind != "application/json":
                raise ValueError(f"it is {kind or 'of no type'}")
            return read_json(content)
        except ValueError as error:
            raise NotTheApi(
                f"{answer.url.copy_with(query=None)} answers with what is no JSON of this API: {one_line(str(error))[:200]}"
            ) from None

    # Repeats

    def _retried(self, call: Callable[[], Any], method: str, options: Mapping[str, Any]) -> Any:
        """Again where nothing can happen twice, and whenever the service says that it did not even look (429)."""
        repeatable = options.get("repeatable", method in ("GET", "HEAD", "PUT", "DELETE"))
        wait, patience = FIRST_WAIT_S, PATIENCE_S
        for left in range(TRIES - 1, -1, -1):
            pause = wait * random.uniform(0.5, 1.5)  # noqa: S311  spread, not secrecy
            try:
                return call()
            except httpx.InvalidURL as error:
                raise BadInput(f"{self.url} is no address: {error}") from None
            except httpx.HTTPError as error:
                # A connection that was not made has carried nothing.
                if not left or not (repeatable or isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)):
                    raise Unreachable(f"no answer from {self.url}: {_words(error)}", remedy=_remedy(repeatable)) from error
                self._say(f"no answer from {self.url} ({_words(error)}); trying again")
            except ApiError as error:
                if not left or not (error.status == 429 or (repeatable and (error.status in AWAY or error.error.retry))):
                    raise
                told = error.details.get("retry_after_s")
                pause = float(told) + random.uniform(0, 0.5) if isinstance(told, int | float) else pause  # noqa: S311
                if pause > patience:
                    raise
                patience -= pause
                self._say(f"{error.message}; trying again in {pause:.0f} s")
            self._sleep(pause)
            wait *= 3
        raise AssertionError("unreachable")


def checked_url(url: str) -> str:
    """The address of a service without a slash at its end, without the API's own path. Raises :class:`BadInput`."""
    given = url.strip().rstrip("/").removesuffix(PREFIX.rstrip("/"))
    try:
        parts = urlsplit(given)
        well = parts.scheme in ("http", "https") and parts.hostname and given.isprintable() and " " not in given and parts.port != 0
        well = well and not parts.query and not parts.fragment and parts.username is None
    except ValueError:
        well = False
    if not well:
        raise BadInput(
            f"{one_line(url)[:100]!r} is no http:// or https:// address",
            remedy="Give it as a browser shows it: https://specweb.example.org",
        )
    return given


def checked_token(token: str) -> None:
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise BadInput("the token holds characters that no token has", remedy="Copy it again, whole and by itself.")


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as f:
        while piece := f.read(1 << 20):
            yield piece


def _parameters(query: Query | None) -> dict[str, str]:
    told = {k: v for k, v in (query or {}).items() if v not in (None, "")}
    return {k: ("true" if v else "false") if isinstance(v, bool) else str(v) for k, v in told.items()}


def _content(answer: httpx.Response) -> bytes:
    """The body. Raises :class:`NotTheApi` for one that doesn't end."""
    found = bytearray()
    for piece in answer.iter_bytes():
        found += piece
        if len(found) > MAX_ANSWER:
            raise NotTheApi(f"{answer.url.copy_with(query=None)} answers with more than {MAX_ANSWER >> 20} MiB")
    return bytes(found)


def _refusal(answer: httpx.Response, url: str) -> ApiError | NotTheApi:
    """The service's own error, or what stands for it where somebody else answered."""
    status = answer.status_code
    if answer.is_redirect:
        to = one_line(answer.headers.get("Location", ""))[:200]
        return NotTheApi(f"{url} sends on to {to}", remedy="Give the address to which it sends: specweb login ADDRESS")
    try:
        error = ErrorBody.model_validate(read_json(_content(answer))["error"])
    except (ValueError, ValidationError, KeyError, TypeError, httpx.HTTPError, NotTheApi):
        words = f"{answer.request.method} {answer.url.copy_with(query=None)} answered HTTP {status} without an error of this API"
        error = ErrorBody(code=f"http_{status}", message=words, blame="server", remedy=NotTheApi.remedy, retry=status in AWAY)
    told = error.details.get("retry_after_s")
    after = _retry_after(answer.headers.get("Retry-After", ""))
    if after is not None and not isinstance(told, int | float):
        error = error.model_copy(update={"details": {**error.details, "retry_after_s": after}})
    return api_error(status, error)


def _retry_after(value: str) -> float | None:
    """Seconds of a ``Retry-After`` in either form (RFC 9110, 10.2.3)."""
    if value.strip().isdecimal():
        return float(value)
    try:
        when = email.utils.parsedate_to_datetime(value)
    except (ValueError, TypeError):
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _remedy(repeatable: bool) -> str:
    return Unreachable.remedy if repeatable else "It may have arrived: look before you send it again."


def _words(error: Exception) -> str:
    return one_line(str(error)) or type(error).__name__


def body_json(value: Any) -> Upload:
    return Upload(jsons.dumps(value).encode(), "application/json")
