"""How long a job will take, as a range: from what earlier trials on the host took, else a stated guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .protocol import JobPlan
from .spec import ExperimentSpec


@dataclass(frozen=True)
class TrialCost:
    """What one earlier trial took, in seconds: ``token_s`` for each token of its requests, ``rest_s`` beside start and requests."""

    mode: str
    start_s: float
    token_s: float
    rest_s: float


@dataclass(frozen=True)
class Minutes:
    low: float
    high: float
    basis: str  # in words: what the range rests on


def job_minutes(spec: ExperimentSpec, plan: JobPlan, *, model_bytes: int, on_gpu: bool, earlier: Sequence[TrialCost] = ()) -> Minutes:
    raise NotImplementedError
