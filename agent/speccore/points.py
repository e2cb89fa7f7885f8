"""What is measured of each arm: the requests of a point, those before the first timed one, and those of the sampling test."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from .person import Person
from .spec_words import PLAIN_PATTERN

#: With several requests at once a trial sends so many of them, and four for each at once, at the least.
LEAST_TOGETHER, LEAST_TOGETHER_EACH = 24, 4


class Sampling(Person):
    """How a token is drawn; what is unset is left to the engine."""

    temperature: float = Field(default=0.0, ge=0, le=5, description="0: always the likeliest token")
    top_k: int | None = Field(default=None, ge=0, le=1_000_000)
    top_p: float | None = Field(default=None, ge=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)


class Point(Person):
    """One combination of workload, concurrency, occupied context and sampling; ``probes`` are per trial, at the least."""

    workload: str = Field(min_length=1, max_length=120, pattern=PLAIN_PATTERN, description="name, or name@version")
    concurrency: int = Field(default=1, ge=1, le=256, description="requests in flight at once")
    occupied_context: int = Field(
        default=0,
        ge=0,
        le=4_194_304,
        description="tokens in the context when the answer begins, the prompt's included: real text stands before it",
    )
    sampling: Sampling = Sampling()
    max_tokens: int = Field(default=128, ge=2, le=131_072, description="most tokens of an answer")
    probes: int = Field(
        default=2,
        ge=1,
        le=10_000,
        description="timed requests in each start of the engine; by the clock or several at once at least 24, and 4 for each",
    )
    rate_per_s: float | None = Field(
        default=None, ge=0.001, le=10_000, description="requests sent by the clock, so many a second on average, whatever the answers do"
    )
    warm: bool = Field(default=False, description="each prompt was asked before in the same start: what a repeat is worth")
    thinking: bool | None = Field(
        default=None, description="the prompt goes through the model's chat template, with thinking on or off; unset: the bare text"
    )

    @property
    def one_by_one(self) -> bool:
        """Whether each request waits for the answer to the one before it; else several may be under way."""
        return self.concurrency == 1 and self.rate_per_s is None

    @property
    def n_requests(self) -> int:
        """Timed requests of a trial. Where several are under way, the window needs a queue or a stream that lasts."""
        return self.probes if self.one_by_one else max(self.probes, LEAST_TOGETHER_EACH * self.concurrency, LEAST_TOGETHER)

    @property
    def manner(self) -> list[str]:
        """In words, what is rarely set of how its requests come and go."""
        words = [f"{self.concurrency} at once"] if self.concurrency > 1 else []
        words += [f"{self.rate_per_s:g} a second by the clock"] if self.rate_per_s is not None else []
        words += ["each prompt asked before"] if self.warm else []
        return words + ([] if self.thinking is None else ["thinking on" if self.thinking else "thinking off"])

    @property
    def key(self) -> str:
        """Identity inside the experiment, e.g. ``count/c1/ctx0/t0``; what is rarely set is added, e.g. ``/r2``, ``/warm``, ``/nothink``."""
        rare = [f"r{self.rate_per_s:g}"] if self.rate_per_s is not None else []
        rare += ["warm"] if self.warm else []
        rare += [] if self.thinking is None else ["think" if self.thinking else "nothink"]
        usual = f"{self.workload}/c{self.concurrency}/ctx{self.occupied_context}/t{self.sampling.temperature:g}"
        return "/".join([usual, *rare])


class Warmup(Person):
    """Requests before the first probe, kept and never counted.

    ``settled`` sends them at each point until the last two windows of 3 agree within 5 % in time per token, ``most`` at the
    most; ``fixed`` sends ``requests`` of them in all, and is meant where a number of them is all that is said.
    """

    mode: Literal["fixed", "settled"] = "settled"
    requests: int = Field(default=1, ge=1, le=100)
    most: int = Field(
        default=10, ge=6, le=100, description="warm-up requests of a point at the most, where they go on until it has settled"
    )

    @model_validator(mode="before")
    @classmethod
    def _a_number_is_fixed(cls, data: Any) -> Any:
        if isinstance(data, dict) and "requests" in data and not {"mode", "most"} & data.keys():
            return {**data, "mode": "fixed"}
        return data


class SamplingTest(Person):
    """Short continuations with and without speculation, under other seeds: whether both draw from one distribution."""

    workload: str = Field(min_length=1, max_length=120, pattern=PLAIN_PATTERN, description="whose prompts are continued")
    continuations: int = Field(default=2000, ge=100, le=100_000, description="of each arm, over all blocks")
    positions: int = Field(default=4, ge=1, le=16, description="tokens of each")
    sampling: Sampling = Sampling(temperature=0.8)
