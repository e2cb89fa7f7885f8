"""A finished experiment for the pages: made-up streams, taken through the real services from submission to analysis."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from speccore import workloads
from speccore.engines import engine
from speccore.engines.llamacpp import DEFAULT_ALLOWED_FLAGS
from speccore.errors import EngineOutOfMemory, ErrorBody
from speccore.inventory import BlockShape, Device, HostInventory, MemoryShape, ModelInfo, RuntimeInfo
from speccore.jobstate import JobState
from speccore.protocol import AttemptReport, EvidenceRef, JobPlan, TrialPlan
from speccore.records import (
    AttemptSummary,
    Continuation,
    Launch,
    Manifest,
    MetricsSnapshot,
    Sample,
    SecondLook,
    StreamEvent,
    StreamRecord,
    TextRecord,
)
from speccore.sampling_plan import draws
from speccore.spec import Arm, ExperimentSpec, parse_spec
from speccore.untimed import untimed

from specweb.accounts.models import Membership, Role, Team, User
from specweb.experiments.models import Experiment, Host, Job, Lease, Visibility
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_host, store_inventory
from specweb.experiments.services.jobs import claim_next_job, move_job
from specweb.experiments.services.submission import seed_workload, submit
from specweb.results.models import Attempt
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from specweb.results.services.reports import create_trials, report_attempt
from specweb.results.store import store_blob
from tests.remembered import remembered

LOGS = Path(__file__).parent.parent / "logs" / "llamacpp"
START = datetime(2026, 11, 29, 5, 20, tzinfo=UTC)
NASTY = "<script>alert(1)</script><b>bold</b>"
PLAIN_STEP_MS = 16.0

#: arm → ms of one cycle, workload → probability that a drafted token is accepted
CYCLE_MS = {"draft": lambda limit: 17.0 + 1.5 * limit, "ngram-simple": lambda limit: 16.6}
LIKELY = {"count": 0.97, "python-code": 0.6, "free-text": 0.3}


@dataclass
class People:
    """``owner`` and ``mate`` share a team; ``stranger`` has another."""

    owner: User
    mate: User
    stranger: User
    team: Team
    other: Team


@remembered
def people(password: str | None = None) -> People:
    team, other = Team.objects.create(slug="ours", name="Our team"), Team.objects.create(slug="theirs", name="Their team")
    users = [User.objects.create_user(name, password=password) for name in ("owner", "mate", "stranger")]
    for user, role, where in zip(users, (Role.MAINTAINER, Role.VIEWER, Role.MAINTAINER), (team, team, other), strict=True):
        Membership.objects.create(user=user, team=where, role=role)
    return People(*users, team, other)


def spec(**changes: object) -> ExperimentSpec:
    data = {
        "name": "Demo pair",
        "question": "Does a 0.3 M draft pay for the 3 M demo target on two Xeon cores?",
        "target": {"model": "demo-target"},
        "engine": {"context": 2048},
        "arms": [
            {"name": "off", "mode": "off"},
            {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3},
            {"name": "draft-8", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 8},
            {"name": "ngram-simple", "mode": "ngram-simple"},
        ],
        "points": [
            {"workload": "count", "max_tokens": 64},
            {"workload": "python-code", "max_tokens": 64, "sampling": {"temperature": 0.1}},
            {"workload": "free-text", "max_tokens": 64, "sampling": {"temperature": 0.8}},
        ],
        "blocks": 5,
        "warmup": {"mode": "fixed"},
    } | changes
    parsed, problems = parse_spec(data)
    assert parsed is not None, problems
    return parsed


def _shape(n: int, weights: int, width: int) -> MemoryShape:
    """Of ``n`` equal blocks with as many values to a token as the model is wide."""
    blocks = [BlockShape(weights=weights, k=width, v=width)] * n
    return MemoryShape(blocks=blocks, embedding_bytes=2048 * width, other_bytes=1024, tied=True, width=width, feed_forward=3 * width)


def host_with_inventory(team: Team, name: str = "xeon") -> Host:
    host, _ = create_host(team, name)
    capabilities = engine("llama-server").capabilities((LOGS / "b10434.help.txt").read_text())
    model = {"path": "/models/x.gguf", "format": "gguf", "architecture": "llama", "quantization": "Q8_0", "context_length": 2048}
    inventory = HostInventory(
        agent_version="0.1.0",
        hostname=name,
        os={"system": "Linux", "release": "6.1", "machine": "x86_64"},
        boot_id="7c1f7a5e-0000-4000-8000-2a4b6c8d0e1f",
        cpu_model="Intel Xeon",
        n_cores=2,
        memory_bytes=24 * 2**30,
        devices=[Device(uuid="cpu-1", kind="cpu", name="Intel Xeon", memory_bytes=24 * 2**30)],
        runtimes=[
            RuntimeInfo(
                engine="llama-server",
                version="0.1.0-dev (build 1, commit 7e4c0a9)",
                source_commit="7e4c0a9",
                backend="cpu",
                manifest_hash="a" * 64,
                executable="/opt/llama-server",
                capabilities=capabilities,
            )
        ],
        models=[
            ModelInfo(
                alias="demo-target",
                manifest_hash="b" * 64,
                size_bytes=120_000_000,
                tokenizer_hash="t",
                vocab_size=2048,
                memory=_shape(4, 855_040, 256),
                **model,
            ),
            ModelInfo(
                alias="demo-draft",
                manifest_hash="c" * 64,
                size_bytes=550_000,
                tokenizer_hash="t",
                vocab_size=2048,
                memory=_shape(1, 214_272, 96),
                **model,
            ),
        ],
        allowed_flags=list(DEFAULT_ALLOWED_FLAGS),
    )
    store_inventory(host, inventory, datetime.now(UTC))
    Host.objects.filter(pk=host.pk).update(last_seen_at=datetime.now(UTC))
    host.refresh_from_db()
    return host


@dataclass
class Run:
    """A job in the hands of a pretended agent."""

    experiment: Experiment
    job: Job
    lease: Lease
    plan: JobPlan
    attempts: list[Attempt] = field(default_factory=list)
    clock: datetime = START


@remembered
def submitted(team: Team, user: User, the_spec: ExperimentSpec, visibility: Visibility = Visibility.TEAM) -> Experiment:
    for workload in {w.content_hash(): w for w in workloads.builtin().values()}.values():
        seed_workload(workload)
    return submit(the_spec, team, user, visibility)


@remembered
def claimed(experiment: Experiment, host: Host) -> Run:
    now = datetime.now(UTC)
    dispatch_waiting(now, online_within=timedelta(minutes=5), on_queued=create_trials)
    found = claim_next_job(host, now)
    assert found is not None, Job.objects.get(experiment=experiment).reason
    job, lease, _ = found
    move_job(job.pk, JobState.RUNNING, now=now, by="test")
    job.refresh_from_db()
    return Run(experiment, job, lease, JobPlan.model_validate(job.plan))


@remembered
def finished(
    team: Team, user: User, the_spec: ExperimentSpec | None = None, visibility: Visibility = Visibility.TEAM, **knobs: object
) -> Run:
    """Everything: submitted, run, parsed, compared. ``fails(trial)`` names trials that end out of memory."""
    host = Host.objects.filter(team=team).first() or host_with_inventory(team)
    run = claimed(submitted(team, user, the_spec or spec(), visibility), host)
    play(run, **knobs)  # type: ignore[arg-type]
    now = datetime.now(UTC)
    move_job(run.job.pk, JobState.COMPLETED, now=now, by="test")
    assert compare_job(run.job.pk, now)
    run.job.refresh_from_db()
    return run


def play(run: Run, *, fails: Callable[[TrialPlan], bool] = lambda _: False, n_trials: int | None = None, log_lines: int = 0) -> None:
    """Reports trials as an agent would, with evidence made up from the spec's arms."""
    run.__dict__.update(_played(run, fails, n_trials, log_lines).__dict__)


@remembered
def _played(run: Run, fails: Callable[[TrialPlan], bool], n_trials: int | None, log_lines: int) -> Run:
    rng = random.Random(7)
    host = run.lease.host
    for trial in run.plan.trials[:n_trials]:
        arm = run.experiment.parsed_spec.arm(trial.arm)
        error = EngineOutOfMemory("the engine could not allocate 1,024 MiB for its KV cache").body() if fails(trial) else None
        attempt_id, files = str(uuid.uuid4()), {}
        began, run.clock = run.clock, run.clock + timedelta(seconds=6.2 + rng.random())
        files = evidence(run, trial, arm, attempt_id, began, run.clock, error, rng, log_lines)
        refs = []
        for name, (kind, content) in files.items():
            sha256 = hashlib.sha256(content).hexdigest()
            store_blob(sha256, io.BytesIO(content), host.team, zstd=False, max_bytes=2**30)
            refs.append(EvidenceRef(name=name, kind=kind, sha256=sha256, bytes=len(content), private=kind == "texts"))
        report = AttemptReport(
            attempt_id=attempt_id,
            job_id=str(run.job.pk),
            lease=run.lease.n,
            trial=trial.id,
            n=1,
            block_run=1,
            outcome="failed" if error else "ok",
            error=error,
            boot_id="boot",
            started_at=began,
            ended_at=run.clock,
            durations_s={"start": 0.7, "warmup": 0.9, "probe": 4.1, "stop": 0.2},
            evidence=refs,
        )
        assert report_attempt(host, run.lease, report, datetime.now(UTC)).stored
        parse_attempt(uuid.UUID(attempt_id))
        run.attempts.append(Attempt.objects.get(pk=attempt_id))
    return run


def evidence(
    run: Run,
    trial: TrialPlan,
    arm: Arm,
    attempt_id: str,
    began: datetime,
    ended: datetime,
    error: ErrorBody | None,
    rng: random.Random,
    log_lines: int,
) -> dict[str, tuple[str, bytes]]:
    drift = 1 + rng.gauss(0, 0.006)
    requests = [(w.id, w.point, w.item, w.seed, True) for w in trial.warmup] + [
        (p.id, p.point, p.item, p.seed, False) for p in trial.probes
    ]
    records = [] if error else [stream(run, arm, *r, drift=drift, rng=rng) for r in requests]
    texts = [answer(run, r, arm) for r in records]
    wanted = untimed(run.experiment.parsed_spec, run.plan)[trial.id]
    looks = [second_look(r, answer(run, r, arm)) for r in records if (r.point, r.item) in wanted.looks and not r.warmup]
    drawn = continuations(run, trial, arm, wanted.n_continuations)
    memory = int((150 + (9 if arm.mode == "draft" else 0.4 if arm.mode != "off" else 0)) * 2**20 * (1 + rng.gauss(0, 0.001)))
    metrics = [MetricsSnapshot(at_s=1.0, when=when, probe=r.probe, status=200, text="") for r in records for when in ("before", "after")]
    samples = [Sample(at_s=1 + i / 2, phase="probing", pss_bytes=memory + i, cpu_percent=52.0) for i in range(6)]
    # Made of three parts, so that no path of a real machine gets into the pages.
    log = (LOGS / ("b10434-draft4-lv4.log" if arm.mode == "draft" else "b10434-off.log")).read_text().splitlines()
    log += [f"line {i} {NASTY}" for i in range(log_lines)] + ([f"error: {error.message}"] if error else [])
    launch = Launch(
        argv=[w.replace("{executable}", "/opt/llama-server").replace("{port}", "4711") for w in run.job.commands[arm.name]],
        env={"LD_LIBRARY_PATH": "/opt/lib"},
        cwd="/tmp",
        port=4711,
        pid=4242,
        started_at=began,
        healthy_after_s=0.7,
        props={"total_slots": 1, "default_generation_settings": {"n_ctx": 2048}},
    )
    manifest = Manifest(
        runtime={"llama-server": "a" * 64},
        runtime_hash="a" * 64,
        runtime_version="b10434",
        target={"target.gguf": "b" * 64},
        target_hash="b" * 64,
        workloads=run.plan.workloads,
        agent_version="0.1.0",
        inventory_hash="d" * 64,
        boot_id="boot",
        os={"system": "Linux"},
    )
    summary = AttemptSummary(
        attempt_id=attempt_id,
        job_id=str(run.job.pk),
        trial=trial.id,
        arm=arm.name,
        block=trial.block,
        n=1,
        outcome="failed" if error else "ok",
        error=error,
        started_at=began,
        ended_at=ended,
        phases=[("starting", 0.0), ("probing", 1.0)],
        client_events=sum(len(r.events) for r in records),
    )
    many = {
        "records.jsonl": ("records", records),
        "texts.jsonl": ("texts", texts),
        "metrics.jsonl": ("metrics", metrics),
        "samples.jsonl": ("samples", [] if error else samples),
    }
    many |= {"second-look.jsonl": ("texts", looks)} if looks else {}
    many |= {"continuations.jsonl": ("texts", drawn)} if drawn and not error else {}
    one = {"launch.json": ("launch", launch), "manifest.json": ("manifest", manifest), "attempt.json": ("attempt", summary)}
    return (
        {"server.log": ("log", "\n".join(log).encode() + b"\n")}
        | {n: (kind, b"".join(r.model_dump_json().encode() + b"\n" for r in rows)) for n, (kind, rows) in many.items()}
        | {n: (kind, value.model_dump_json().encode()) for n, (kind, value) in one.items()}
    )


def answer(run: Run, record: StreamRecord, arm: Arm) -> TextRecord:
    """64 tokens, the same in all arms; but draft-8 answers one greedy prompt wrongly and one at a near-tie."""
    temperature = run.experiment.parsed_spec.point(record.point).sampling.temperature
    ids = [int(hashlib.sha256(f"{record.item} {i}".encode()).hexdigest()[:2], 16) for i in range(64)]
    if arm.name == "draft-8" and not record.warmup:
        items = sorted({p.item for t in run.plan.trials for p in t.probes if p.point == record.point})
        ids[14:] = [300] * 50 if record.item == items[0] else ids[14:]
        ids[20:] = [301] * 44 if record.item == items[1] else ids[20:]
    request = {"prompt": f"{NASTY} {record.item}", "temperature": temperature}
    return TextRecord(probe=record.probe, request=request, texts=[NASTY], ids=[ids])


def second_look(record: StreamRecord, answered: TextRecord) -> SecondLook:
    """The target was sure of every token but the twenty-first."""
    ids = [i for event in answered.ids for i in event]
    gaps = [0.05 if i == 20 else 3.0 for i in range(len(ids))]
    return SecondLook(probe=record.probe, point=record.point, item=record.item, ids=ids, gaps_nat=gaps, cut=True)


def continuations(run: Run, trial: TrialPlan, arm: Arm, n: int) -> list[Continuation]:
    """Draws of four tokens; those of ngram-simple come from another distribution."""
    found = []
    for seed in draws(run.experiment.parsed_spec, trial, n) if n else ():
        rng = random.Random(seed)
        likely = 0.9 if arm.name == "ngram-simple" else 0.5
        ids = [1 if rng.random() < likely else rng.randrange(2, 6) for _ in range(4)]
        found.append(Continuation(item="prompt", seed=seed, ids=ids, drafted=None if arm.mode == "off" else 2))
    return found


def stream(
    run: Run, arm: Arm, probe: str, point: str, item: str, seed: int, warmup: bool, *, drift: float, rng: random.Random
) -> StreamRecord:
    """64 tokens in cycles, as llama-server sends them: one event a token, those of a cycle in one burst."""
    workload = next(p.workload for p in run.experiment.parsed_spec.points if p.key == point)
    workload = workload if workload in LIKELY else "count"
    on = arm.mode != "off"
    limit = arm.draft_limit or 12
    chance = LIKELY[workload] * (1 if arm.mode == "draft" else {"count": 0.35, "python-code": 0.75, "free-text": 0.1}[workload])
    sent, at, ms = 1.0, 1.04, 0.0
    drafted = accepted = 0
    events = [StreamEvent(at_s=at, tokens=1, predicted_n=1, predicted_ms=0.01, **({"draft_n": 0, "draft_n_accepted": 0} if on else {}))]
    for i in itertools.count():
        if len(events) >= 64:
            break
        tries = on and (arm.mode == "draft" or (i % 3 == 0 and workload != "free-text"))
        good = next((k for k in range(limit) if rng.random() > chance), limit) if tries else 0
        good = min(good, 63 - len(events))
        step = (CYCLE_MS[arm.mode](limit) if on else PLAIN_STEP_MS) * drift * (1 + rng.gauss(0, 0.01))
        at, ms = at + step / 1000, ms + step
        drafted, accepted = drafted + (limit if tries else 0), accepted + good
        extra = {"draft_n": drafted, "draft_n_accepted": accepted} if on else {}
        for k in range(good + 1):
            events.append(StreamEvent(at_s=round(at + k * 1e-5, 6), tokens=1, predicted_n=len(events) + 1, predicted_ms=ms, **extra))
    timings = {"cache_n": 0, "prompt_n": 30, "prompt_ms": 40.0, "predicted_n": 64, "predicted_ms": ms}
    types = {"draft": "draft-simple"}.get(arm.mode, arm.mode if on else "none")
    return StreamRecord(
        probe=probe,
        warmup=warmup,
        point=point,
        item=item,
        seed=seed,
        path="/completion",
        request_sha256="e" * 64,
        connected_at_s=0.99,
        sent_at_s=sent,
        closed_at_s=at + 0.001,
        status=200,
        events=[*events, StreamEvent(at_s=at + 0.0005, tokens=0, kind="final")],
        final={
            "tokens_predicted": 64,
            "tokens_evaluated": 30,
            "stop_type": "limit",
            "timings": timings | ({"draft_n": drafted, "draft_n_accepted": accepted} if on else {}),
        },
        generation_settings={"speculative.types": types},
        ids_sha256=hashlib.sha256(json.dumps([item, seed]).encode()).hexdigest(),
    )
