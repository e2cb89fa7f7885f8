"""What earlier comparisons varied by, for plans of those to come."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from speccore.jobstate import JobState
from speccore.measurement import Variation
from speccore.person import STORED
from speccore.proposals import Earlier
from speccore.spec import Arm, Point

from specweb.accounts.models import Team
from specweb.experiments.models import HostModel

from .models import Comparison

#: The newest of a team that count.
N_COMPARISONS = 400


def pilots(team: Team, target: str) -> dict[UUID, list[Earlier]]:
    """Host → what its newest comparisons of a target varied by, which is named by alias or hash as in a spec (1 statement).

    Invalid ones are left out, and those of an earlier version, which did not keep it.
    """
    called_so = HostModel.objects.filter(model=OuterRef("job__target"), host=OuterRef("job__host"), alias=target)
    rows = (
        Comparison.objects.current()
        .filter(Q(job__target__manifest_hash=target) | Exists(called_so), job__experiment__team=team, job__state=JobState.PROCESSED.value)
        .exclude(verdict="invalid")
        .exclude(job__host=None)
        .order_by("-created_at", "-pk")
        .values_list("job__host_id", "job__runtime__engine", "arm__settings", "point__settings", "numbers__variation")[:N_COMPARISONS]
    )
    found: dict[UUID, list[Earlier]] = defaultdict(list)
    for host, engine, arm, point, variation in rows:
        if variation and "between" in variation:
            stored = Arm.model_validate(arm, context=STORED), Point.model_validate(point, context=STORED)
            found[host].append(Earlier(engine or "", *stored, Variation.model_validate(variation)))
    return dict(found)
