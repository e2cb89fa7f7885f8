"""Whether the context was as full as asked for, by the engine's own count, and from which size on its text repeats itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .contexts import repeats_from
from .integrity import NAMED, failed, not_checked, passed
from .measurement import AttemptMeasurement, Check, ProbeMeasurement, value_of
from .spec import ExperimentSpec, Point

NAME = "context occupied"
#: So far apart may count and wish lie: a share, or a few tokens where that is less.
TOLERANCE, TOLERANCE_TOKENS = 0.01, 8


def checks(point: Point, baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement]) -> list[Check]:
    """Of one comparison; none where the point asks for no occupied context. Of a task, its first turn counts."""
    if not point.occupied_context:
        return []
    counted: dict[str, float | None] = {}
    for attempt in (*baseline, *arm):
        for probe in attempt.probes:
            if probe.point == point.key and not probe.warmup and probe.turn in (None, 1) and _was_answered(probe):
                counted[f"{attempt.trial}/{probe.probe}"] = value_of(probe.prompt_tokens)
    return [context_occupied(point.occupied_context, counted)]


def _was_answered(probe: ProbeMeasurement) -> bool:
    """One without an answer has failed already, and counts nothing."""
    return probe.ok or value_of(probe.prompt_tokens) is not None


def context_occupied(asked: int, counted: Mapping[str, float | None]) -> Check:
    """``counted``: by probe, the tokens in the context when its answer began; None where the engine didn't say."""
    most = max(TOLERANCE * asked, TOLERANCE_TOKENS)
    known = {ref: n for ref, n in counted.items() if n is not None}
    wrong = {ref: n for ref, n in known.items() if abs(n - asked) > most}
    if wrong:
        ref, n = max(wrong.items(), key=lambda pair: abs(pair[1] - asked))
        sentence = f"{n:,.0f} tokens were in the context of {ref} by the engine's count, asked for were {asked:,}"
        return failed(NAME, sentence, hard=True, asked=asked, probes=dict(list(wrong.items())[:NAMED]))
    if not known or len(known) < len(counted):
        silent = [ref for ref, n in counted.items() if n is None]
        where = f" of {silent[0]}" if silent else ""
        return not_checked(NAME, f"the engine did not say how many tokens were in the context{where}", probes=silent[:NAMED])
    low, high = min(known.values()), max(known.values())
    each = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
    sentence = f"{each} tokens were in the context by the engine's count when each of {len(known)} answers began, asked for were {asked:,}"
    return passed(NAME, sentence, hard=True, asked=asked, low=low, high=high)


def cautions(spec: ExperimentSpec) -> list[tuple[str, str]]:
    """(field, words) of what the filling favours."""
    found = []
    again = repeats_from()
    for i, point in enumerate(spec.points):
        if point.occupied_context > again:
            words = (
                f"from about {again:,} tokens on the text that fills the context comes again in another order: drafters that look up "
                "earlier text (n-gram, suffix) find more there than in a context of your own"
            )
            found.append((f"points.{i}.occupied_context", words))
        elif point.occupied_context and any(a.is_stateful for a in spec.arms):
            words = (
                "requests of one start share passages of the text that fills the context, in another order: a drafter whose state outlives "
                "a request may have met them before"
            )
            found.append((f"points.{i}.occupied_context", words))
    return found
