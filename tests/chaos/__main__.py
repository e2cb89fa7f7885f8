"""`make chaos`: one small experiment after the other under random faults; fails if a trial is lost or doubled, or anything is left."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import django

os.environ |= {
    # The rig fills in the real addresses.
    "DATABASE_URL": "postgresql://specweb@/specweb?host=/nonexistent",
    "BROKER_URL": "redis+socket:///nonexistent/broker.sock",
    "DJANGO_SETTINGS_MODULE": "specweb.settings",
    "SECRET_KEY": "only-for-chaos",
}
django.setup()

from django.utils import timezone  # noqa: E402  needs the line above
from speccore.jobstate import JobState  # noqa: E402

from specweb.experiments.models import Job  # noqa: E402
from specweb.results.models import Attempt  # noqa: E402
from tests.chaos import ledger  # noqa: E402
from tests.chaos.faults import Fault, draw  # noqa: E402
from tests.chaos.rig import PARTS, NotInTime, Rig, as_json, fresh_home  # noqa: E402

#: A job takes seven seconds undisturbed. A worker's lost message is found within twenty.
ENDS_WITHIN_S = 120
CLEAN_WITHIN_S = 15
COUNTS = ("lost", "doubled", "stuck", "leftovers", "damaged", "failed")


@dataclass
class Run:
    """One experiment under its faults: what was done to it and what became of it."""

    run: int
    faults: list[Fault]
    job: str = ""
    state: str = ""
    reason: str = ""
    seconds: float = 0.0
    n_attempts: int = 0
    n_leases: int = 0
    done: list[dict[str, Any]] = field(default_factory=list)
    found: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in COUNTS})

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Attack:
    """Carries a run's faults out as they come due, and mends."""

    def __init__(self, rig: Rig, job: Job, faults: list[Fault]) -> None:
        self._rig, self._job, self._faults = rig, job, list(faults)
        self._armed_at: float | None = None
        self._back: list[tuple[float, str]] = []  # when a part that is down or frozen comes back
        self._began = time.monotonic()
        self.done: list[dict[str, Any]] = []

    def go_on(self) -> bool:
        """One look; returns whether the job has ended and all parts are back. Raises what a database that is away raises."""
        now = time.monotonic()
        for at, part in [b for b in self._back if b[0] <= now]:
            self._back.remove((at, part))
            self._rig.down.discard(part)
            self._rig.thaw(part)
        self._rig.mend()
        ended = self._rig.has_ended(self._job)
        if self._faults and not ended and self._is_due(self._faults[0], now):
            self._carry_out(self._faults.pop(0))
            self._armed_at = None
        return ended and not self._back

    def give_back(self) -> None:
        for _, part in self._back:
            self._rig.down.discard(part)
            self._rig.thaw(part)
        self._rig.mend()

    def _is_due(self, fault: Fault, now: float) -> bool:
        if any(part == _first(fault) for _, part in self._back):
            return False  # it is down already
        if fault.part in ("engine", "keepers", "host") and self._armed_at is not None and not self._rig.pids("engine"):
            return False  # between two trials
        if self._armed_at is None and Attempt.objects.filter(trial__job=self._job).count() >= fault.after_attempts:
            self._armed_at = now
        return self._armed_at is not None and now >= self._armed_at + fault.delay_s

    def _carry_out(self, fault: Fault) -> None:
        rig, part = self._rig, _first(fault)
        phase = rig.phase(self._job)
        at = timezone.now()
        if fault.part == "connections":
            hit = rig.cut_connections()
        elif fault.manner == "freeze":
            rig.freeze(part)
            hit = [p.pid for p in rig.frozen[part]]
            if part == "postgres":  # the next look at the job would wait for it, and nobody would thaw it
                time.sleep(fault.down_s)
                rig.thaw(part)
        else:
            if part in PARTS:
                rig.down.add(part)
            hit = [pid for what in _what(fault) for pid in rig.signal(what, fault.manner)]
        if part in PARTS:
            self._back.append((time.monotonic() + fault.down_s, part))
        told = {"at": at.isoformat(), "after_s": round(time.monotonic() - self._began, 2), "phase": phase, "pids": hit, **asdict(fault)}
        self.done.append(told)
        logging.info("%s", f"  {told['after_s']:6.2f} s  {fault.manner} {fault.part} ({phase or 'no trial'}), back after {fault.down_s} s")


def _first(fault: Fault) -> str:
    return "agent" if fault.part == "host" else fault.part


def _what(fault: Fault) -> tuple[str, ...]:
    """In this order, so that nobody sees another go first: children of a killed agent can't be found any more."""
    return ("keepers", "agent") if fault.part == "host" else (fault.part,)


def attack(rig: Rig, run: Run, seed: int) -> None:
    began = time.monotonic()
    job = rig.submit(max_tokens=256, probes=4, seed=seed)
    run.job = str(job.pk)
    assault = Attack(rig, job, run.faults)
    try:
        rig.until(assault.go_on, ENDS_WITHIN_S, "the job's end", every_s=0.02)
    except NotInTime:
        run.found["stuck"].append(f"{rig.until(lambda: rig.state(job), 30, 'the state')} after {ENDS_WITHIN_S} s")
    assault.give_back()
    run.done, run.seconds = assault.done, round(time.monotonic() - began, 2)
    look(rig, job, run)


def look(rig: Rig, job: Job, run: Run) -> None:
    job.refresh_from_db()
    run.state, run.reason = job.state, job.reason
    run.n_attempts, run.n_leases = Attempt.objects.filter(trial__job=job).count(), job.leases.count()
    if not run.found["stuck"] and job.state != JobState.PROCESSED:
        run.found["failed"].append(f"{job.state}: {job.reason}")
    if not run.found["stuck"]:
        run.found["lost"] = ledger.lost(job)
    run.found["doubled"] = ledger.doubled(job)
    run.found["damaged"] = ledger.damaged(job)
    run.found["leftovers"] = rig.settled(lambda: ledger.leftovers(rig), CLEAN_WITHIN_S)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="experiments, one after the other (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, help="draws the faults (default: a new one, which is printed)")
    parser.add_argument("--out", type=Path, default=None, help="write the result here, as JSON (default: standard output)")
    parser.add_argument("--first", type=int, default=1, help="number of the first run, to see one of a longer series again")
    parser.add_argument("--keep", type=Path, default=None, help="keep the logs of all parts in this folder")
    given = parser.parse_args()
    if given.runs < 1:
        parser.error(f"--runs {given.runs}: name at least one")
    if given.out and (given.out.is_dir() or not os.access(given.out.absolute().parent, os.W_OK)):
        parser.error(f"--out {given.out}: name a file in a folder that is there and writable")
    return given


def main() -> int:
    given = options()
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    for noisy in ("httpx", "specweb", "celery"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # an orderly end, as by Ctrl-C: frozen parts go on, all are stopped
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    logging.info("%d runs with seed %d", given.runs, seed)
    runs: list[Run] = []
    after: list[str] = []
    with fresh_home() as home:
        rig = Rig(home)
        try:
            with rig:
                for number in range(given.first, given.first + given.runs):
                    run = Run(number, draw(seed, number))
                    logging.info("run %d: %d faults", number, len(run.faults))
                    attack(rig, run, number)
                    runs.append(run)
                    logging.info("  %6.2f s  %s, %d attempts, %d leases", run.seconds, run.state, run.n_attempts, run.n_leases)
                    for name, what in run.found.items():
                        for text in what:
                            logging.info("  %s: %s", name.upper(), text)
        finally:
            if given.keep:
                shutil.copytree(home / "logs", given.keep, dirs_exist_ok=True)
        after = [*rig.strays(), *rig.sockets_left()]
    totals = {name: sum(len(r.found[name]) for r in runs) for name in COUNTS}
    totals["leftovers"] += len(after)
    result = {
        "runs": len(runs),
        **totals,
        "seed": seed,
        "seconds": round(sum(r.seconds for r in runs), 1),
        "faults": sum(len(r.done) for r in runs),
        "left_at_the_end": after,
        "details": [r.as_dict() for r in runs],
    }
    if given.out:
        given.out.write_text(as_json(result))
    else:
        sys.stdout.write(as_json(result))
    logging.info("%s", ", ".join(f"{n} {name}" for name, n in [("runs", len(runs)), *totals.items()]))
    return 1 if any(totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
