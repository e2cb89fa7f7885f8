"""An experiment as it comes in a request: JSON, YAML, or a file of a form. Read with a limit, every fault in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.request import Request
from speccore.spec import ExperimentSpec, SpecProblem, parse_spec
from speccore.yamltext import MAX_BYTES, read_yaml

from specweb.accounts.models import Team, User
from specweb.experiments.services.checking import Checked, check, check_yaml

from .errors import BadRequest, NotThisType, TooLarge

JSON, FORM = "application/json", "multipart/form-data"
YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
FILE_FIELD = "file"
#: What a form adds around its file: boundaries and the file's name.
FORM_ROOM = 8 * 1024
#: What an address that takes an experiment reads.
EXPERIMENT = {
    JSON: ExperimentSpec,
    **{kind: {"type": "string"} for kind in YAML_TYPES[:1]},
    FORM: {"type": "object", "properties": {FILE_FIELD: {"type": "string", "format": "binary"}}, "required": [FILE_FIELD]},
}
MOST_READ_AWAY = 16 * 1024**2
MOST_DIGITS = 1_000


class AsItCame(BaseParser):
    """Hands the body on; what it means is decided with the team at hand."""

    media_type = "*/*"
    max_bytes = MAX_BYTES
    remedy: str | None = None

    def parse(self, stream: BinaryIO, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> bytes:
        body = stream.read(self.max_bytes + 1)
        if len(body) > self.max_bytes:
            raise TooLarge(len(body), self.max_bytes, self.remedy)
        return body


PARSERS: list[type[BaseParser]] = [MultiPartParser, AsItCame]


@dataclass(frozen=True)
class Body:
    """An experiment as text, not yet understood."""

    text: bytes
    is_json: bool

    def checked(self, team: Team, user: User) -> Checked:
        """What it says, with every fault at once."""
        if not self.is_json:
            return check_yaml(self.text, team, user)
        try:
            return check(read_json(self.text), team, user)
        except ValueError as error:
            line = error.lineno if isinstance(error, json.JSONDecodeError) else None
            words = f"is no JSON: {error.msg} (column {error.colno})" if isinstance(error, json.JSONDecodeError) else str(error)
            return Checked(None, [SpecProblem(field="", message=words, line=line)])

    def spec_hash(self) -> str:
        """Of the experiment that it says, whether or not it can be run today; empty for one that can't be understood."""
        try:
            spec, _ = parse_spec(read_json(self.text) if self.is_json else read_yaml(self.text))
        except ValueError:
            return ""
        return spec.spec_hash() if spec else ""


def body_of(request: Request) -> Body:
    """The request's experiment. Raises what :mod:`.errors` has for a body that isn't there, too large, or of another type."""
    length = request.headers.get("Content-Length", "")
    if not length.isdecimal() or int(length) == 0:
        raise BadRequest("the request has no body", "Send the experiment as JSON or YAML, with Content-Length.")
    if int(length) > MAX_BYTES + FORM_ROOM:
        read_away(request)
        raise TooLarge(int(length), MAX_BYTES)
    kind = (request.content_type or "").partition(";")[0].strip().lower()
    if kind == FORM:
        return Body(_file_of(request), is_json=False)
    if kind not in (JSON, *YAML_TYPES):
        raise NotThisType(f"a body of type {kind[:60]!r} is not read", taken=[JSON, YAML_TYPES[0], FORM])
    return Body(request.data, is_json=kind == JSON)


def read_away(request: Request) -> None:
    """Lets a sender come to the end, within reason: a server that closes the line under it leaves it without the answer."""
    left = MOST_READ_AWAY
    while left > 0 and (piece := request._request.read(min(left, 64 * 1024))):
        left -= len(piece)


def _file_of(request: Request) -> bytes:
    files = [f for name in request.FILES for f in request.FILES.getlist(name)]
    if len(files) != 1 or FILE_FIELD not in request.FILES:
        raise BadRequest(
            f"the form has {len(files)} files, one named {FILE_FIELD!r} is due",
            f"curl -F {FILE_FIELD}=@experiment.yaml does it.",
            field=FILE_FIELD,
        )
    if files[0].size > MAX_BYTES:
        raise TooLarge(files[0].size, MAX_BYTES)
    content: bytes = files[0].read()
    return content


def read_json(body: bytes) -> Any:
    """The JSON value in ``body``. Raises ``ValueError`` that says what is wrong; a key that is there twice is a fault."""
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_once, parse_int=_whole, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text: byte {error.start + 1:,} can't be read") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"it holds a number of {len(digits):,} digits: correct it")
    return int(digits)


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number that JSON knows")
