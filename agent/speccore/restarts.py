"""Whether the engine was started anew for each trial, as one line of the integrity panel."""

from __future__ import annotations

from collections.abc import Sequence

from .attached import LABEL, UNCHECKED
from .integrity import NAMED, failed, passed
from .measurement import AttemptMeasurement, Check, Verdict


def check(attempts: Sequence[AttemptMeasurement]) -> Check:
    """A warning: the verdict stands, and is marked."""
    name = "restarted"
    standing = [a.trial for a in attempts if a.not_restarted]
    if not standing:
        return passed(name, f"the engine was started anew for each of {len(attempts)} trials")
    sentence = (
        f"{LABEL}: servers that somebody else started were asked, so no trial is a start of the engine, and the interval does not "
        f"cover what differs from start to start. Nobody can check {'; '.join(UNCHECKED)}"
    )
    return failed(name, sentence, trials=standing[:NAMED], not_checked=list(UNCHECKED))


def told(verdict: Verdict, *, not_restarted: bool) -> Verdict:
    """The verdict with the mark in its sentence, so that whoever quotes it quotes that too."""
    if not not_restarted:
        return verdict
    mark = f"{LABEL}: its servers stood throughout"
    return verdict.model_copy(update={"sentence": f"{verdict.sentence}; {mark}" if verdict.sentence else mark})
