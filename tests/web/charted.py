"""Results for the charts of Compare: two hosts, several limits, concurrencies and contexts; times are the test's, the rest is real."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from speccore.inventory import Device
from speccore.measurement import AttemptMeasurement

from specweb.accounts.models import Team
from specweb.experiments.models import Host, Job
from specweb.experiments.services.hosts import store_inventory
from tests.core import made
from tests.web import sample
from tests.web.measured import job_of, scatter

LIMITS = (2, 4, 8)
LONG = "Überlanger Name " + "x" * 120 + " عنوان طويل 🚀🚀"


def draft(limit: int, **more: Any) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "demo-draft", "draft_limit": limit} | more


def card_host(team: Team, name: str, device: str, driver: str = "535.54", gib: int = 6) -> Host:
    host = sample.host_with_inventory(team, name)
    assert host.inventory
    card = Device(uuid=f"gpu-{name}"[:60], kind="gpu", name=device, memory_bytes=gib * 2**30, driver=driver)
    store_inventory(host, host.inventory.parsed.model_copy(update={"devices": [card]}), datetime.now(UTC))
    host.refresh_from_db()
    return host


def on_card(base_mib: int, arm_mib: int) -> Any:
    """Device memory of baseline and arm, as a card's host samples it."""

    def change(a: AttemptMeasurement) -> AttemptMeasurement:
        return a.model_copy(update={"peak_device_bytes": made.number((base_mib if a.mode == "off" else arm_mib) * 2**20)})

    return change


def run(
    who: sample.People,
    host: Host,
    speeds: dict[str, float],
    *,
    arms: tuple[dict[str, Any], ...] = (draft(4),),
    days: float = 0,
    change: Any = None,
    **more: Any,
) -> Job:
    asked = {"target": {"model": "demo-target"}, "blocks": 3, "engine": {"context": 2048}, "placement": {"hosts": [host.name]}} | more
    given = {"change": change} if change else {}
    at = datetime.now(UTC) - timedelta(days=days)
    return job_of(who, host, made.spec_of(*arms, **asked), speeds, scatter(1, 0.002, 0.002), at=at, **given)


def limits(who: sample.People, host: Host, speeds: tuple[float, ...] = (1.3, 1.6, 1.4), **more: Any) -> Job:
    arms = tuple(draft(n) for n in LIMITS)
    return run(who, host, {"off": 1.0} | {f"draft-{n}": v for n, v in zip(LIMITS, speeds, strict=True)}, arms=arms, **more)
