"""A server that somebody else started, measured as it is: medians with spread, what could not be had and why, and two such side by side.

A survey is no experiment: nothing is started anew and nothing is interleaved, so it ends in no verdict.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from .derive import Pooled, positions_numbers, speculation_numbers
from .errors import SpecError
from .inventory import Peer
from .measure import equal_work_s
from .measurement import Maybe, Number, ProbeMeasurement, Withheld, value_of
from .metrics import METRICS
from .protocol import Moment
from .records import ClientHealth

VERSION = 1

#: Read from each request, and shown as a median with its spread.
BY_REQUEST = (
    "ttft_any_s",
    "ttft_content_s",
    "decode_tokens_per_s",
    "token_latency_ms",
    "chunk_gap_ms_p50",
    "e2e_s",
    "completion_tokens",
    "prompt_tokens",
    "cache_hit_tokens",
)
#: Computed over all requests of a cell.
POOLED = (
    "acceptance_rate",
    "mean_acceptance_length",
    "tokens_per_target_pass",
    "drafted_per_cycle",
    "acceptance_rate_by_request",
    "cycle_ms",
)
WINDOW_SPEED = "window_tokens_per_s"
WINDOW_SPEED_MEANS = "Tokens of all answers ÷ seconds from the first request to the end of the last."
#: A first drafted token that is taken less often than this comes from a drafter that guesses.
DEAD_BELOW = 0.05
#: Of the concurrency asked for, the share that must have been in flight.
LEAST_OBSERVED = 0.95

_RESAMPLES = 2000


class Spread(Peer):
    """Over the requests that have the number; quartiles by linear interpolation."""

    median: float
    low: float  # quartiles
    high: float
    least: float
    most: float
    n: int


class Cell(Peer):
    """One workload at one concurrency. ``values``: each request's number by its item, for comparing."""

    workload: str
    concurrency: int
    n: int
    n_ok: int
    failures: dict[str, int] = {}  # what went wrong: how often
    numbers: dict[str, Spread | Withheld]
    pooled: dict[str, Maybe]
    accepted_by_position: list[float] | Withheld
    values: dict[str, dict[str, float]] = {}
    n_first: dict[str, int] = {}  # tokens of the first chunk, by item
    client: ClientHealth
    warnings: list[str] = []


class ServerFacts(Peer):
    url: str
    engine: Literal["llama-server", "vllm", "unknown"]
    api: Literal["llama", "chat", "completions"]
    version: str = ""
    model: str = ""
    slots: int | None = None
    context: int | None = None  # tokens per slot
    speculation: list[str] | None = None  # types, as the server says; None: it doesn't


class Settings(Peer):
    """What must be equal where two surveys are compared."""

    workloads: dict[str, str]  # reference: content hash
    api: str
    model: str
    max_tokens: int
    temperature: float
    seed: int
    salt: Literal["cache off", "text"]
    n_warmup: int


class Survey(Peer):
    kind: Literal["specweb-survey"] = "specweb-survey"
    version: int = VERSION
    agent_version: str
    began_at: Moment
    ended_at: Moment
    server: ServerFacts
    settings: Settings
    cells: list[Cell]
    warnings: list[str] = []
    definitions: dict[str, str] = Field(default_factory=lambda: definitions())


def definitions() -> dict[str, str]:
    """Metric: its definition's id and version, and what it says."""
    found = {m: f"{METRICS[m].definition_id}: {METRICS[m].definition}" for m in (*BY_REQUEST, *POOLED, "accepted_by_position")}
    return found | {WINDOW_SPEED: WINDOW_SPEED_MEANS}


def spread(values: Sequence[float]) -> Spread:
    """Raises ValueError without values."""
    if not values:
        raise ValueError("no values have no spread")
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(median=middle, low=low, high=high, least=min(values), most=max(values), n=len(values))


def cell_of(
    workload: str,
    concurrency: int,
    probes: Sequence[ProbeMeasurement],
    client: ClientHealth,
    window_s: float,
    *,
    counted: Mapping[str, Maybe] | None = None,
    by_position: list[float] | None = None,
    doubt: str = "",
) -> Cell:
    """Sums a cell up. ``counted``: numbers from the engine's own counters around it, where requests don't bring their own.

    ``doubt``: in words, if the client could not keep up.
    """
    good = [p for p in probes if p.ok]
    values: dict[str, dict[str, float]] = {}
    numbers: dict[str, Spread | Withheld] = {}
    for metric in BY_REQUEST:
        each = {p.item: getattr(p, metric) for p in good}
        known = {item: n.value for item, n in each.items() if isinstance(n, Number)}
        if known:
            values[metric], numbers[metric] = known, spread(list(known.values()))
        else:
            numbers[metric] = next((n for n in each.values() if isinstance(n, Withheld)), _nothing_answered(probes))
    pool = Pooled(workload, f"{workload}/c{concurrency}", good, [1])
    numbers[WINDOW_SPEED] = _window_speed(good, window_s)
    pooled = speculation_numbers(pool) | {
        "cycle_ms": pool.ratio("eval_ms", "decode_steps", "Σ eval_ms ÷ Σ decode_steps", "no step was counted")
    }
    positions = positions_numbers(pool)["accepted_by_position"]
    for metric, number in (counted or {}).items():
        if isinstance(pooled.get(metric), Withheld):
            pooled[metric] = number
    if isinstance(positions, Withheld) and by_position:
        positions = by_position
    failures: dict[str, int] = {}
    for p in probes:
        if not p.ok:
            said = f"{p.failure}: {p.failure_message}"[:200]
            failures[said] = failures.get(said, 0) + 1
    return Cell(
        workload=workload,
        concurrency=concurrency,
        n=len(probes),
        n_ok=len(good),
        failures=failures,
        numbers=numbers,
        pooled=pooled,
        accepted_by_position=positions,
        values=values,
        n_first={p.item: p.n_first for p in good},
        client=client,
        warnings=[*filter(None, (doubt, _too_few_at_once(client, concurrency))), *_drafter_warnings(good, pooled, positions)],
    )


def _window_speed(good: Sequence[ProbeMeasurement], window_s: float) -> Spread | Withheld:
    tokens = [n for p in good if (n := value_of(p.completion_tokens)) is not None or (n := value_of(p.server_tokens)) is not None]
    if len(tokens) < len(good) or not tokens or window_s <= 0:
        return Withheld(withheld="not every answer's tokens are known", reason_code="no_client_count")
    return spread([sum(tokens) / window_s])


def _nothing_answered(probes: Sequence[ProbeMeasurement]) -> Withheld:
    said = probes[0].failure_message if probes else "nothing was asked"
    return Withheld(withheld=f"no request was answered: {said}"[:300], reason_code="no_probes")


def _too_few_at_once(client: ClientHealth, concurrency: int) -> str:
    observed = client.observed_concurrency
    if observed is None or observed >= LEAST_OBSERVED * concurrency:
        return ""
    return f"{observed:.2f} requests were in flight on average, asked for were {concurrency}"


def _drafter_warnings(good: Sequence[ProbeMeasurement], pooled: Mapping[str, Maybe], positions: list[float] | Withheld) -> list[str]:
    drafted = [n for p in good if (n := value_of(p.counters.drafted)) is not None]
    if drafted and not sum(drafted):
        return ["speculation is on, and nothing was drafted"]
    rate = value_of(pooled["acceptance_rate"])
    first = positions[0] if isinstance(positions, list) and positions else rate
    if first is not None and rate is not None and first < DEAD_BELOW:
        return [f"the drafter seems dead: its first token is taken {100 * first:.1f} % of the time"]
    return []


def missing(cells: Sequence[Cell]) -> dict[str, str]:
    """What could not be had in any cell: metric → why."""
    found: dict[str, str] = {}
    for metric in (*BY_REQUEST, WINDOW_SPEED, *POOLED, "accepted_by_position"):
        got = [c.accepted_by_position if metric == "accepted_by_position" else c.numbers.get(metric) or c.pooled.get(metric) for c in cells]
        if got and all(isinstance(n, Withheld) for n in got):
            found[metric] = next(n.withheld for n in got if isinstance(n, Withheld))
    return found


# --- two surveys side by side ---

COMPARED = ("equal_work_s", "decode_tokens_per_s", "ttft_any_s")
_MORE_IS_BETTER = frozenset({"decode_tokens_per_s"})
NO_VERDICT = (
    "This is no verdict. The two were measured one after the other and not in turns, and nothing was started anew between requests: "
    "heat, other users, caches and drift can make such a difference by themselves. For a verdict: specweb-agent run."
)


class Ratio(Peer):
    """B's median against A's over the same prompts; above 1 means that B is faster. The interval is a bootstrap over prompts."""

    metric: str
    a: float
    b: float
    ratio: float
    low: float
    high: float
    n: int


class ComparedCell(Peer):
    workload: str
    concurrency: int
    ratios: list[Ratio]
    notes: list[str] = []


class SurveysDiffer(SpecError):
    code = "surveys_differ"
    remedy = "Measure both with the same options."


def compare_surveys(a: Survey, b: Survey) -> list[ComparedCell]:
    """Cell by cell. Raises :class:`SurveysDiffer` that names every setting in which they differ."""
    differing = [
        f"{name}: {_short(x)} and {_short(y)}" for name, x in a.settings.model_dump().items() if (y := b.settings.model_dump()[name]) != x
    ]
    if differing:
        raise SurveysDiffer("these can't be compared, since they differ in " + "; ".join(differing), settings=differing)
    of_b = {(c.workload, c.concurrency): c for c in b.cells}
    shared = [(c, of_b[key]) for c in a.cells if (key := (c.workload, c.concurrency)) in of_b]
    if not shared:
        raise SurveysDiffer(f"no concurrency is in both: {_levels(a)} and {_levels(b)}")
    return [_compared(x, y) for x, y in shared]


def _compared(a: Cell, b: Cell) -> ComparedCell:
    ratios, notes = [], []
    for metric in COMPARED:
        pairs = _equal_work(a, b) if metric == "equal_work_s" else _pairs(a.values.get(metric, {}), b.values.get(metric, {}))
        if len(pairs) < 3:
            notes.append(f"{METRICS[metric].name}: {len(pairs)} prompts have it in both, 3 are needed")
        else:
            ratios.append(_ratio(metric, pairs, metric in _MORE_IS_BETTER))
    dropped = a.n - a.n_ok + b.n - b.n_ok
    if dropped:
        notes.append(f"{dropped} requests failed and are left out")
    notes += [f"{side}: {warning}" for side, cell in (("A", a), ("B", b)) for warning in cell.warnings]
    return ComparedCell(workload=a.workload, concurrency=a.concurrency, ratios=ratios, notes=notes)


def _pairs(a: Mapping[str, float], b: Mapping[str, float]) -> list[tuple[float, float]]:
    return [(value, b[item]) for item, value in a.items() if item in b and value > 0 and b[item] > 0]


def _equal_work(a: Cell, b: Cell) -> list[tuple[float, float]]:
    """Seconds for an answer as long as A's, by each one's own pace."""
    found = []
    for item, length in a.values.get("completion_tokens", {}).items():
        sides = []
        for cell in (a, b):
            ttft, pace = (cell.values.get(m, {}).get(item) for m in ("ttft_any_s", "decode_tokens_per_s"))
            if ttft is None or pace is None or pace <= 0 or item not in cell.n_first:
                break
            sides.append(equal_work_s(ttft, cell.n_first[item], pace, length))
        if len(sides) == 2:
            found.append((sides[0], sides[1]))
    return found


def _ratio(metric: str, pairs: Sequence[tuple[float, float]], more_is_better: bool) -> Ratio:
    draw = random.Random(metric)  # noqa: S311  repeatable, not secret

    def of(sample: Sequence[tuple[float, float]]) -> float:
        a, b = statistics.median(p[0] for p in sample), statistics.median(p[1] for p in sample)
        return b / a if more_is_better else a / b

    drawn = sorted(of(draw.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    tail = math.floor(0.025 * _RESAMPLES)
    return Ratio(
        metric=metric,
        a=statistics.median(p[0] for p in pairs),
        b=statistics.median(p[1] for p in pairs),
        ratio=of(pairs),
        low=drawn[tail],
        high=drawn[-tail - 1],
        n=len(pairs),
    )


def _levels(survey: Survey) -> str:
    return ", ".join(f"{c.workload} at {c.concurrency}" for c in survey.cells) or "nothing"


def _short(value: Any) -> str:
    return ", ".join(f"{k} {str(v)[:12]}" for k, v in value.items()) if isinstance(value, dict) else str(value)
