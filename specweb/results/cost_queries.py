"""What earlier trials took, for an estimate of those to come."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, Sum
from speccore.estimate import TrialCost

from specweb.accounts.models import Team
from specweb.experiments.models import HostModel

from .models import Attempt

#: The newest of a team that count; a host's older builds and drivers fade out.
N_TRIALS = 400
#: Tokens of context that are read in the time of answering one, about: see speccore.reading.SHARE for how far that varies.
READ_FOR_ONE = 20
#: What a trial asks after its timed part is counted by its requests.
UNTIMED = ("look", "sampling")


def trial_costs(team: Team, target: str) -> dict[UUID, list[TrialCost]]:
    """Host → what its newest trials of a target took, which is named by alias or hash as in a spec (1 statement)."""
    called_so = HostModel.objects.filter(model=OuterRef("trial__job__target"), host=OuterRef("trial__job__host"), alias=target)
    rows = (
        Attempt.objects.filter(
            Q(trial__job__target__manifest_hash=target) | Exists(called_so), accepted=True, outcome="ok", trial__job__experiment__team=team
        )
        .exclude(trial__job__host=None)
        .values("pk", "started_at", "ended_at", "durations_s", "trial__job__host_id", "trial__arm__mode")
        .annotate(
            asked_s=Sum("measurement__probes__e2e_s"),
            # requests that ran together share their time
            busy_s=Sum(F("measurement__probes__e2e_s") / F("measurement__probes__point__concurrency")),
            # context that had to be read counts as so many tokens of an answer
            asked=Sum(F("measurement__probes__point__max_tokens") + F("measurement__probes__point__occupied_context") / READ_FOR_ONE),
        )
        .order_by("-received_at")[:N_TRIALS]
    )
    costs: dict[UUID, list[TrialCost]] = defaultdict(list)
    for row in rows:
        start = row["durations_s"].get("start")
        if not row["asked"] or not row["asked_s"] or not isinstance(start, int | float):
            continue
        untimed = [s for name in UNTIMED if isinstance(s := row["durations_s"].get(name), int | float)]
        whole = (row["ended_at"] - row["started_at"]).total_seconds() - sum(untimed)
        rest = max(0.0, whole - start - row["busy_s"])
        costs[row["trial__job__host_id"]].append(TrialCost(row["trial__arm__mode"], start, row["asked_s"] / row["asked"], rest))
    return dict(costs)
