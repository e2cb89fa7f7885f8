"""Protocol v1 as it was first spoken: these files are never edited; a new meaning makes a new protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from speccore import protocol
from speccore.inventory import Peer
from speccore.protocol import decode
from speccore.spec import Person

FILES = sorted((Path(__file__).parent / "v1").glob("*.json"))
#: Messages that travel by themselves; the others are parts of these.
WHOLE = {"EnrolRequest", "EnrolReply", "InventoryRequest", "PollRequest", "PollReply", "AttemptReport", "ReportReply", "Refusal"}


def model_of(path: Path) -> type[Peer]:
    found: type[Peer] = getattr(protocol, path.stem)
    return found


def frozen(path: Path) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(path.read_text())
    return message


def test_every_message_is_frozen() -> None:
    assert {p.stem for p in FILES} == WHOLE


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_is_read_and_written_as_it_was(path: Path) -> None:
    written = decode(model_of(path), frozen(path)).model_dump(mode="json")
    assert _known(written, frozen(path)) == frozen(path)


def _known(now: Any, then: Any) -> Any:
    """What is written now, without optional fields that came later: they keep the protocol's number."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {k: _known(v, then[k]) for k, v in now.items() if k in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [_known(a, b) for a, b in zip(now, then, strict=True)]
    return now


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_unknown_fields_of_a_newer_peer_are_ignored(path: Path) -> None:
    model = model_of(path)
    assert decode(model, _with_news(frozen(path), model)) == decode(model, frozen(path))


def _with_news(message: Any, model: Any) -> Any:
    """The message with a field more in each part that a machine writes; what people write refuses unknown fields."""
    if isinstance(message, list):
        return [_with_news(m, model) for m in message]
    if not isinstance(message, dict) or not (isinstance(model, type) and issubclass(model, BaseModel)) or issubclass(model, Person):
        return message
    told = {k: _with_news(v, _part(model, k)) for k, v in message.items()}
    return told | {"news_of_2031": {"a": 1}}


def _part(model: type[BaseModel], field: str) -> Any:
    """The model inside a field's annotation (``list[X]``, ``X | None``), if there is one."""
    annotation = model.model_fields[field].annotation
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


REQUIRED = {
    "EnrolRequest": {"code", "hostname", "agent_version"},
    "EnrolReply": {"host_id", "host_name", "agent_token"},
    "InventoryRequest": {"inventory"},
    "PollRequest": {"inventory_hash"},
    "PollReply": set(),
    "AttemptReport": {
        *("attempt_id", "job_id", "lease", "trial", "n", "outcome", "boot_id", "started_at", "ended_at", "evidence"),
    },
    "ReportReply": {"stored", "counted"},
    "Refusal": {"error"},
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_field_became_required(path: Path) -> None:
    """An older peer sends what was required then, and is understood."""
    least = {k: v for k, v in frozen(path).items() if k in REQUIRED[path.stem]}
    decode(model_of(path), least)
    for field in REQUIRED[path.stem]:
        with pytest.raises(ValidationError):
            decode(model_of(path), {k: v for k, v in least.items() if k != field})


def test_early_looks_came_later_and_are_told_in_optional_fields() -> None:
    """A peer of before says nothing of them and is understood: nothing was looked at, nothing is decided."""
    then = {p.stem: frozen(p) for p in FILES}
    assert "looked" not in then["PollReply"]
    assert decode(protocol.PollReply, then["PollReply"]).looked is None
    told = {"job_id": "j", "after_block": 5, "decided": {"draft-3": 5}}
    now = decode(protocol.PollReply, then["PollReply"] | {"looked": told | {"of_2031": 1}})
    assert now.looked.model_dump() == told
    offer = then["PollReply"]["job"]
    assert "decided" not in offer
    assert (decode(protocol.JobOffer, offer).looked_after, decode(protocol.JobOffer, offer).decided) == (0, {})
