"""What a person at the terminal sees while a job runs: each trial as it ends, and what goes on now."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from speccore.jobstate import JobState

from specweb.experiments.models import Job
from specweb.results.models import Attempt


class Progress:
    """Prints what is new about a job since the last look; on a terminal also what the agent does right now."""

    def __init__(self, job: Job) -> None:
        self._id = job.pk
        self._seen: set[Any] = set()
        self._said = ""
        self._live = sys.stdout.isatty()

    def look(self) -> Job:
        """Prints news and returns the job as it is now."""
        job = Job.objects.select_related("host").get(pk=self._id)
        n_trials = job.trials.count()
        attempts = Attempt.objects.filter(trial__job=job).select_related("trial__arm").order_by("received_at")
        for attempt in attempts:
            if attempt.pk not in self._seen:
                self._seen.add(attempt.pk)
                self._line(trial_line(attempt, n_trials))
        if job.state == JobState.WAITING.value and job.reason != self._said:
            self._said = job.reason
            self._line(f"  waiting: {job.reason}")
        if self._live:
            self._now(job, n_trials)
        return job

    def _line(self, text: str) -> None:
        print(f"\r\x1b[K{text}" if self._live else text, flush=True)

    def _now(self, job: Job, n_trials: int) -> None:
        doing: Mapping[str, Any] = job.progress or {}
        text = job.state
        if job.state == JobState.RUNNING.value and doing.get("trial"):
            probe = f" {doing.get('probe')}/{doing.get('n_probes')}" if doing.get("phase") == "probing" else ""
            text = f"{doing['trial']}: {doing.get('phase', '')}{probe}"
        print(f"\r\x1b[K  … {text}", end="" if job.state not in ("processed", "failed", "cancelled") else "\r\x1b[K", flush=True)


def trial_line(attempt: Attempt, n_trials: int) -> str:
    trial = attempt.trial
    seconds = (attempt.ended_at - attempt.started_at).total_seconds()
    line = f"  trial {trial.index + 1:>2}/{n_trials}  block {trial.block}  {trial.arm.name:<14} {seconds:5.1f} s"
    if attempt.outcome != "ok":
        why = (attempt.error or {}).get("message", "")
        line += f"  {attempt.outcome}" + (f": {why}" if why else "")  # one that was cancelled has no error
    return line
