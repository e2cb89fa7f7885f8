"""A trial as one side of a difference: what was set, run, used and measured, as plain values by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from speccore.commandline import units
from speccore.keys import pair_key
from speccore.measurement import AttemptMeasurement, Number, ProbeMeasurement
from speccore.records import LAUNCH, MANIFEST, Launch, Manifest

from specweb.accounts.models import User
from specweb.results import page_queries, trial_evidence
from specweb.results.models import Attempt

#: Means over a trial's requests at one point.
PROBE_METRICS = ("ttft_any_s", "decode_tokens_per_s", "token_latency_ms", "e2e_s", "completion_tokens")
#: What each start has of its own.
_OWN_OF_A_START = ("attempt", "trial")


def side(attempt: Attempt, user: User) -> dict[str, Any]:
    """What of it the person may read; a part that is for the team, or that was not told, is empty."""
    trial, experiment = attempt.trial, attempt.trial.job.experiment
    for_team = page_queries.reads_texts(user, experiment)
    files = [f for f in page_queries.evidence_of(attempt) if for_team or not f.private]
    launch, manifest = trial_evidence.document(files, LAUNCH, Launch), trial_evidence.document(files, MANIFEST, Manifest)
    measured = attempt.measurement.parsed if attempt.measurement else None
    spec = experiment.parsed_spec
    arm = next((a for a in spec.arms if a.name == trial.arm.name), None)
    return {
        "attempt": {"id": str(attempt.pk), "n": attempt.n, "outcome": attempt.outcome, "accepted": attempt.accepted},
        "trial": {"experiment": str(experiment.pk), "arm": trial.arm.name, "block": trial.block, "position": trial.position},
        "arm": arm.model_dump(mode="json") if arm else {},
        "settings": spec.model_dump(mode="json", exclude={"arms", "name", "question"}),
        "command": _command(launch) if launch else {},
        "environment": {name: _plain(launch, value) for name, value in sorted(launch.env.items())} if launch else {},
        "settled": dict(measured.log.settled) if measured else {},
        "versions": manifest.model_dump(mode="json") if manifest else {},
        "phases_s": dict(attempt.durations_s),
        "numbers": _numbers(measured) if measured else {},
    }


def _plain(launch: Launch, word: str) -> str:
    """Without what each start has of its own, so that it is no difference."""
    if word == str(launch.port):
        return "{port}"
    return word.replace(launch.cwd, "{folder}") if len(launch.cwd) > 1 else word


def _command(launch: Launch) -> dict[str, list[str]]:
    """Flag → its values, in the order of the line; a flag that comes again has those of each time."""
    found: dict[str, list[str]] = {}
    for i, (first, *values) in enumerate(units([_plain(launch, w) for w in launch.argv])):
        flag = first if first.startswith("-") else "program" if i == 0 else first
        found.setdefault(flag, []).extend(values if flag == first else [first, *values])
    return found


def _numbers(m: AttemptMeasurement) -> dict[str, dict[str, float]]:
    """Point → metric → mean over its requests; one that was withheld of any request is left out."""
    points = dict.fromkeys(p.point for p in m.probes if p.ok and not p.warmup)
    return {point: _means([p for p in m.probes if p.point == point and p.ok and not p.warmup]) for point in points}


def _means(probes: Sequence[ProbeMeasurement]) -> dict[str, float]:
    found = {}
    for metric in PROBE_METRICS:
        numbers = [v for p in probes if isinstance(v := getattr(p, metric), Number)]
        if len(numbers) == len(probes):
            found[metric] = sum(n.value for n in numbers) / len(numbers)
    return found


def one_pair(a: Attempt, b: Attempt) -> bool | None:
    """Whether all is equal that must be equal inside a ratio; None where that is not known of one."""
    fields = [x.measurement.parsed.pair_fields if x.measurement else {} for x in (a, b)]
    return pair_key(fields[0]) == pair_key(fields[1]) if all(fields) else None


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    one, other = (_flat({k: v for k, v in s.items() if k not in _OWN_OF_A_START}) for s in (a, b))
    for name in dict.fromkeys([*one, *other]):
        if one.get(name) != other.get(name):
            yield {"name": name, "a": one.get(name), "b": other.get(name)}


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{before}.{key}" if before else key
        found |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return found
