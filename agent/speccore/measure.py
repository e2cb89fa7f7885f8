"""An attempt's evidence → its measurement. Missing evidence gives withheld numbers with their reason, never a crash or a zero."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeVar

from pydantic import ValidationError

from . import attached, engagement, host_series, openloop, settled, window
from .answer_checks import judge_answer
from .canonical import canonical_json
from .dealing import settlings
from .engines import LogRequest, MetricsPair, ProbeCounts, engine
from .fit import Fit
from .inventory import Peer
from .measurement import AttemptMeasurement, Maybe, Number, ProbeMeasurement, Source, Withheld, value_of
from .records import (
    ATTEMPT,
    CONTINUATIONS,
    FIT,
    LAUNCH,
    LOG,
    MANIFEST,
    METRICS,
    RECORDS,
    SAMPLES,
    SECOND_LOOK,
    TEXTS,
    AttemptSummary,
    Launch,
    Manifest,
    MetricsSnapshot,
    Sample,
    StreamRecord,
    TextRecord,
)
from .spec import BASELINE_MODE, ExperimentSpec
from .tasks import check_of, rests
from .thinking import first_content, told_apart
from .times import possible, probe_times
from .workload import Item, Workload

_Model = TypeVar("_Model", bound=Peer)


def equal_work_s(ttft_any_s: float, n_first: int, tokens_per_s: float, length: float) -> float:
    """Seconds for an answer of ``length`` tokens at this probe's pace: ttft_any_s + (length − n_first) ÷ tokens_per_s."""
    if tokens_per_s <= 0:
        raise ValueError(f"tokens_per_s is {tokens_per_s}; a pace is above 0")
    return ttft_any_s + max(length - n_first, 0) / tokens_per_s


def measure_attempt(files: Mapping[str, bytes], spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> AttemptMeasurement:
    """``files``: the uncompressed evidence by name; ``workloads`` by the name that points use."""
    evidence = _Evidence(files)
    module = engine(spec.runtime.engine)
    summary = evidence.one(ATTEMPT, AttemptSummary)
    launch = evidence.one(LAUNCH, Launch)
    manifest = evidence.one(MANIFEST, Manifest)
    log_text = evidence.text(LOG)
    arm = summary.arm if summary else ""
    mode = next((a.mode for a in spec.arms if a.name == arm), "")
    also = next((a.also for a in spec.arms if a.name == arm), [])
    if not mode:
        evidence.problems.append(f"arm {arm!r} is not in the experiment")
    records = evidence.lines(RECORDS, StreamRecord)
    probes, types, disagreements = _probes(evidence, records, module, spec, workloads, log_text, mode)
    log = module.parse_log(log_text)
    engaged, why = engagement.engagement(module.SPEC_TYPES, mode, probes, engagement.reported_types(types, log), log, also=also)
    sampled = evidence.lines(SAMPLES, Sample)
    samples = [(line, s) for line, s in sampled if s.phase == host_series.PROBING]
    cpu = [s.cpu_percent for _, s in samples if s.cpu_percent is not None]
    clocks = [s.clock_mhz for _, s in samples if s.clock_mhz is not None]
    heat = [s.temperature_c for _, s in samples if s.temperature_c is not None]
    context, slots = module.context_and_slots(launch.props) if launch else (None, None)
    standing = launch is not None and launch.kind == "attached"
    return AttemptMeasurement(
        attempt_id=summary.attempt_id if summary else "",
        trial=summary.trial if summary else "",
        arm=arm,
        mode=mode,
        block=summary.block if summary else 0,
        probes=probes,
        log=log,
        engaged=engaged,
        engaged_why=why,
        peak_memory_bytes=_not_ours() if standing else _peak_memory(samples, log.devices),
        peak_device_bytes=_peak_device(samples),
        memory_after_load_bytes=host_series.after_load(sampled, log),
        memory_growth_bytes_per_min=host_series.growth_per_min(samples, log),
        energy_j_per_1k_tokens=host_series.energy_per_1k_tokens(samples, probes),
        fit=evidence.one(FIT, Fit) if FIT in files else None,
        host=host_series.host_facts(sampled, log, spec.engine.gpu_layers),
        context_per_slot=_count(context) or log.context_per_slot,
        slots=_count(slots) or log.n_slots,
        healthy_after_s=launch.healthy_after_s if launch else None,
        n_late_events=summary.client_late_events if summary else 0,
        n_events=summary.client_events if summary else 0,
        cpu_percent_mean=sum(cpu) / len(cpu) if cpu else None,
        clock_mhz=(min(clocks), max(clocks)) if clocks else None,
        temperature_c=max(heat) if heat else None,
        problems=evidence.problems,
        disagreements=disagreements,
        not_restarted=standing,
        loads=[*window.loads(spec, records), *openloop.loads(spec, records)],
        settlings=settlings(spec, workloads, [r for _, r in records]),
        pair_fields=_pair_fields(module, spec, workloads, launch, manifest) | settled.pair_fields(log, spec.engine),
    )


def _count(value: object) -> int | None:
    """As an engine may say it of itself; what is none is as if it had not been said."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None


class _Evidence:
    """The files of an attempt, decoded; what is missing or broken is noted once in ``problems``."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.problems: list[str] = []

    def text(self, name: str) -> str:
        if name not in self.files:
            self.problems.append(f"{name} is missing")
        return self.files.get(name, b"").decode("utf-8", errors="replace")

    def n_lines(self, name: str) -> int:
        """0 for a file that not every attempt has."""
        return sum(bool(line.strip()) for line in self.files.get(name, b"").split(b"\n"))

    def one(self, name: str, model: type[_Model]) -> _Model | None:
        text = self.text(name)
        return self._decode(name, None, text, model) if text else None

    def lines(self, name: str, model: type[_Model]) -> list[tuple[int, _Model]]:
        """(line from 1, value) of each line that can be read."""
        numbered = [(n, line) for n, line in enumerate(self.text(name).split("\n"), 1) if line.strip()]
        decoded = [(n, self._decode(name, n, line, model)) for n, line in numbered]
        return [(n, value) for n, value in decoded if value is not None]

    def _decode(self, name: str, line: int | None, text: str, model: type[_Model]) -> _Model | None:
        try:
            return model.model_validate_json(text)
        except ValidationError as error:
            where = f"{name} line {line}" if line else name
            first = error.errors(include_url=False, include_input=False)[0]
            self.problems.append(f"{where} can't be read: {'.'.join(map(str, first['loc']))} {first['msg']}".strip())
            return None


def _probes(
    evidence: _Evidence,
    records: Sequence[tuple[int, StreamRecord]],
    module: ModuleType,
    spec: ExperimentSpec,
    workloads: Mapping[str, Workload],
    log_text: str,
    mode: str,
) -> tuple[list[ProbeMeasurement], set[str] | None, list[str]]:
    """The probes in order, the speculation types that the server reported in any answer (None: it never said), and where
    requests that ran together don't add up."""
    texts = {t.probe: t for _, t in evidence.lines(TEXTS, TextRecord)}
    scraped = evidence.lines(METRICS, MetricsSnapshot)
    snapshots = _metrics_pairs(module, scraped, [r for _, r in records])
    together = {p.key for p in spec.points if not p.one_by_one}
    logged = _logged(_timed(module.log_requests(log_text), evidence), [r for _, r in records], together)
    probes: list[ProbeMeasurement] = []
    counted: list[tuple[StreamRecord, ProbeCounts]] = []
    between = rests(r for _, r in records)
    types: set[str] | None = None
    for line, record in records:
        alone = record.point not in together
        counts: ProbeCounts = module.probe_counts(
            record,
            line,
            off=mode == BASELINE_MODE,
            metrics=snapshots.get(record.probe) if alone else None,
            log=logged.get(record.probe) if alone else None,
        )
        if counts.reported_types or counts.speculation_reported is False:
            types = (types or set()) | set(counts.reported_types)
        counted.append((record, counts))
        probe = measure_probe(record, line, counts, _item(spec, workloads, record), texts.get(record.probe), mode)
        probes.append(probe if record.turn is None else probe.model_copy(update={"rest_s": between.get(record.probe)}))
    return probes, types, _together(module, scraped, counted)


def _together(
    module: ModuleType, snapshots: Sequence[tuple[int, MetricsSnapshot]], counted: Sequence[tuple[StreamRecord, ProbeCounts]]
) -> list[str]:
    """Disagreements over each window that /metrics was read around, for no request by name. A request that failed, or that
    ran across an end of the window, spoils the sum."""
    found: list[str] = []
    before: tuple[int, MetricsSnapshot] | None = None
    for line, snapshot in snapshots:
        if snapshot.probe or snapshot.status != 200:
            continue
        if snapshot.when == "after" and before is not None:
            began, ended = before[1].at_s, snapshot.at_s
            met = [(r, c) for r, c in counted if r.closed_at_s > began and r.sent_at_s < ended]
            if met and all(r.sent_at_s >= began and r.closed_at_s <= ended and r.status == 200 and not r.failure for r, _ in met):
                texts = module.parse_metrics(before[1].text), module.parse_metrics(snapshot.text)
                pair = MetricsPair(before=texts[0], after=texts[1], line=line)
                found += module.window_disagreements([c for _, c in met], pair)
        before = (line, snapshot) if snapshot.when == "before" else None
    return found


def _item(spec: ExperimentSpec, workloads: Mapping[str, Workload], record: StreamRecord) -> Item | None:
    name = next((p.workload for p in spec.points if p.key == record.point), "")
    workload = workloads.get(name)
    if workload is None:
        return None
    return next((i for i in (workload.warmup if record.warmup and not record.ahead else workload.items) if i.id == record.item), None)


def _metrics_pairs(
    module: ModuleType, snapshots: Sequence[tuple[int, MetricsSnapshot]], records: Sequence[StreamRecord]
) -> dict[str, MetricsPair]:
    """The /metrics before and after each request that has both."""
    ends: dict[tuple[str, str], tuple[int, MetricsSnapshot]] = {
        (s.probe, s.when): (line, s) for line, s in snapshots if s.status == 200 and s.probe
    }
    pairs = {}
    for record in records:
        before, after = ends.get((record.probe, "before")), ends.get((record.probe, "after"))
        if before and after:
            pairs[record.probe] = MetricsPair(
                before=module.parse_metrics(before[1].text), after=module.parse_metrics(after[1].text), line=after[0]
            )
    return pairs


def _timed(requests: list[LogRequest], evidence: _Evidence) -> list[LogRequest]:
    """Without those that were asked after the timed part, for what they answer: they have no record, and come last in the log."""
    n_after = sum(evidence.n_lines(name) for name in (SECOND_LOOK, CONTINUATIONS))
    return requests[: len(requests) - n_after] if n_after <= len(requests) else []


def _logged(requests: list[LogRequest], records: Sequence[StreamRecord], together: Collection[str] = ()) -> dict[str, LogRequest]:
    """The log's lines for each answered request, matched by order. One that can't be placed makes all of them doubtful.

    Requests of the points ``together`` end in an order of their own, among themselves.
    """
    answered = [r for r in records if r.final]
    if len(requests) != len(answered):
        return {}
    for request, record in zip(requests, answered, strict=True):
        timings = record.final.get("timings")
        evaluated = timings.get("prompt_n") if isinstance(timings, dict) else None
        if record.point not in together and evaluated is not None and evaluated != request.prompt_tokens:
            return {}
    return {record.probe: request for request, record in zip(requests, answered, strict=True)}


def measure_probe(
    record: StreamRecord, line: int, counts: ProbeCounts, item: Item | None, text: TextRecord | None, mode: str
) -> ProbeMeasurement:
    """One request's numbers. ``line`` is the record's in its file; ``mode`` '' where nobody said what the server does."""
    failure, message = _failure(record, counts, mode)
    texts = text.texts if text else None
    record = told_apart(record, texts)
    times = possible(probe_times(record, line), value_of(counts.prompt_ms), value_of(counts.counters.eval_ms))
    passed, note = _check(item, record, text, counts.finish_reason) if not failure else (None, "not judged: the request failed")
    return ProbeMeasurement(
        probe=record.probe,
        point=record.point,
        item=record.item,
        warmup=record.warmup,
        ok=not failure,
        failure=failure,
        failure_message=message,
        line=line,
        status=record.status,
        finish_reason=counts.finish_reason,
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        server_tokens=counts.server_tokens,
        cache_hit_tokens=counts.cache_hit_tokens,
        prompt_ms=counts.prompt_ms,
        n_events=len(record.events),
        **vars(times) | {"ttft_content_s": first_content(times.ttft_content_s, record, texts)},
        speculation_reported=counts.speculation_reported,
        counters=counts.counters,
        ids_sha256=record.ids_sha256,
        check_passed=passed,
        check_note=note,
        turn=record.turn,
        n_turns=record.n_turns,
        waited_s=record.waited_s,
    )


def _failure(record: StreamRecord, counts: ProbeCounts, mode: str) -> tuple[str, str]:
    if record.failure:
        return record.failure, record.failure_message
    if record.status != 200:
        return "probe_failed", f"the server answered with status {record.status}"
    if record.final.get("truncated"):
        return "probe_failed", "the context was full: the engine cut the prompt or the answer"
    if counts.disagreements:
        return "counts_disagree", "; ".join(counts.disagreements)
    if mode == BASELINE_MODE and counts.speculation_reported:
        which = ", ".join(counts.reported_types) or "on"
        return "engine_loaded_other", f"mode is off, yet the server reports speculation: {which}"
    return "", ""


def _check(item: Item | None, record: StreamRecord, text: TextRecord | None, finish_reason: str) -> tuple[bool | None, str]:
    check, prompt = check_of(item, record.turn) if item else (None, "")
    if check is None:
        return None, ""
    if text is None:
        return None, f"not judged: the answer's text is not in {TEXTS}"
    said = "".join(said for event, said in zip(record.events, text.texts) if event.kind != "reasoning")  # a thought is no answer
    judged = judge_answer(check, prompt, said, cut=finish_reason == "length")
    return judged.passed, judged.note


def _not_ours() -> Withheld:
    return Withheld(withheld="missing: the memory of a server that somebody else started is not sampled", reason_code="attached")


def _peak_memory(samples: Sequence[tuple[int, Sample]], devices: Sequence[str]) -> Maybe:
    """Peak of host and device memory together. One kind of host figure throughout: PSS where it was read, else RSS of all samples.

    ``devices``: on which the engine says that it holds buffers. Without their memory there is no sum.
    """
    if samples and devices and not any(s.device_bytes for _, s in samples):
        said = f"the engine holds memory on {', '.join(devices)}, which could not be sampled"
        return Withheld(withheld=said, reason_code="device_not_sampled")
    for kind in ("pss_bytes", "rss_bytes"):
        values = [(line, getattr(s, kind), sum(s.device_bytes.values())) for line, s in samples if s.device_bytes or not devices]
        if kind == "pss_bytes":
            values = [v for v in values if v[1] is not None]
        if values and all(host is not None for _, host, _ in values):
            line, host, device = max(values, key=lambda v: v[1] + v[2])
            return Number(value=host + device, source=Source(file=SAMPLES, line=line, field=f"{kind} + device_bytes, peak while probing"))
    return Withheld(
        withheld="no memory sample was taken while probing" if not samples else "a sample lacks the memory of the engine",
        reason_code="no_samples",
    )


def _peak_device(samples: Sequence[tuple[int, Sample]]) -> Maybe:
    values = [(line, sum(s.device_bytes.values())) for line, s in samples if s.device_bytes]
    if not values:
        return Withheld(withheld="no device's memory was sampled while probing", reason_code="no_samples")
    line, device = max(values, key=lambda v: v[1])
    return Number(value=device, source=Source(file=SAMPLES, line=line, field="device_bytes, peak while probing"))


def _pair_fields(
    module: ModuleType, spec: ExperimentSpec, workloads: Mapping[str, Workload], launch: Launch | None, manifest: Manifest | None
) -> dict[str, str]:
    """What must be equal inside a ratio: everything but speculation. A part without evidence is left out.

    A trial of some of the points names only their workloads; the others are filled in from the experiment, so that it can
    be paired with a trial of all points.
    """
    settings: dict[str, Any] = spec.engine.model_dump(mode="json")
    fields = {"engine": spec.runtime.engine, "engine_settings": canonical_json(settings).decode()}
    fields |= {f"workload:{p.workload}": workloads[p.workload].content_hash() for p in spec.points if p.workload in workloads}
    if manifest:
        fields |= {
            "boot_id": manifest.boot_id,
            "os": canonical_json(manifest.os).decode(),
            "runtime_hash": manifest.runtime_hash,
            "runtime_version": manifest.runtime_version,
            "target_hash": manifest.target_hash,
            "agent_version": manifest.agent_version,
            "inventory_hash": manifest.inventory_hash,
        }
        fields |= {f"workload:{name}": content for name, content in sorted(manifest.workloads.items())}
    if launch and launch.kind == "attached":
        fields |= attached.pair_fields(module, launch.props)
    elif launch:
        fields |= {
            "command": json.dumps(module.without_speculation(launch.argv), ensure_ascii=False),
            "environment": canonical_json(launch.env).decode(),
        }
    return fields
