"""What a list of experiments can be narrowed to."""

from __future__ import annotations

from typing import Any

import django_filters as filters
from django.db.models import Q
from speccore.jobstate import JobState

from specweb.experiments.models import Experiment, Origin, Visibility
from specweb.experiments.text import storable
from specweb.results.api_queries import in_state

from .texts import Moment, Text

ORDERS = {"newest": ("-id",), "oldest": ("id",), "name": ("name", "-id")}


class ExperimentFilter(filters.FilterSet):
    team = Text("team__slug", label="The team, by its short name.")
    state = filters.ChoiceFilter(label="As it is shown.", choices=[(s.value, s.value) for s in JobState], method="by_state")
    q = filters.CharFilter(label="Stands in the name or the question.", method="by_words")
    visibility = filters.ChoiceFilter(label="Who may read it.", choices=Visibility.choices)
    origin = filters.ChoiceFilter(label="Measured by this service, or uploaded.", choices=Origin.choices)
    by = Text("created_by__username", label="Who submitted it.")
    host = filters.UUIDFilter(label="A job of it ran on this host.", method="by_host")
    since = Moment("created_at", "gte", label="Submitted then or later.")
    until = Moment("created_at", "lt", label="Submitted before.")
    order = filters.ChoiceFilter(label="In which order.", choices=[(name, name) for name in ORDERS], method="as_it_is")

    class Meta:
        model = Experiment
        fields: list[str] = []

    def by_state(self, rows: Any, name: str, value: str) -> Any:
        return in_state(rows, JobState(value))

    def by_words(self, rows: Any, name: str, value: str) -> Any:
        return rows.filter(Q(name__icontains=storable(value)) | Q(question__icontains=storable(value)))

    def by_host(self, rows: Any, name: str, value: Any) -> Any:
        return rows.filter(jobs__host=value).distinct()

    def as_it_is(self, rows: Any, name: str, value: str) -> Any:
        return rows
