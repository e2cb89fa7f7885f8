"""Hosts: enrolment, and what they say that they are and offer."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from django.db import transaction
from speccore.errors import NotAllowed
from speccore.inventory import HostInventory as Inventory
from speccore.jobstate import JobState
from speccore.protocol import EnrolRequest

from specweb.accounts.models import Team
from specweb.accounts.tokens import hash_of, new_secret
from specweb.experiments.models import EnrolmentCode, Host, HostInventory, HostModel, Job, Model, Runtime

from .jobs import move_job

CODE_LIFE = timedelta(hours=24)


def create_enrolment_code(team: Team, now: datetime) -> str:
    """A secret with which one machine may become a host of the team, within a day."""
    secret, digest = new_secret("enrol")
    EnrolmentCode.objects.create(team=team, hash=digest, expires_at=now + CODE_LIFE)
    return secret


def enrol(request: EnrolRequest, now: datetime) -> tuple[Host, str]:
    """Makes a host of the code's team and its token. Raises :class:`NotAllowed` for a code that is unknown, old or used."""
    with transaction.atomic():
        code = EnrolmentCode.objects.filter(hash=hash_of(request.code), expires_at__gt=now, used_at=None).select_related("team").first()
        if code is None or not EnrolmentCode.objects.filter(pk=code.pk, used_at=None).update(used_at=now):
            raise NotAllowed("the enrolment code is unknown, used or too old", remedy="Ask a maintainer of the team for a new code.")
        host, token = create_host(code.team, request.hostname, agent_version=request.agent_version)
        EnrolmentCode.objects.filter(pk=code.pk).update(host=host)
    return host, token


def create_host(team: Team, hostname: str, *, agent_version: str = "") -> tuple[Host, str]:
    """A host under the first free name after ``hostname``, and its agent token."""
    secret, digest = new_secret("agent")
    base = re.sub(r"[^A-Za-z0-9._-]+", "-", hostname).strip("-.")[:60] or "host"
    taken = set(Host.objects.filter(team=team, name__startswith=base).values_list("name", flat=True))
    name = next(n for n in (base, *(f"{base}-{i}" for i in range(2, len(taken) + 3))) if n not in taken)
    return Host.objects.create(team=team, name=name, token_hash=digest, agent_version=agent_version[:40]), secret


def host_of_token(token: str) -> Host | None:
    """The host that a token stands for, unless it was revoked."""
    return Host.objects.filter(token_hash=hash_of(token), revoked_at=None).select_related("team", "inventory").first()


def store_inventory(host: Host, inventory: Inventory, now: datetime, *, digest: str = "") -> HostInventory:
    """Keeps an inventory and fills the catalogues from it. A job that was queued on an older one is dispatched anew.

    ``digest`` is its hash as the agent computes it and names it in each poll; unset: that of ``inventory``.
    """
    digest = digest or inventory.content_hash()
    with transaction.atomic():
        row, _ = HostInventory.objects.get_or_create(
            host=host,
            hash=digest,
            defaults={"hardware": inventory.hardware_name()[:200], "content": inventory.model_dump(mode="json"), "received_at": now},
        )
        Host.objects.filter(pk=host.pk).update(inventory=row, labels=inventory.labels, agent_version=inventory.agent_version[:40])
        host.inventory = row
        _fill_catalogues(host, inventory, now)
        for job_id in Job.objects.filter(host=host, state=JobState.QUEUED.value).exclude(inventory=row).values_list("pk", flat=True):
            move_job(job_id, JobState.WAITING, now=now, by=host.name, reason="the host's inventory changed", host=None)
    return row


def _fill_catalogues(host: Host, inventory: Inventory, now: datetime) -> None:
    for info in inventory.runtimes:
        runtime, _ = Runtime.objects.get_or_create(
            manifest_hash=info.manifest_hash,
            defaults={
                "engine": info.engine,
                "version": info.version[:200],
                "source_commit": info.source_commit[:64],
                "backend": info.backend[:40],
                "first_seen_at": now,
            },
        )
        runtime.hosts.add(host)
    for m in inventory.models:
        model, _ = Model.objects.get_or_create(
            manifest_hash=m.manifest_hash,
            defaults={
                "format": m.format[:20],
                "size_bytes": m.size_bytes,
                "architecture": m.architecture[:80],
                "quantization": m.quantization[:40],
                "n_parameters": m.n_parameters,
                "n_layers": m.n_layers,
                "context_length": m.context_length,
                "vocab_size": m.vocab_size,
                "has_mtp": m.has_mtp,
                "first_seen_at": now,
            },
        )
        HostModel.objects.get_or_create(host=host, model=model, alias=m.alias[:200])
