"""Measures a server that somebody else started: asks, reads counters around each load, and sums up."""

from __future__ import annotations

import random
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from speccore.engines import MetricsPair, llamacpp, vllm_counts
from speccore.errors import ProbeFailed, SpecError
from speccore.measure import measure_probe
from speccore.measurement import Maybe, Number, ProbeMeasurement, Source, value_of
from speccore.records import METRICS, StreamRecord, TextRecord
from speccore.spec import Point, Sampling
from speccore.survey import Cell, Settings, Survey, cell_of
from speccore.workload import Item, Workload

from . import __version__
from .asking import Closed, LoadResult, Request
from .health import bottleneck, health_of_records
from .load import records_of, run_load
from .served import Door, NotLetIn, Served, WhichModel

#: Options that make a server count exactly; a server that refuses them is asked without.
_RICH: dict[str, dict[str, Any]] = {
    "llama-server": {"timings_per_token": True, "cache_prompt": False, "return_tokens": True},
    "vllm": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "return_token_ids": True},
    "unknown": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
}
_PLAIN: dict[str, Any] = {"stream_options": {"include_usage": True}}


@dataclass(frozen=True)
class Asked:
    """What shall be measured. ``n`` requests for each workload and concurrency; None: as many as are due."""

    workloads: Sequence[Workload]
    concurrencies: Sequence[int]
    n: int | None = None
    max_tokens: int = 128
    temperature: float = 0.0
    seed: int = 1
    n_warmup: int = 2
    timeout_s: float = 300.0

    def n_of(self, concurrency: int) -> int:
        return self.n if self.n is not None else max(4 * concurrency, 12)


@dataclass
class Surveyed:
    """``survey`` is None if it was stopped before a cell was whole."""

    survey: Survey | None
    records: list[tuple[StreamRecord, TextRecord]] = field(default_factory=list)
    stopped: bool = False


def survey(
    door: Door,
    served: Served,
    asked: Asked,
    stop: threading.Event,
    say: Callable[[str], None] = lambda text: None,
) -> Surveyed:
    """One load after the other. Raises what keeps the server from being measured at all, in words."""
    began_at = datetime.now(UTC)
    surveyor = _Surveyor(door, served, asked, stop)
    say("asking once")
    surveyor.first_ask()
    done = Surveyed(None)
    cells: list[Cell] = []
    for workload in asked.workloads:
        hand = surveyor.deal(workload)
        for concurrency in asked.concurrencies:
            n = asked.n_of(concurrency)
            say(f"{workload.name}, {concurrency} at once, {n} requests")
            cell, records = surveyor.cell(workload, concurrency, hand)
            if stop.is_set():
                done.stopped = True
                break
            cells.append(cell)
            done.records += records
    if cells:
        done.survey = Survey(
            agent_version=__version__,
            began_at=began_at,
            ended_at=datetime.now(UTC),
            server=surveyor.facts(),
            settings=surveyor.settings(),
            cells=cells,
            warnings=surveyor.warnings(cells),
        )
    return done


class _Surveyor:
    def __init__(self, door: Door, served: Served, asked: Asked, stop: threading.Event) -> None:
        self._door, self._served, self._asked, self._stop = door, served, asked, stop
        self._options = _RICH[served.facts.engine]
        self._run = secrets.token_hex(4)
        self._n_asked = self._n_records = 0
        self._repeats = False
        self._types: list[str] | None = served.facts.speculation
        self._notes = list(served.notes)
        self._off = False  # vLLM has counters and none of speculation

    # --- asking ---

    def first_ask(self) -> None:
        """One request, to see that it streams, and with which options. Raises what it finds in words."""
        workload = self._asked.workloads[0]
        for options in (self._options, _PLAIN, {}):
            self._options = options
            result = self._load([self._request(workload, workload.warmup[0], "first", warmup=True)], 1)
            ((record, _),) = records_of(result, self._served.dialect)
            if record.status in (400, 422) and options:
                self._notes.append(f"the server refuses {', '.join(options)}: {record.failure_message[:120]}")
                continue
            break
        self._explain(record)

    def _explain(self, record: StreamRecord) -> None:
        if self._stop.is_set() or not record.failure:
            return
        where = f"{self._door.parts.scheme}://{self._door.parts.netloc}{record.path}"
        if record.status in (401, 403):
            raise NotLetIn(f"{where} answered {record.status}: it wants another key, or one at all")
        if record.status == 404:
            raise WhichModel(f"{where}: {record.failure_message}", remedy="Look at --model and --api; /v1/models lists what is served.")
        if record.status in (400, 422):
            raise SpecError(f"{where}: {record.failure_message}", remedy="Look at --model, --api and --max-tokens.")
        raise ProbeFailed(f"{where}: {record.failure_message}", remedy="Look at the server's log; nothing was measured.")

    def _load(self, requests: Iterable[Request], concurrency: int) -> LoadResult:
        try:
            return run_load(
                self._served.target, requests, Closed(concurrency), timeout_s=self._asked.timeout_s, stall_s=60.0, stop=self._stop
            )
        except OSError as error:
            raise ProbeFailed(f"{self._door.base} can't be reached: {error.strerror or error}", remedy="Look at the address.") from error

    def _request(self, workload: Workload, item: Item, name: str, *, warmup: bool = False) -> Request:
        self._n_asked += 1
        asked, api = self._asked, self._served.facts.api
        prompt = item.prompt if self._cache_is_off() else f"[{self._run}-{self._n_asked}] {item.prompt}"
        seed = random.Random(f"{asked.seed}/{workload.ref}/{item.id}").randrange(2**31)  # noqa: S311  repeatable, not secret
        if api == "llama":
            point = Point(workload=workload.ref, max_tokens=asked.max_tokens, sampling=Sampling(temperature=asked.temperature))
            _, body = llamacpp.request(prompt, point, seed)
        else:
            body = {"max_tokens": asked.max_tokens, "temperature": asked.temperature, "seed": seed, "stream": True}
            body |= {"messages": [{"role": "user", "content": prompt}]} if api == "chat" else {"prompt": prompt}
            body |= {"model": self._served.facts.model} if self._served.facts.model else {}
            body |= self._options
            if self._served.facts.engine == "llama-server":
                body |= _PLAIN
        return Request(
            body=body, probe=name, point=f"{workload.ref}/t{asked.temperature:g}", item=name.split(" ")[-1], seed=seed, warmup=warmup
        )

    def _cache_is_off(self) -> bool:
        return self._served.facts.engine == "llama-server"

    def deal(self, workload: Workload) -> Iterator[Item]:
        """Prompts in a drawn order, none twice until all were asked; then again, under another name."""
        items = list(workload.items)
        random.Random(f"{self._asked.seed}/{workload.ref}").shuffle(items)  # noqa: S311
        yield from items
        turn = 2
        while True:
            self._repeats = True
            yield from (item.model_copy(update={"id": f"{item.id}#{turn}"}) for item in items)
            turn += 1

    # --- one workload at one concurrency ---

    def cell(self, workload: Workload, concurrency: int, hand: Iterator[Item]) -> tuple[Cell, list[tuple[StreamRecord, TextRecord]]]:
        warmups = [
            workload.warmup[i % len(workload.warmup)] for i in range(max(self._asked.n_warmup, concurrency if concurrency > 1 else 0))
        ]
        if self._asked.n_warmup:
            self._load([self._request(workload, item, f"warm-up {item.id}", warmup=True) for item in warmups], concurrency)
        chosen = [next(hand) for _ in range(self._asked.n_of(concurrency))]
        requests = [self._request(workload, item, f"{workload.ref}/c{concurrency} {item.id}") for item in chosen]
        before = self._metrics()
        result = self._load(requests, concurrency)
        after = self._metrics()
        records = records_of(result, self._served.dialect)
        items = {item.id: item for item in chosen}
        probes = [self._measured(record, text, line, items) for line, (record, text) in enumerate(records, start=self._n_records + 1)]
        self._n_records += len(records)
        span = max(e.closed_at for e in result.exchanges) - min(e.sent_at for e in result.exchanges) if result.exchanges else 0.0
        health = health_of_records([record for record, _ in records], measured=result.health)
        counted, by_position = self._counted(before, after, probes, concurrency)
        return (
            cell_of(
                workload.ref,
                concurrency,
                probes,
                health,
                span,
                counted=counted,
                by_position=by_position,
                doubt=bottleneck(health),
            ),
            records,
        )

    def _measured(self, record: StreamRecord, text: TextRecord, line: int, items: Mapping[str, Item]) -> ProbeMeasurement:
        counter = vllm_counts if self._served.facts.engine == "vllm" else llamacpp
        counts = counter.probe_counts(record, line, off=False, metrics=None, log=None)
        if counts.reported_types or counts.speculation_reported is False:
            self._types = counts.reported_types
        return measure_probe(record, line, counts, items.get(record.item), text, "")

    def _metrics(self) -> str:
        if not self._served.metrics_url:
            return ""
        answer = self._door.get(self._served.metrics_url)
        return answer.text if answer.is_success else ""

    def _counted(
        self, before: str, after: str, probes: Sequence[ProbeMeasurement], concurrency: int
    ) -> tuple[dict[str, Maybe], list[float] | None]:
        """What the engine's own counters say of the load, where nobody else asked it meanwhile."""
        if not before or not after:
            return {}, None
        if self._served.facts.engine == "llama-server":
            pair = MetricsPair(before=llamacpp.parse_metrics(before), after=llamacpp.parse_metrics(after), line=1)
            return self._of_llama(pair, probes), None
        if self._served.facts.engine == "vllm":
            return self._of_vllm(vllm_counts.growth(vllm_counts.totals(before), vllm_counts.totals(after)), probes)
        return {}, None

    def _of_llama(self, pair: MetricsPair, probes: Sequence[ProbeMeasurement]) -> dict[str, Maybe]:
        """The requests bring their own counts; the counters around them must agree."""
        ours = sum(n for p in probes if (n := value_of(p.server_tokens)) is not None)
        theirs = pair.growth("llamacpp:tokens_predicted_total")
        if theirs is not None and theirs != ours:
            self._note(
                f"the server made {theirs:g} tokens meanwhile, our requests {ours:g}: somebody else asks it too, or a request failed"
            )
        return {}

    def _of_vllm(self, grown: vllm_counts.Totals, probes: Sequence[ProbeMeasurement]) -> tuple[dict[str, Maybe], list[float] | None]:
        tokens = [value_of(p.server_tokens) for p in probes if p.ok]
        if grown.generated is not None and None not in tokens and sum(t for t in tokens if t) != grown.generated:
            said = f"the server made {grown.generated:g} tokens meanwhile, our requests {sum(t for t in tokens if t):g}"
            self._note(f"{said}: somebody else asks it too, or a request failed; its counters are left out")
            return {}, None
        if grown.drafts is None or grown.drafted is None or grown.accepted is None:
            self._off = True
            return {}, None
        found: dict[str, Maybe] = {}
        if grown.drafted:
            found["acceptance_rate"] = _from_metrics(grown.accepted / grown.drafted, "accepted ÷ drafted, growth of both")
        if grown.drafts:
            found["mean_acceptance_length"] = _from_metrics(1 + grown.accepted / grown.drafts, "1 + accepted ÷ drafts, growth of both")
            found["drafted_per_cycle"] = _from_metrics(grown.drafted / grown.drafts, "drafted ÷ drafts, growth of both")
        positions = grown.accepted_by_position
        return found, [n / grown.drafts for n in positions] if positions and grown.drafts else None

    # --- what is told beside the numbers ---

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def facts(self) -> Any:
        return self._served.facts.model_copy(update={"speculation": self._types})

    def settings(self) -> Settings:
        asked = self._asked
        return Settings(
            workloads={w.ref: w.content_hash() for w in asked.workloads},
            api=self._served.facts.api,
            model=self._served.facts.model,
            max_tokens=asked.max_tokens,
            temperature=asked.temperature,
            seed=asked.seed,
            salt="cache off" if self._cache_is_off() else "text",
            n_warmup=asked.n_warmup,
        )

    def warnings(self, cells: Sequence[Cell]) -> list[str]:
        found = list(self._notes)
        drafts = any(isinstance(c.pooled["acceptance_rate"], Number) for c in cells)
        if self._types == []:
            found.append("speculation seems off: the server says that it uses none")
        elif self._off:
            found.append("speculation seems off: vLLM has no counters for it")
        elif self._types is None and not drafts:
            known = self._served.facts.engine == "llama-server"
            found.append(
                "speculation seems off: no answer tells of a draft"
                if known
                else "whether speculation is on can't be told: the server doesn't say, and counts no drafts"
            )
        if self._repeats:
            found.append("there were fewer prompts than requests, so that some came twice: drafters that learn find them again; lower --n")
        return found


def _from_metrics(value: float, field: str) -> Number:
    return Number(value=value, source=Source(file=METRICS, field=field))
