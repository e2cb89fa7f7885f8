"""What is found of an arm's answers: greedy agreement, quality held or lost, and whether the sampling rule holds."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from .inventory import Peer

#: Names of what quality is seen by.
TASK_CHECKS, GREEDY_ANSWERS, SAMPLING_RULE = "task checks", "greedy answers", "sampling rule"


class AgreementResult(Peer):
    """Greedy answers beside the baseline's to the same prompts (or the baseline's beside its own), and why they part."""

    n: int  # pairs of answers
    n_identical: int
    n_near_tie: int  # the target's own two likeliest tokens were at most 0.2 nat apart where they part
    n_wrong: int  # further apart
    n_unknown: int  # the target was not asked there
    n_prompts: int  # distinct
    wrong_prompts: list[str] = []  # the first few
    n_wrong_prompts: int = 0
    median_first: float | None = None  # tokens in common before they part
    words: str


class QualityMeasure(Peer):
    """One way to see whether an arm's answers are as good as the baseline's. Shares of distinct prompts, arm minus baseline."""

    name: str
    state: Literal["held", "lost", "not shown", "not checked"]
    sentence: str
    n: int = 0  # distinct prompts, or draws
    baseline: float | None = None
    arm: float | None = None
    low: float | None = None
    high: float | None = None
    needed: int | None = None  # prompts to show it


class SamplingPosition(Peer):
    """One position of the continuations: shares of probability."""

    model_config = ConfigDict(allow_inf_nan=False)

    position: int
    n_kinds: int
    p: float  # Holm
    total_variation: float
    at_least: float
    found_at: float | None = None


class SamplingJudged(Peer):
    """One arm of the test of the sampling rule, or its control. ``withheld``: why nothing can be said of the arm."""

    arm: str
    outcome: Literal["accused", "not accused", "control failed", "not tested"]
    words: str
    n: int = 0
    drafted: int | None = None
    positions: list[SamplingPosition] = []


class SamplingResult(Peer):
    """Whether the arms draw their tokens from the distribution that the baseline draws from."""

    workload: str
    temperature: float
    n_baseline: int
    control: SamplingJudged
    arms: list[SamplingJudged]
