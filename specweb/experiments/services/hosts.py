"""Hosts: enrolment, and what they say that they are and offer."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from speccore.errors import HostRevoked, NotAllowed
from speccore.inventory import HostInventory as Inventory
from speccore.inventory import ModelInfo, RuntimeInfo
from speccore.jobstate import HELD, JobState
from speccore.protocol import EnrolRequest

from specweb import queue
from specweb.accounts import audit
from specweb.accounts.models import Team
from specweb.accounts.tokens import hash_of, new_secret
from specweb.experiments.models import EnrolmentCode, Host, HostInventory, HostModel, HostRuntime, Job, Model, Runtime
from specweb.experiments.viewer import Viewer, teams_of

from .jobs import fail_job, move_job

log = logging.getLogger(__name__)
CODE_LIFE = timedelta(hours=24)


def create_enrolment_code(team: Team, now: datetime) -> str:
    """A secret with which one machine may become a host of the team, within a day."""
    secret, digest = new_secret("enrol")
    with transaction.atomic():
        code = EnrolmentCode.objects.create(team=team, hash=digest, expires_at=now + CODE_LIFE)
        audit.record("enrolment-code.make", code.pk, team=team, after=f"good until {code.expires_at:%Y-%m-%d %H:%M} UTC")
    return secret


def open_enrolment_codes(teams: Iterable[Team], now: datetime) -> list[EnrolmentCode]:
    """Codes with which a machine could still become a host of one of the teams, the newest first (1 statement)."""
    found = EnrolmentCode.objects.filter(team__in=teams, used_at=None, expires_at__gt=now).select_related("team")
    return list(found.order_by("-pk"))


def enrolment_code_shown(user: Viewer, code_id: int) -> EnrolmentCode | None:
    """A code of one of a person's teams (1 statement)."""
    known = EnrolmentCode.objects.filter(pk=code_id, team__in=teams_of(user)).select_related("team")
    return known.first() if code_id < 2**63 else None


def withdraw_enrolment_code(code: EnrolmentCode) -> bool:
    """No machine enrols with it from now on. False if one just did, or somebody else withdrew it."""
    with transaction.atomic():
        if not EnrolmentCode.objects.filter(pk=code.pk, used_at=None).delete()[0]:
            return False
        audit.record("enrolment-code.withdraw", code.pk, team=code.team, before=f"good until {code.expires_at:%Y-%m-%d %H:%M} UTC")
    return True


def enrol(request: EnrolRequest, now: datetime) -> tuple[Host, str]:
    """Makes a host of the code's team and its token. Raises :class:`NotAllowed` for a code that is unknown, old or used."""
    with transaction.atomic():
        code = EnrolmentCode.objects.filter(hash=hash_of(request.code), expires_at__gt=now, used_at=None).select_related("team").first()
        if code is None or not EnrolmentCode.objects.filter(pk=code.pk, used_at=None).update(used_at=now):
            raise NotAllowed("the enrolment code is unknown, used or too old", remedy="Ask a maintainer of the team for a new code.")
        host, token = create_host(code.team, request.hostname, agent_version=request.agent_version)
        EnrolmentCode.objects.filter(pk=code.pk).update(host=host)
        audit.record("host.enrol", host.pk, host.name, team=code.team, by=host.name, reason=f"enrolment code {code.pk}")
    return host, token


def create_host(team: Team, hostname: str, *, agent_version: str = "") -> tuple[Host, str]:
    """A host under the first free name after ``hostname``, and its agent token."""
    secret, digest = new_secret("agent")
    base = _base_name(hostname)
    taken = set(Host.every.filter(team=team, name__startswith=base).values_list("name", flat=True))
    name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)
    return Host.objects.create(team=team, name=name, token_hash=digest, agent_version=agent_version[:40]), secret


def self_run_host(team: Team, inventory: Inventory, digest: str, now: datetime) -> HostInventory:
    """The machine of an uploaded run with its inventory as it was then: one host for each hostname, which never polls.

    Its builds and models get rows, since jobs refer to them, and are no offer: nothing is dispatched to it.
    """
    return foreign_host(team, f"{_base_name(inventory.hostname)}-self-run", inventory, digest, now)


def foreign_host(team: Team, name: str, inventory: Inventory, digest: str, now: datetime) -> HostInventory:
    """A machine that never polls here, under a name that no host takes by itself, with an inventory as it was then."""
    _, nobodys = new_secret("agent")
    host, _ = Host.every.get_or_create(
        team=team, name=name[:80], self_run=True, defaults={"token_hash": nobodys, "agent_version": inventory.agent_version[:40]}
    )
    row, _ = _inventory_row(host, inventory, digest, now)
    for runtime in inventory.runtimes:
        runtime_row(runtime, now)
    for model in inventory.models:
        model_row(model, now)
    return row


def _base_name(hostname: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", hostname).strip("-.")[:60] or "host"


def host_of_token(token: str) -> Host | None:
    """The host that a token stands for, None for an unknown one. Raises :class:`HostRevoked`."""
    host = Host.objects.filter(token_hash=hash_of(token)).select_related("team", "inventory").first()
    if host is not None and host.revoked_at:
        raise HostRevoked(f"{host} was revoked on {host.revoked_at:%Y-%m-%d at %H:%M:%S} UTC")
    return host


def drain_host(host: Host, *, now: datetime, by: str) -> bool:
    """The host finishes the job that it has and gets no other; what was queued on it may go elsewhere. False if it drains already or is revoked."""
    with transaction.atomic():
        if not Host.objects.filter(pk=host.pk, drain_requested_at=None, revoked_at=None).update(drain_requested_at=now):
            return False
        _send_back_queued(host, now, by, f"{host} takes no new jobs (drained by {by})")
        audit.record("host.drain", host.pk, host.name, team=host.team, by=by, before="takes jobs", after="takes no new jobs")
        transaction.on_commit(lambda: queue.send("dispatch"))
    return True


def undrain_host(host: Host, *, now: datetime, by: str) -> bool:
    """The host takes jobs again. False if it was not draining or is revoked."""
    with transaction.atomic():
        ended = Host.objects.filter(pk=host.pk, revoked_at=None).exclude(drain_requested_at=None).update(drain_requested_at=None)
        if ended:
            audit.record("host.undrain", host.pk, host.name, team=host.team, by=by, before="takes no new jobs", after="takes jobs")
    if ended:
        log.info("%s takes jobs again, as %s asked", host, by)
        queue.send("dispatch")
    return bool(ended)


def revoke_host(host: Host, *, now: datetime, by: str) -> bool:
    """Shuts a host out for good: its token is refused from now on. False if it was revoked before.

    The token can never come back, so a job that the host holds fails at once and keeps its finished blocks; one that is
    queued on it goes back to the dispatcher, unless it asks for this very host.
    """
    error = HostRevoked(f"{host} was revoked by {by}; what it sent before is kept").body()
    with transaction.atomic():
        # The host's row is locked by this update; who grants a lease locks it too, so none is granted in between.
        if not Host.objects.filter(pk=host.pk, revoked_at=None).update(revoked_at=now):
            return False
        held = Job.objects.filter(host=host, state__in=[s.value for s in HELD])
        wanted = Job.objects.filter(wanted_host=host, state__in=[JobState.WAITING.value, JobState.QUEUED.value])
        for job_id in [*held.values_list("pk", flat=True), *wanted.values_list("pk", flat=True)]:
            fail_job(job_id, error, now=now, by=by)
        _send_back_queued(host, now, by, f"{host} was revoked by {by}")
        audit.record("host.revoke", host.pk, host.name, team=host.team, by=by, after="shut out for good")
        transaction.on_commit(lambda: queue.send("dispatch"))
    return True


def _send_back_queued(host: Host, now: datetime, by: str, reason: str) -> None:
    for job_id in Job.objects.filter(host=host, state=JobState.QUEUED.value).values_list("pk", flat=True):
        move_job(job_id, JobState.WAITING, now=now, by=by, reason=reason, host=None)


def store_inventory(host: Host, inventory: Inventory, now: datetime, *, digest: str = "") -> HostInventory:
    """Keeps an inventory and fills the catalogues from it. A job that was queued on an older one is dispatched anew.

    ``digest`` is its hash as the agent computes it and names it in each poll; unset: that of ``inventory``.
    """
    digest = digest or inventory.content_hash()
    with transaction.atomic():
        offered = host.inventory.parsed.runtimes if host.inventory else []
        HostRuntime.objects.filter(host=host, runtime__manifest_hash__in=[r.manifest_hash for r in offered]).update(last_seen_at=now)
        row, _ = _inventory_row(host, inventory, digest, now)
        Host.objects.filter(pk=host.pk).update(inventory=row, labels=inventory.labels, agent_version=inventory.agent_version[:40])
        host.inventory = row
        _fill_catalogues(host, inventory, now)
        for job_id in Job.objects.filter(host=host, state=JobState.QUEUED.value).exclude(inventory=row).values_list("pk", flat=True):
            move_job(job_id, JobState.WAITING, now=now, by=host.name, reason="the host's inventory changed", host=None)
    return row


def _inventory_row(host: Host, inventory: Inventory, digest: str, now: datetime) -> tuple[HostInventory, bool]:
    return HostInventory.objects.get_or_create(
        host=host,
        hash=digest,
        defaults={"hardware": inventory.hardware_name()[:200], "content": inventory.model_dump(mode="json"), "received_at": now},
    )


def _fill_catalogues(host: Host, inventory: Inventory, now: datetime) -> None:
    for info in inventory.runtimes:
        seen = {"host": host, "runtime": runtime_row(info, now)}
        HostRuntime.objects.update_or_create(
            **seen, defaults={"last_seen_at": now}, create_defaults={"first_seen_at": now, "last_seen_at": now}
        )
    for m in inventory.models:
        HostModel.objects.get_or_create(host=host, model=model_row(m, now), alias=m.alias[:200])


def runtime_row(info: RuntimeInfo, now: datetime) -> Runtime:
    row, _ = Runtime.objects.get_or_create(
        manifest_hash=info.manifest_hash,
        defaults={
            "engine": info.engine,
            "version": info.version[:200],
            "source_commit": info.source_commit[:64],
            "backend": info.backend[:40],
            "first_seen_at": now,
        },
    )
    return row


def model_row(info: ModelInfo, now: datetime) -> Model:
    row, _ = Model.objects.get_or_create(
        manifest_hash=info.manifest_hash,
        defaults={
            "format": info.format[:20],
            "size_bytes": info.size_bytes,
            "architecture": info.architecture[:80],
            "quantization": info.quantization[:40],
            "n_parameters": info.n_parameters,
            "n_layers": info.n_layers,
            "context_length": info.context_length,
            "vocab_size": info.vocab_size,
            "has_mtp": info.has_mtp,
            "first_seen_at": now,
        },
    )
    return row
