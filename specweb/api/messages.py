"""Messages of protocol v1 as they come in a request: bounded, decoded, every fault in words."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from speccore.errors import ProtocolTooOld
from speccore.inventory import Peer
from speccore.protocol import PROTOCOL

from specweb.experiments.text import storable

Message = TypeVar("Message", bound=Peer)

#: Levels of a message; the deepest that agents send has a dozen.
MAX_DEPTH = 64


def decoded(model: type[Message], request: Request) -> Message:
    """The message in a request's body. Raises :class:`ProtocolTooOld`, and what the API's error handler has words for."""
    if int(request.headers.get("Content-Length") or 0) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise RequestDataTooBig  # the framework's JSON parser reads without a limit
    try:
        data = request.data
        _check(data)
    except RecursionError:
        raise ParseError("the message is nested too deeply") from None
    data = storable(data)
    if isinstance(data, dict) and isinstance(data.get("protocol"), int) and data["protocol"] != PROTOCOL:
        raise ProtocolTooOld(f"protocol {data['protocol']} is not spoken here, {PROTOCOL} is", protocol=data["protocol"], served=PROTOCOL)
    return model.model_validate(data)


def _check(value: Any, depth: int = 0) -> None:
    """Refuses what no later step could hold: endless nesting, and numbers such as 1e999, which JSON's reader takes for infinite."""
    if depth > MAX_DEPTH:
        raise ParseError(f"the message is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ParseError("a number in the message is too large")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check(part, depth + 1)
