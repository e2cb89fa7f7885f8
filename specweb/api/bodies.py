"""Small JSON bodies: a model of each, and a fault in it told by field, value and remedy."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from rest_framework.request import Request

from .errors import BadRequest, TooLarge
from .people_body import read_away

#: Far more than the fields of any of them need.
MOST_BYTES = 256 * 1024


class Sent(BaseModel):
    """Base of what programs send: a field that isn't known is refused, since it would silently not count."""

    model_config = ConfigDict(extra="forbid", str_max_length=5_000)


Model = TypeVar("Model", bound=Sent)


def sent(request: Request, kind: type[Model]) -> Model:
    """The body as its model. Raises :class:`BadRequest` that names the first field at fault, and :class:`TooLarge`."""
    known = ", ".join(kind.model_fields)
    length = request.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > MOST_BYTES:  # the framework's JSON parser reads without a limit
        read_away(request)
        raise TooLarge(int(length), MOST_BYTES, f"Send a JSON object with the fields {known}.")
    try:
        return kind.model_validate(request.data)
    except RecursionError:
        raise BadRequest("the body is nested too deeply", f"Send a JSON object with the fields {known}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(p) for p in first["loc"]) or "the body"
        value = str(first["input"])[:60] if first["type"] != "missing" else "not there"
        raise BadRequest(f"{field} is {value!r}: {first['msg']}", f"Send a JSON object with the fields {known}.", field=field) from None
