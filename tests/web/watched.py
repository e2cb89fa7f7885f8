"""A watched experiment with a history: one real run through the services, and copies of its rows with other numbers and builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.urls import reverse
from speccore.inventory import HostInventory

from specweb.experiments.models import Experiment, Host, HostRuntime, Job, Runtime
from specweb.experiments.services.hosts import store_inventory
from specweb.results.models import Analysis, Comparison, Listing
from specweb.watching.models import Cause, Repeat, Watch
from specweb.watching.services.channels import create_channel
from specweb.watching.services.looking import look_at_ended
from specweb.watching.services.notices import send_test
from specweb.watching.services.watches import acknowledge, watch
from tests.web import sample

POINT = "count/c1/ctx0/t0"
SMALL = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "warmup": {"mode": "fixed"},
    "blocks": 3,
}
#: Noise that is drawn once: about 1 % between runs, and no two alike.
WOBBLE = [0.004, -0.011, 0.009, 0.001, -0.006, 0.013, -0.008, 0.003, -0.002, 0.01, -0.012, 0.006]


@dataclass
class Watched:
    people: sample.People
    run: sample.Run
    host: Host
    watch: Watch


def watched(**asked: object) -> Watched:
    people = sample.people()
    run = sample.finished(people.team, people.owner, sample.spec(**SMALL))
    host = run.lease.host
    found = watch(run.experiment, people.owner, host=host, **asked)  # type: ignore[arg-type]
    return Watched(people, run, host, found)


def offer(host: Host, *builds: str) -> None:
    """The host tells that it has these builds now, by the letter that their hash is made of."""
    host.refresh_from_db()
    assert host.inventory is not None
    was: HostInventory = host.inventory.parsed
    first = was.runtimes[0]
    runtimes = [first.model_copy(update={"manifest_hash": b * 64, "version": f"build {b}"}) for b in builds]
    store_inventory(host, was.model_copy(update={"runtimes": runtimes}), datetime.now(UTC))
    Host.objects.filter(pk=host.pk).update(last_seen_at=datetime.now(UTC))
    host.refresh_from_db()


def add_run(
    it: Watched, n: int, *, ratio: float, baseline: float | None = None, acceptance: float | None = None, verdict: str = "keep"
) -> Job:
    """One more run, the n-th after the first, on a build of its own, compared."""
    first, job = it.run.experiment, it.run.job
    at = datetime.now(UTC) + timedelta(hours=n)
    build, _ = Runtime.objects.get_or_create(
        manifest_hash=f"{n:064d}", defaults={"engine": "llama-server", "version": f"build {n}", "first_seen_at": at}
    )
    HostRuntime.objects.get_or_create(host=it.host, runtime=build, defaults={"first_seen_at": at, "last_seen_at": at})
    copy = Experiment.objects.create(
        team=first.team,
        created_by=first.created_by,
        name=f"{first.name[:110]} {n}",
        spec=first.spec,
        spec_hash=first.spec_hash,
        visibility=first.visibility,
    )
    done = Job.objects.create(
        experiment=copy,
        host=it.host,
        inventory=job.inventory,
        runtime=build,
        target=job.target,
        state="processed",
        processed_at=at,
        plan=job.plan,
    )
    Repeat.objects.create(watch=it.watch, host=it.host, runtime=build, experiment=copy, cause=Cause.BUILD, created_at=at)
    analysis = Analysis.objects.create(job=done, analysis_version=1, numbers=job.analyses.latest("pk").numbers)
    arms, points = {a.name: a for a in first.arms.all()}, {p.key: p for p in first.points.all()}
    for copied in (*arms.values(), *points.values()):
        copied.pk, copied.experiment = None, copy
        copied.save()
    for old in Comparison.objects.current().filter(job=job).select_related("arm", "point"):
        listing = Listing.objects.filter(comparison=old).first()
        arm, point = arms[old.arm.name], points[old.point.key]
        numbers = old.numbers | {
            "acceptance_rate": {"value": acceptance} if acceptance is not None else old.numbers["acceptance_rate"],
            "baseline_tokens_per_s": {"value": baseline} if baseline is not None else old.numbers["baseline_tokens_per_s"],
        }
        new = Comparison.objects.create(
            job=done,
            analysis=analysis,
            arm=arm,
            point=point,
            analysis_version=1,
            numbers=numbers,
            speedup=ratio,
            ci_low=ratio * 0.99,
            ci_high=ratio * 1.01,
            n_blocks=3,
            verdict=verdict,
        )
        if listing is not None:
            listing.pk, listing.comparison, listing.experiment = new.pk, new, copy
            listing.runtime_hash, listing.build, listing.measured_at = build.manifest_hash, build.version, at
            listing.save(force_insert=True)
    return done


def add_history(it: Watched, ratios: Sequence[float], *, start: int = 1, baselines: Sequence[float] | None = None) -> list[Job]:
    """Runs with about these ratios; the baseline's speed wobbles around 60 tokens/s."""
    made = []
    for i, ratio in enumerate(ratios):
        n = start + i
        wobble = 1 + WOBBLE[n % len(WOBBLE)]
        base = (baselines[i] if baselines else 60.0) * (1 + WOBBLE[(n + 5) % len(WOBBLE)])
        made.append(add_run(it, n, ratio=ratio * wobble, baseline=base, acceptance=0.8 * (1 + WOBBLE[(n + 3) % len(WOBBLE)])))
    return made


def watched_pages(run: sample.Run) -> dict[str, str]:
    """Name and address of each page of watches and notices, with an alert that is open, one that was seen, and a channel."""
    owner, now = run.experiment.created_by, datetime.now(UTC)
    assert owner is not None
    host = run.lease.host
    people = sample.People(owner, owner, owner, run.experiment.team, run.experiment.team)
    it = Watched(people, run, host, watch(run.experiment, owner, host=host, every_days=7))
    add_history(it, [2.0] * 12)
    add_history(it, [1.7] * 12, start=13, baselines=[60.0] * 4 + [66.0] * 8)
    alerts = look_at_ended(now)
    acknowledge(alerts[-1], owner, now, "the new driver")
    chat = {"kind": "webhook", "target": "https://hooks.example.org/T0/B1", "events": ["alert", "lost"]}
    send_test(create_channel(it.watch.team, owner, name="perf chat", **chat), now, "owner")
    return {
        "watches": reverse("watches"),
        "watch": reverse("watch", args=[it.watch.pk]),
        "watch an experiment": reverse("watch-new", args=[run.experiment.pk]),
        "notices": reverse("notices"),
    }
