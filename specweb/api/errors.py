"""Every failure of the API in one shape: ``{"error": {code, message, blame, remedy, details}}``."""

from __future__ import annotations

import errno
import logging
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation, TooManyFieldsSent, TooManyFilesSent
from django.db import DataError, IntegrityError
from django.http import Http404
from django.utils.encoding import escape_uri_path
from pydantic import ValidationError
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback
from speccore.errors import ErrorBody, ServerError, SpecError, SpecWebError
from speccore.spec import SpecProblem

log = logging.getLogger(__name__)

#: HTTP status of an error's code; others follow from its blame.
STATUS = {
    "bad_range": 400,
    "bad_request": 400,
    "not_authenticated": 401,
    "host_revoked": 401,
    "not_allowed": 403,
    "scope_too_small": 403,
    "not_found": 404,
    "stale_lease": 409,
    "not_possible": 409,
    "key_reused": 409,
    "blobs_missing": 409,
    "wrong_offset": 409,
    "length_required": 411,
    "blob_too_large": 413,
    "part_too_large": 413,
    "message_too_large": 413,
    "unsupported_media_type": 415,
    "hash_mismatch": 422,
    "protocol_not_supported": 426,
    "too_many_requests": 429,
    "form_not_installed": 501,
}


class BlobsMissing(ServerError):
    code = "blobs_missing"
    remedy = "Send the files that details.missing names, then report again."


class NotFound(ServerError):
    code = "not_found"
    retry = False

    def __init__(self, meant: str = "") -> None:
        super().__init__("there is nothing at this address", remedy=f"The address is {escape_uri_path(meant)}" if meant else "")


class LengthRequired(ServerError):
    code = "length_required"
    retry = False
    remedy = "Send Content-Length."

    def __init__(self) -> None:
        super().__init__("the request has no Content-Length")


class BadRequest(ServerError):
    """A query parameter, header or form that can't be what was meant."""

    code = "bad_request"
    retry = False

    def __init__(self, message: str, remedy: str, **details: Any) -> None:
        super().__init__(message, remedy=remedy, **details)


class TooLarge(ServerError):
    code = "message_too_large"
    retry = False
    remedy = "An experiment is a page or two of text: see whether this is the file that was meant."

    def __init__(self, n_bytes: int, max_bytes: int, remedy: str | None = None) -> None:
        words = f"the body has {n_bytes:,} bytes or more, at most {max_bytes:,} are read"
        super().__init__(words, remedy=remedy, max_bytes=max_bytes)


class NotThisType(ServerError):
    code = "unsupported_media_type"
    retry = False
    remedy = "Send Content-Type: application/json or application/yaml, or a form with one file."


class SpecInvalid(SpecError):
    """An experiment with faults: all of them in ``details.problems``, each with its field, its value, and what to do."""

    MOST = 100

    def __init__(self, problems: list[SpecProblem]) -> None:
        first = problems[0]
        more = f", and {len(problems) - 1} more in details.problems" if len(problems) > 1 else ""
        told = [p.model_dump(mode="json") for p in problems[: self.MOST]]
        super().__init__(f"{first.field or 'the experiment'}: {first.message}{more}", problems=told, n_problems=len(problems))


class KeyReused(ServerError):
    code = "key_reused"
    retry = False
    remedy = "Send a new Idempotency-Key with a new experiment, or the same experiment with this one."


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """Django REST framework's exception handler. An unforeseen error is logged and told without its traceback."""
    set_rollback()
    body, status = _body_and_status(error)
    if status >= 500:
        log.error("%s failed", _where(context), exc_info=error)
    else:
        log.info("%s refused, %s: %s", _where(context), body.code, body.message)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 429:
        headers["Retry-After"] = str(body.details.get("retry_after_s", 60))
    return Response({"error": body.model_dump(mode="json")}, status=status, headers=headers)


def _where(context: dict[str, Any]) -> str:
    request = context.get("request")
    return f"{request.method} {escape_uri_path(request.path)}" if request is not None else "a request"


def _body_and_status(error: Exception) -> tuple[ErrorBody, int]:
    if isinstance(error, SpecWebError):
        return error.body(), STATUS.get(error.code, 422 if error.blame == "spec" else 500)
    if isinstance(error, ValidationError):
        fields = [{"field": ".".join(str(p) for p in e["loc"]), "message": e["msg"]} for e in error.errors(include_url=False)]
        first = fields[0]
        text = f"the message can't be read: {first['field'] or 'it'}: {first['message']}"
        return _error("invalid_message", text, remedy="Send a message of protocol v1.", details={"fields": fields}), 400
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        return _error("not_authenticated", str(error.detail), remedy="Send a valid token; a revoked host must enrol again."), 401
    if isinstance(error, exceptions.PermissionDenied | PermissionDenied):
        return _error("not_allowed", "this token may not do that"), 403
    if isinstance(error, Http404 | exceptions.NotFound):
        return _error("not_found", "there is nothing at this address"), 404
    if isinstance(error, DataError | UnicodeEncodeError):
        return _error("invalid_message", "a value in the message can't be stored: too long, too large, or no text"), 400
    if isinstance(error, IntegrityError):
        return _error("conflict", "another request changed the same thing first", retry=True), 409
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free space where the service keeps its evidence; the agent keeps the file and sends it again."
        return _error("storage_full", "the service has no room left for evidence", remedy=remedy, retry=True), 507
    if isinstance(error, RequestDataTooBig):
        return _error("message_too_large", "the message is larger than this service takes"), 413
    if isinstance(error, TooManyFieldsSent | TooManyFilesSent):
        what = "files" if isinstance(error, TooManyFilesSent) else "fields"
        return _error(
            "bad_request", f"the form has too many {what}", remedy="Send the experiment as JSON or YAML, or a form with one file."
        ), 400
    if isinstance(error, SuspiciousOperation):
        return _error("bad_request", f"the request can't be read: {error}"), 400
    if isinstance(error, exceptions.APIException):
        return _error(str(error.default_code), str(error.detail)), error.status_code
    return _error("server_error", "the service failed on this request; its log says why", retry=True), 500


def _error(code: str, message: str, *, remedy: str = "", retry: bool = False, details: dict[str, Any] | None = None) -> ErrorBody:
    return ErrorBody(code=code, message=message, blame="server", remedy=remedy, retry=retry, details=details or {})
