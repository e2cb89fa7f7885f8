"""Jobs of one experiment on one host whose blocks are compared together: whether they may be, and how sure the whole is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from . import extending
from .differences import difference
from .early import BY_TIME
from .extending import FirstLooks, joined_confidence
from .integrity import BETWEEN_BLOCKS
from .inventory import HostInventory
from .measurement import AttemptMeasurement, Interval, JoinedAnswer, Verdict, Withheld
from .protocol import JobPlan, TrialPlan
from .spec import ExperimentSpec
from .stats import CONFIDENCE, MIN_BLOCKS


def spec_of_part(spec: ExperimentSpec, n_blocks: int) -> ExperimentSpec:
    """What an agent is asked for further blocks: the same, without what belongs to a whole plan.

    Early looks would spend an error that is spent; the largest context, and whether answers follow the sampling rule, were
    asked in the first part.
    """
    return spec.model_copy(update={"blocks": n_blocks, "sequential": False, "fit": False, "sampling_test": None})


def lasting_fields(
    attempts: Sequence[AttemptMeasurement], inventory: HostInventory | None, draft_hashes: Mapping[str, str]
) -> dict[str, str]:
    """What must be equal for blocks to be joined: the pair key but for what may change between blocks, driver, devices, helpers."""
    first = next(iter(attempts), None)
    fields = {name: value for name, value in (first.pair_fields if first else {}).items() if name not in BETWEEN_BLOCKS}
    if inventory is not None:
        fields |= {"driver": inventory.driver(), "hardware": inventory.hardware_name()}
    return fields | {f"helper of {arm}": sha256 for arm, sha256 in draft_hashes.items()}


def what_differs(earlier: Mapping[str, str], added: Mapping[str, str]) -> list[str]:
    """In words, one for each field; empty where blocks may stand in one comparison."""
    names = sorted({*earlier, *added})
    return [
        difference(n, {"the earlier blocks": earlier.get(n, ""), "the added ones": added.get(n, "")})
        for n in names
        if earlier.get(n, "") != added.get(n, "")
    ]


def joined_plan(parts: Sequence[tuple[JobPlan, Collection[int]]]) -> JobPlan:
    """One plan of the blocks that each part has in it."""
    trials: list[TrialPlan] = []
    for plan, blocks in parts:
        trials += [t for t in plan.trials if t.block in blocks]
    trials.sort(key=lambda t: (t.block, t.index))
    first = parts[0][0]
    return JobPlan(seed=first.seed, trials=[t.model_copy(update={"index": i}) for i, t in enumerate(trials)], workloads=first.workloads)


class Part(NamedTuple):
    """Blocks of one job: what it was to run, how many trials of each gave a number, and what is whole: nothing of it is left to run."""

    planned: Collection[int]
    measured: Mapping[int, int]
    whole: Collection[int]


def own_blocks(parts: Sequence[Part]) -> list[frozenset[int]]:
    """Which blocks count in each part: one that was run again counts where it was whole first.

    Where it never was, it counts where most of it was measured, of equals the last.

    Were a whole block replaced by running it again, one could cancel and try again until the numbers please.
    """
    return [frozenset(block for block in part.planned if _counts_in(i, block, parts)) for i, part in enumerate(parts)]


def _counts_in(i: int, block: int, parts: Sequence[Part]) -> bool:
    """A block without a number counts nowhere, and stays with all that were to run it."""
    there = [n for n, part in enumerate(parts) if block in part.planned]
    measured = [n for n in there if block in parts[n].measured]
    whole = [n for n in measured if block in parts[n].whole]
    return i == (whole[0] if whole else max(measured, key=lambda n: (parts[n].measured[block], n), default=i))


@dataclass(frozen=True)
class Joined:
    """``parts``: the blocks of each job in the order in which they were run; the first is the experiment's own plan."""

    parts: tuple[frozenset[int], ...]
    n_planned: int
    sequential: bool = False

    def seen(self, blocks: Iterable[int]) -> JoinedAnswer | None:
        """How sure an interval over these blocks' values is; None where none of them was added."""
        values = set(blocks)
        counts = [len(values & part) for part in self.parts]
        if not any(counts[1:]):
            return None
        n, n_first, of_the_plan = 0, 0, True
        for i, count in enumerate(counts):
            n += count
            if n >= MIN_BLOCKS:
                n_first, of_the_plan = n, i == 0
                break
        first = FirstLooks(self.n_planned, sequential=self.sequential and of_the_plan)
        return JoinedAnswer(
            n_first=0 if n_first == len(values) else n_first,
            n_blocks=len(values),
            confidence=joined_confidence(first, n_first, len(values)) if n_first else CONFIDENCE,
        )


def named(interval: Interval | Withheld, answer: JoinedAnswer) -> Interval | Withheld:
    """The interval with what it rests on in its method."""
    if not isinstance(interval, Interval) or interval.low is None:
        return interval
    return interval.model_copy(update={"method": f"{interval.method}, {in_words(answer)}"})


def told(verdict: Verdict, answer: JoinedAnswer | None) -> Verdict:
    """A verdict on time says over which blocks it was reached."""
    if answer is None or (verdict.word, verdict.reason) not in BY_TIME:
        return verdict
    return verdict.model_copy(update={"sentence": f"{verdict.sentence}; {in_words(answer)}"})


def in_words(answer: JoinedAnswer) -> str:
    return extending.in_words(answer.n_first, answer.n_blocks, answer.confidence)
