"""What can go wrong between a program and the service, each as a class with a code, a message and a remedy.

::

    SpecWebError (speccore)
    └── ClientError
        ├── BadInput          what was given here is wrong: a file, an option, the configuration; nothing was sent
        ├── NotLoggedIn       no address or token is known
        ├── Unreachable       no answer came, after retries
        ├── NotTheApi         an answer came that is not this API's: another address, a proxy, half of an answer
        └── ApiError          the service refused or failed, in its own words
            ├── NotAuthenticated 401 · NotAllowed 403 · NotFound 404 · NotPossible 409 · Invalid 400 413 415 422
            └── TooManyRequests 429 · ServerFailed 5xx
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from speccore.errors import ErrorBody, SpecWebError
from speccore.spec import SpecProblem


class ClientError(SpecWebError):
    code = "client_error"


class BadInput(ClientError):
    code = "bad_input"
    blame = "spec"


class NotLoggedIn(BadInput):
    code = "not_logged_in"
    remedy = "Run: specweb login ADDRESS; or set SPECWEB_URL and SPECWEB_TOKEN."


class Unreachable(ClientError):
    code = "server_unreachable"
    retry = True
    remedy = "Look at the network and at the address, then run it again."


class NotTheApi(ClientError):
    code = "not_the_api"
    remedy = "See whether the address is the service's own, and what stands in front of it (a proxy, a login page)."


class ApiError(ClientError):
    """The service's own error. ``status`` is the answer's, ``error`` what it said; ``code`` is the error's, not the class's."""

    def __init__(self, status: int, error: ErrorBody) -> None:
        super().__init__(error.message, remedy=error.remedy, **error.details)
        self.status = status
        self.error = error
        self.code = error.code  # type: ignore[misc]

    def body(self) -> ErrorBody:
        return self.error

    @property
    def problems(self) -> list[SpecProblem]:
        """Each fault of what was sent, with field and line; of an entry that can't be read nothing."""
        found = []
        for entry in _list(self.details, "problems"):
            try:
                found.append(SpecProblem.model_validate({k: v for k, v in entry.items() if v is not None}))
            except (ValidationError, AttributeError):
                continue
        return found


class NotAuthenticated(ApiError):
    """No token, or one that is unknown, expired or revoked."""


class NotAllowed(ApiError):
    """A role or a scope that is too small."""


class NotFound(ApiError):
    """There is no such thing, or it is another team's."""


class NotPossible(ApiError):
    """Not in the state that a thing is in."""


class Invalid(ApiError):
    """What was sent has faults: :attr:`ApiError.problems`."""


class TooManyRequests(ApiError):
    """Asked too often, and the wait was longer than the client waits."""


class ServerFailed(ApiError):
    """The service, or a proxy in front of it, failed."""


_BY_STATUS: dict[int, type[ApiError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: NotPossible,
    429: TooManyRequests,
}


def api_error(status: int, error: ErrorBody) -> ApiError:
    kind = _BY_STATUS.get(status) or (ServerFailed if status >= 500 else Invalid)
    return kind(status, error)


def _list(details: Mapping[str, Any], name: str) -> list[Any]:
    found = details.get(name)
    return found if isinstance(found, list) else []
