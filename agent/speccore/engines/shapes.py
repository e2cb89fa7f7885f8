"""What every engine module takes and gives: bindings, rendered commands, parsed streams, counts of one request."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ..errors import ErrorBody
from ..measurement import Counters, Maybe
from ..records import StreamEvent


class Bindings(BaseModel):
    """What differs from host to host in a command. ``draft`` is empty where no arm has a helper model."""

    model_config = ConfigDict(frozen=True)
    executable: str
    target: str
    draft: str = ""
    host: str = "127.0.0.1"
    port: str | int


#: Bindings by name: two sides that render with these can compare their commands.
SYMBOLIC = Bindings(executable="{executable}", target="{target}", draft="{draft}", host="{host}", port="{port}")


class Asked(NamedTuple):
    """How a build is asked what it is and can do: words after its executable. ``program``: what the executable is called.

    ``packaged``: what makes its identity. A *program* is machine code with its libraries, *python* an environment with its
    distributions, a *script* one file with the interpreter that its first line names.
    """

    program: str
    version: tuple[str, ...] = ("--version",)
    help: tuple[str, ...] = ("--help",)
    devices: tuple[str, ...] = ()  # none: it can't list any
    needed: tuple[str, ...] = ()  # flags without which it is none of the engine's builds
    packaged: Literal["program", "python", "script"] = "program"


class Rendered(BaseModel):
    """A launch command. It must not be started while ``refusals`` (what this build or host can't do) has entries."""

    argv: list[str]
    env: dict[str, str] = Field(default_factory=dict)
    refusals: list[ErrorBody] = Field(default_factory=list)


class ParsedStream(BaseModel):
    """A streamed answer: events with their arrivals, and beside each its text and token ids."""

    events: list[StreamEvent]
    texts: list[str]
    ids: list[list[int]]
    final: dict[str, Any] = Field(default_factory=dict)
    generation_settings: dict[str, Any] = Field(default_factory=dict)
    failure: str = ""
    failure_message: str = ""


class DrafterShare(BaseModel):
    """What a log's line says of one drafter's part in one request; None where the figure was reset meanwhile, or isn't told."""

    type: str  # as the engine calls it
    line: int
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    draft_ms: float | None = None


class LogRequest(BaseModel):
    """What a log says of one request; lines from 1. ``draft_ms`` is this request's share of a cumulative figure."""

    line: int
    prompt_tokens: int | None = None
    tokens: int | None = None
    eval_ms: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    acceptance_line: int | None = None
    mean_length: float | None = None
    rate_by_position: list[float] = Field(default_factory=list)
    verify_steps: int | None = None
    draft_ms: float | None = None
    statistics_line: int | None = None
    drafters: list[DrafterShare] = Field(default_factory=list)


class MetricsPair(BaseModel):
    """Parsed /metrics before and after one request that ran alone, with the line of the second in the evidence."""

    before: dict[str, float | dict[str, float]]
    after: dict[str, float | dict[str, float]]
    line: int

    def growth(self, name: str) -> float | None:
        """After minus before, summed over labels; None where either lacks the counter, or it was reset between."""
        ends = [_total(snapshot.get(name)) for snapshot in (self.before, self.after)]
        return None if ends[0] is None or ends[1] is None or ends[1] < ends[0] else ends[1] - ends[0]

    def growth_by_label(self, name: str) -> dict[str, float] | None:
        """After minus before for each label; None where the counter is missing or was reset between.

        A label that appears with its first count has grown from nothing.
        """
        before, after = self.before.get(name, {}), self.after.get(name)
        if not isinstance(after, dict) or not isinstance(before, dict) or not before.keys() <= after.keys():
            return None
        grown = {label: value - before.get(label, 0.0) for label, value in after.items()}
        return None if any(n < 0 for n in grown.values()) else grown


class ProbeCounts(BaseModel):
    """Everything that one request's evidence says in counts. ``disagreements`` name sources that contradict each other."""

    prompt_tokens: Maybe
    completion_tokens: Maybe
    server_tokens: Maybe
    cache_hit_tokens: Maybe
    prompt_ms: Maybe  # the engine's own time for the prompt
    finish_reason: str
    speculation_reported: bool | None
    reported_types: list[str]
    counters: Counters
    disagreements: list[str]


def _total(value: float | dict[str, float] | None) -> float | None:
    return sum(value.values()) if isinstance(value, dict) else value
