"""What can run where, as the pages of a host and of a model show it. No database access of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from django.urls import reverse
from speccore.attached import SERVED
from speccore.inventory import HostInventory, ModelInfo
from speccore.possible import OnBuild, Possible, possible

from specweb.experiments.models import Host
from specweb.experiments.services.silence import Limits, host_state

#: Models of a host that are looked at on its page; a model's own page has the rest.
MOST_MODELS = 8


@dataclass(frozen=True)
class Mode:
    name: str
    helpers: str  # in words, empty where it needs none


@dataclass(frozen=True)
class Cannot:
    """Modes that the same thing is in the way of."""

    modes: list[str]
    why: str
    remedy: str


@dataclass(frozen=True)
class BuildLine:
    name: str
    href: str
    can: list[Mode]
    cannot: list[Cannot]
    none: str


@dataclass(frozen=True)
class CanRun:
    """Of one model on one host; ``name`` is the one that the page isn't about. ``since``: since when the host is offline."""

    name: str
    href: str
    state: str = ""
    since: datetime | None = None
    builds: list[BuildLine] = field(default_factory=list)
    nothing: str = ""  # why there is no build to look at

    @property
    def can(self) -> bool:
        return any(b.can for b in self.builds)


def of_host(inventory: HostInventory) -> tuple[list[CanRun], int]:
    """Each model of a host as a target, the largest first, and how many more it has. Helpers, and what servers serve, are none."""
    targets = [m for m in inventory.models if not m.drafts_for and m.format != SERVED]
    targets.sort(key=lambda m: (-m.size_bytes, m.alias))
    found = [CanRun(m.alias, reverse("model", args=[m.manifest_hash]), **_builds(inventory, m)) for m in targets[:MOST_MODELS]]
    return found, max(0, len(targets) - MOST_MODELS)


def of_model(hosts: Sequence[Host], manifest_hash: str, now: datetime, limits: Limits) -> list[CanRun]:
    """On each host that has it, those that are online first; offline ones stand with what they told last."""
    found = []
    for host in hosts:
        inventory = host.inventory.parsed if host.inventory else None
        target = next((m for m in inventory.models if m.manifest_hash == manifest_hash), None) if inventory else None
        if inventory is None or target is None:
            continue
        state = host_state(host, now, limits)
        since = host.last_seen_at if state != "online" else None
        found.append(CanRun(host.name, reverse("host", args=[host.pk]), state, since, **_builds(inventory, target)))
    return sorted(found, key=lambda c: (c.state != "online", c.name))


def told_of(hosts: Sequence[Host], manifest_hash: str) -> ModelInfo | None:
    """What the one that was heard of last told of the model; None where none of them has it."""
    told = (h.inventory.parsed for h in hosts if h.inventory)
    return next((m for inventory in told for m in inventory.models if m.manifest_hash == manifest_hash), None)


def _builds(inventory: HostInventory, target: ModelInfo) -> dict[str, Any]:
    lines = [_line(found) for found in possible(inventory, target)]
    if lines:
        return {"builds": lines}
    nothing = "it has no engine build" if not inventory.runtimes else "its servers stand already: what they can is their own affair"
    return {"nothing": nothing}


def _line(found: OnBuild) -> BuildLine:
    r = found.runtime
    name = f"{r.engine} {r.version}".strip() + (f" · {r.backend}" if r.backend else "")
    cannot = sorted(found.cannot, key=lambda m: (m.why_not, m.remedy))
    grouped = [Cannot([m.mode for m in part], why, remedy) for (why, remedy), part in groupby(cannot, key=lambda m: (m.why_not, m.remedy))]
    return BuildLine(
        name=name,
        href=reverse("runtime", args=[r.manifest_hash]),
        can=[Mode(m.mode, _helpers(m)) for m in found.can],
        cannot=[] if found.none else grouped,
        none=found.none,
    )


def _helpers(m: Possible) -> str:
    if not m.helpers:
        return ""
    rest = f" and {m.n_helpers - len(m.helpers)} more" if m.n_helpers > len(m.helpers) else ""
    return f"with {', '.join(m.helpers)}{rest}"
