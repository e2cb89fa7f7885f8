"""Stored numbers read in part: a page about one comparison or one point need not read those of all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speccore.measurement import AttemptMeasurement, JobAnalysis


def analysis_of(numbers: Mapping[str, Any], arm: str, point: str) -> JobAnalysis:
    """An analysis with no other comparison than that of the arm at the point, if it has that."""
    found = [c for c in numbers.get("comparisons", ()) if (c.get("arm"), c.get("point")) == (arm, point)]
    return JobAnalysis.model_validate({**numbers, "comparisons": found})


def measurement_at(numbers: Mapping[str, Any], point: str) -> AttemptMeasurement:
    """A measurement with no other probes than the timed ones at the point."""
    found = [p for p in numbers.get("probes", ()) if p.get("point") == point and not p.get("warmup")]
    return AttemptMeasurement.model_validate({**numbers, "probes": found})
