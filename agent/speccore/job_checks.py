"""Checks of the integrity panel that are of a job as a whole: its evidence, its host, and its baseline's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .formats import percent
from .integrity import NAMED, failed, not_checked, passed
from .measurement import Check
from .noise_floor import KnownFloor
from .pairs import Results
from .spec import ExperimentSpec


def evidence_hashes(verified: bool | None, n: int, problem: str) -> Check:
    name = "evidence hashes"
    if verified is None:
        return not_checked(name, "hashes of the evidence were not computed again")
    if not verified:
        return failed(
            name, problem or f"at least 1 of {n} files of evidence does not have the hash that it was announced with", hard=True, n=n
        )
    return passed(name, f"{n} files of evidence have the hashes that they were announced with", hard=True, n=n)


def noise_floor_known(
    noise_floor: float | None, floors: Mapping[str, KnownFloor | None] | None = None, *, not_restarted: bool = False
) -> Check:
    """``floors``: by class of points, where its contrasts were looked for; ``noise_floor`` speaks for the other classes.

    ``not_restarted``: of servers that stand, whose contrasts would tell nothing.
    """
    name = "A/A known"
    known = {c: f or KnownFloor(floor=noise_floor) for c, f in (floors or {"": None}).items()}
    evidence = {c or "all points": f.model_dump(mode="json", exclude_defaults=True) for c, f in known.items()}
    words = [_floor_words(c if len(known) > 1 else "", f) for c, f in known.items()]
    if any(f.floor is None for f in known.values()):
        blocks = max(f.n_blocks for f in known.values())
        preset = f"the preset noise-floor with {blocks} block{'' if blocks == 1 else 's'}" if blocks else "the preset noise-floor"
        adds = "servers that stand can't tell it" if not_restarted else f"each run of {preset} on this host adds a contrast"
        remedy = f"where unknown it is taken as 0; {adds}"
        return failed(name, f"this host's noise floor {'; '.join(words)}: {remedy}", floors=evidence)
    return passed(name, f"this host's noise floor {'; '.join(words)}", floors=evidence)


def _floor_words(at: str, f: KnownFloor) -> str:
    where = f" at {at}" if at else ""
    if f.floor is None:
        return f"is unknown{where}" + (f" ({f.why})" if f.why else "")
    until = f", valid until {f.valid_until:%Y-%m-%d}" if f.valid_until else ""
    rest = f" ({f.n_contrasts} contrasts of the baseline with itself{until})" if f.n_contrasts else ""
    return f"is {percent(f.floor, 1)}{where}{rest}"


def shares_cores(shares: bool) -> Check:
    name = "engine has its cores"
    if shares:
        return failed(name, "the engine shares cores with the server that collects its results")
    return passed(name, "no part of the service runs on the engine's machine")


def baseline_repeats(answers: Mapping[str, Sequence[str]]) -> Check:
    """``answers``: hashes of the ids of greedy answers of mode off, by prompt, where there is more than one.

    Equal repeats pass. Unequal ones don't fail: without log-probabilities a near-tie can't be told from a wrong answer.
    """
    name = "baseline agrees with itself"
    repeated = {prompt: hashes for prompt, hashes in answers.items() if len(hashes) > 1}
    if not repeated:
        return not_checked(name, "no greedy prompt was answered twice without speculation")
    unequal = [prompt for prompt, hashes in repeated.items() if len(set(hashes)) > 1]
    if unequal:
        sentence = (
            f"{len(unequal)} of {len(repeated)} greedy answers without speculation differ between starts; near-ties are not told apart"
        )
        return not_checked(name, sentence, prompts=unequal[:NAMED])
    return passed(name, f"{len(repeated)} greedy prompts were answered alike in all starts without speculation", hard=True, n=len(repeated))


def greedy_answers(spec: ExperimentSpec, results: Results) -> dict[str, list[str]]:
    """Hashes of answers at temperature 0 of all arms of mode off, by point and prompt: seeds don't matter to them."""
    greedy = {p.key for p in spec.points if p.sampling.temperature == 0}
    answers: dict[str, list[str]] = {}
    for arm in (a for a in spec.arms if a.mode == spec.baseline.mode):
        for attempt in results.of_arm(arm.name):
            for probe in attempt.probes:
                if probe.point in greedy and probe.ok and not probe.warmup and probe.ids_sha256:
                    turn = f" turn {probe.turn}" if probe.turn else ""
                    answers.setdefault(f"{probe.point} {probe.item}{turn}", []).append(probe.ids_sha256)
    return answers
