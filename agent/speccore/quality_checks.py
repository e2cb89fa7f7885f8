"""Checks of the integrity panel that look at answers: whether the baseline agrees with itself, and the arm with it."""

from __future__ import annotations

from typing import Any

from .agreement import NEAR_TIE_NAT
from .integrity import failed, not_checked, passed
from .measurement import Check, Withheld
from .quality import Compared
from .quality_results import GREEDY_ANSWERS, SAMPLING_RULE, SamplingResult

#: Share of prompts that the baseline may answer wrongly when it is asked again.
MOST_WRONG = 0.02
OWN_ANSWERS = "baseline agrees with itself"


def own_answers(own: Compared, why_none: Withheld) -> Check:
    """Hard: an engine that gives another answer than its own without any speculation measures nothing."""
    if not own.pairs:
        return not_checked(OWN_ANSWERS, why_none.withheld)
    found = own.result()
    doubtful = len({d.item for d in own.found.divergences if d.kind != "near-tie"})
    evidence: dict[str, Any] = {"prompts": found.n_prompts, "wrong": found.wrong_prompts, "pairs": found.n, "identical": found.n_identical}
    if found.n_wrong_prompts > MOST_WRONG * found.n_prompts:
        sentence = (
            f"asked again, the baseline gives another answer to {found.n_wrong_prompts} of {found.n_prompts} greedy prompts, and not for a "
            f"near-tie: its two likeliest tokens are over {NEAR_TIE_NAT:g} nat apart where the answers part, first in {found.wrong_prompts[0]}"
        )
        return failed(OWN_ANSWERS, sentence, hard=True, **evidence)
    if doubtful > MOST_WRONG * found.n_prompts:
        return not_checked(OWN_ANSWERS, f"of the baseline's answers beside its own {found.words}", **evidence)
    return passed(OWN_ANSWERS, f"of the baseline's answers beside its own {found.words}", hard=True, **evidence)


def greedy_answers(arm: Compared, own: Compared, why_none: Withheld) -> Check:
    """Soft: the verdict weighs how many there are. One wrong answer is shown all the same, however fast the arm is."""
    if not arm.pairs:
        return not_checked(GREEDY_ANSWERS, why_none.withheld)
    found = arm.result()
    beside = f"; the baseline beside itself: {own.result().words}" if own.pairs else ""
    evidence: dict[str, Any] = {"prompts": found.n_prompts, "wrong": found.wrong_prompts, "pairs": found.n, "identical": found.n_identical}
    if found.n_wrong:
        sentence = (
            f"{found.n_wrong_prompts} of {found.n_prompts} greedy prompts are answered wrongly where the target is sure, first "
            f"{found.wrong_prompts[0]}: {found.words}{beside}"
        )
        return failed(GREEDY_ANSWERS, sentence, **evidence)
    sentence = f"beside the baseline's {found.words}{beside}"
    return not_checked(GREEDY_ANSWERS, sentence, **evidence) if found.n_unknown else passed(GREEDY_ANSWERS, sentence, **evidence)


def sampling(found: SamplingResult | Withheld, arm: str) -> Check:
    if isinstance(found, Withheld):
        return not_checked(SAMPLING_RULE, found.withheld)
    one = next((a for a in found.arms if a.arm == arm), None)
    if one is None:
        return not_checked(SAMPLING_RULE, "the arm is not in the test")
    sentence = f"at temperature {found.temperature:g}, {one.n:,} continuations: {one.words}"
    if one.outcome == "accused":
        return failed(SAMPLING_RULE, f"at temperature {found.temperature:g} it {one.words}", n=one.n)
    return passed(SAMPLING_RULE, sentence, n=one.n) if one.outcome == "not accused" else not_checked(SAMPLING_RULE, sentence, n=one.n)
