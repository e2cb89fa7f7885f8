"""What comparisons can be narrowed to, in the API and in files."""

from __future__ import annotations

from typing import Any

import django_filters as filters

from specweb.results import compare_queries
from specweb.results.models import Listing

from .texts import Moment, Text

ABOUT = {
    "target": "Target model as a host calls it; results with the same weights under another name are found too.",
    "engine": "Engine.",
    "work": "Workload with its version, such as count@1.",
    "concurrency": "Requests at once.",
    "context": "Tokens of context that are occupied.",
    "hardware": "As results name it.",
    "mode": "Speculation mode.",
}


class ComparisonFilter(filters.FilterSet):
    target = Text(label="Target model as its host calls it.")
    target_hash = Text(label="Target model by the hash of its files.")
    engine = Text(label=ABOUT["engine"])
    work = Text("workload", label=ABOUT["work"])
    concurrency = filters.NumberFilter(label=ABOUT["concurrency"])
    context = filters.NumberFilter("occupied_context", label=ABOUT["context"])
    hardware = Text(label=ABOUT["hardware"])
    mode = Text(label=ABOUT["mode"])
    question = Text("question_key", label="Results that answer the same question.")
    experiment = filters.UUIDFilter("experiment_id", label="Of one experiment.")
    job = filters.UUIDFilter("comparison__job_id", label="Of one job.")
    host = filters.UUIDFilter("host_id", label="Measured on this host.")
    team = Text("experiment__team__slug", label="Of this team's experiments.")
    verdict = Text("comparison__verdict", label="keep, shorten, disable, inconclusive, invalid or not engaged.")
    recommended = filters.BooleanFilter("comparison__recommended", label="The arm to use for its work.")
    self_run = filters.BooleanFilter(label="Uploaded, or measured by this service.")
    since = Moment("measured_at", "gte", label="Measured then or later.")
    until = Moment("measured_at", "lt", label="Measured before.")

    class Meta:
        model = Listing
        fields: list[str] = []


class ComparedFilter(ComparisonFilter):
    """As the Compare page narrows: a target's name stands for its weights."""

    target = filters.CharFilter(label=ABOUT["target"], method="by_weights")

    def by_weights(self, rows: Any, name: str, value: str) -> Any:
        choices = compare_queries.choices(self.request.user)
        return rows.filter(target_hash__in=choices.weights.get(value, set()))
