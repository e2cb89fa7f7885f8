"""What the pages about models read: each function takes the same number of statements, however many hosts, models or jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Count, F, JSONField, Min, OuterRef, Q, Subquery
from django.db.models.expressions import Func
from django.db.models.functions import Coalesce
from speccore.inventory import ModelInfo

from specweb.experiments.models import Host, HostInventory, HostModel, Job, Model, Viewer

_HEAVY = ("plan", "commands", "experiment__spec")


def models_listed(user: Viewer, start: int, n: int) -> list[Model]:
    """Models that hosts of the person's teams have or once had, by alias (1 statement)."""
    here = Host.every.visible_to(user)
    known = Model.objects.filter(pk__in=HostModel.objects.filter(host__in=here).values("model"))
    return list(known.annotate(first=Min("aliases__alias", filter=Q(aliases__host__in=here))).order_by("first", "pk")[start : start + n])


def n_models(user: Viewer) -> int:
    return int(HostModel.objects.filter(host__in=Host.every.visible_to(user)).aggregate(n=Count("model", distinct=True))["n"])


def model_shown(user: Viewer, manifest_hash: str) -> Model | None:
    """With ``n_asked``: how many experiments that the person may read asked it on some host (1 statement)."""
    asked = Job.objects.visible_to(user).filter(target=OuterRef("pk")).order_by().values("target")
    n_asked = Coalesce(Subquery(asked.annotate(n=Count("experiment", distinct=True)).values("n")), 0)
    found: Model | None = Model.objects.visible_to(user).filter(manifest_hash=manifest_hash).annotate(n_asked=n_asked).first()
    return found


def places_of(user: Viewer, models: Sequence[Model]) -> dict[int, list[HostModel]]:
    """Model → where it is or was and under which alias, on hosts of the person's teams (1 statement)."""
    rows = HostModel.objects.filter(model__in=models, host__in=Host.every.visible_to(user)).select_related("host", "host__team")
    found: dict[int, list[HostModel]] = {m.pk: [] for m in models}
    for row in rows.order_by("host__name", "alias"):
        found[row.model_id].append(row)
    return found


def offered_now(hosts: Sequence[UUID]) -> dict[UUID, dict[str, set[str]]]:
    """Host → hash of a model → its aliases, of its newest inventory; none of a host that is revoked (1 statement)."""
    rows = Host.every.filter(pk__in=hosts, revoked_at=None, inventory__isnull=False)
    rows = rows.annotate(hashes=_of_models("manifest_hash"), names=_of_models("alias"))
    found: dict[UUID, dict[str, set[str]]] = {}
    for pk, hashes, names in rows.values_list("pk", "hashes", "names"):
        there = found.setdefault(pk, {})
        for manifest_hash, alias in zip(hashes, names, strict=False):
            there.setdefault(manifest_hash, set()).add(alias[:200])
    return found


def _of_models(key: str) -> Func:
    """That of each model, without reading the rest of the inventory."""
    path = f"jsonb_path_query_array(%(expressions)s, '$.models[*].{key}')"
    return Func(F("inventory__content"), template=path, output_field=JSONField())


def n_experiments(user: Viewer, models: Sequence[Model]) -> dict[int, int]:
    """Model → how many experiments that the person may read asked it on some host (1 statement)."""
    jobs = Job.objects.visible_to(user).filter(target__in=models).order_by().values_list("target")
    return dict(jobs.annotate(n=Count("experiment", distinct=True)))


def last_told(user: Viewer, manifest_hash: str) -> ModelInfo | None:
    """What a host of the person's teams told of a model last (1 statement)."""
    holds: dict[str, Any] = {"content__models__contains": [{"manifest_hash": manifest_hash}]}
    told = HostInventory.objects.filter(host__in=Host.every.visible_to(user), **holds).order_by("-received_at").first()
    return next((m for m in (told.parsed.models if told else []) if m.manifest_hash == manifest_hash), None)


def hosts_with(user: Viewer, manifest_hash: str, n: int) -> list[Host]:
    """Hosts of the person's teams that told last that they have a model, with all that they told (1 statement)."""
    holds: dict[str, Any] = {"inventory__content__models__contains": [{"manifest_hash": manifest_hash}]}
    found = Host.objects.visible_to(user).filter(revoked_at=None, **holds).select_related("inventory")
    return list(found.order_by(F("last_seen_at").desc(nulls_last=True), "name")[:n])


def hosts_without(user: Viewer, hosts: Sequence[UUID], n: int) -> list[str]:
    """Names of the person's other hosts that are not revoked (1 statement)."""
    return list(
        Host.objects.visible_to(user).filter(revoked_at=None).exclude(pk__in=hosts).order_by("name").values_list("name", flat=True)[:n]
    )


def jobs_of_model(user: Viewer, model: Model, n: int) -> list[Job]:
    """The newest jobs that asked it (1 statement)."""
    jobs = Job.objects.visible_to(user).filter(target=model).select_related("experiment", "host").defer(*_HEAVY)
    return list(jobs.order_by("-id")[:n])
