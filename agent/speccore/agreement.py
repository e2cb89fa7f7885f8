"""Whether greedy answers of an arm are those of the baseline: where they part, and whether a near-tie or a wrong token did it.

Greedy decoding has one right answer, but where the target's two likeliest tokens are nearly as likely, another order of the same
sums may choose the other one. So an arm's agreement with the baseline is read beside the baseline's agreement with itself, and
the first token that differs is looked at: what follows it follows from it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .canonical import sha256_of
from .records import StreamRecord, TextRecord
from .tasks import answer_name

#: Where the target itself holds its two likeliest tokens further apart (difference of natural log-probabilities), choosing
#: another than the likeliest is no matter of rounding.
NEAR_TIE_NAT = 0.2
#: Stands for the token that an answer has not, having ended.
END = -1

Kind = Literal["near-tie", "wrong", "not known"]


@dataclass(frozen=True)
class Output:
    """One greedy answer: to which prompt, in which block, its token ids, and whether the length limit ended it."""

    item: str
    block: int
    ids: tuple[int, ...]
    cut: bool = False
    asked: str = ""  # which prompt this was, whatever point or block asked it: see asked_of()


@dataclass(frozen=True)
class Divergence:
    """Where two answers part. ``gap_nat``: how far apart the target holds its two likeliest tokens there, None if nobody asked it."""

    item: str
    block: int
    at: int  # tokens that both have before it
    left: int
    right: int
    gap_nat: float | None = None

    @property
    def kind(self) -> Kind:
        if self.gap_nat is None:
            return "not known"
        return "wrong" if self.gap_nat > NEAR_TIE_NAT else "near-tie"


@dataclass(frozen=True)
class Agreement:
    """Of pairs of answers to the same prompt in the same block (an arm's beside the baseline's, or two of the baseline's)."""

    n: int
    divergences: list[Divergence]

    @property
    def n_identical(self) -> int:
        return self.n - len(self.divergences)

    @property
    def median_first(self) -> float | None:
        """Tokens that answers have in common before they part, where they do."""
        return statistics.median(d.at for d in self.divergences) if self.divergences else None

    def of_kind(self, kind: Kind) -> list[Divergence]:
        return [d for d in self.divergences if d.kind == kind]

    def wrong_prompts(self) -> list[str]:
        return sorted({d.item for d in self.of_kind("wrong")})

    def words(self) -> str:
        """One clause, e.g. ``18 of 20 answers are identical; 2 part, after 14 tokens in the middle: 1 near-tie, 1 wrong``."""
        if not self.n:
            return "there are no greedy answers to compare"
        same = f"{self.n_identical} of {self.n} answers {'is' if self.n_identical == 1 else 'are'} identical"
        if not self.divergences:
            return same
        many = len(self.divergences)
        counted = [(len(self.of_kind("near-tie")), "near-tie"), (len(self.of_kind("wrong")), "wrong")]
        parts = [f"{n} {name}{'s' if n > 1 and name == 'near-tie' else ''}" for n, name in counted if n]
        if unknown := len(self.of_kind("not known")):
            parts.append(f"of {unknown} it is not known whether the target was undecided there")
        middle = f"{self.median_first:g}"
        where = f"after {middle} token{'' if middle == '1' else 's'}{' in the middle' if many > 1 else ''}"
        return f"{same}; {many} part{'s' if many == 1 else ''}, {where}: {', '.join(parts)}"


def first_divergence(left: Output, right: Output) -> int | None:
    """How many tokens both have in common before they part; None if they don't.

    An answer that the length limit cut is no shorter answer: what would have followed is not held against either.
    """
    for at, (one, other) in enumerate(zip(left.ids, right.ids)):
        if one != other:
            return at
    shorter, longer = sorted((left, right), key=lambda o: len(o.ids))
    if len(shorter.ids) == len(longer.ids):
        return None
    return None if shorter.cut else len(shorter.ids)


Gap = Callable[[Output, int], float | None]


def agreement(pairs: Iterable[tuple[Output, Output]], gap_nat: Gap = lambda left, at: None) -> Agreement:
    """``gap_nat`` tells of a left answer, at a token, how far apart the target holds its two likeliest tokens; None where unknown.

    Raises ValueError if a pair's answers are not to one prompt.
    """
    n, found = 0, []
    for left, right in pairs:
        if left.item != right.item:
            raise ValueError(f"answers to {left.item!r} and to {right.item!r} can't be compared")
        n += 1
        if (at := first_divergence(left, right)) is not None:
            tokens = [o.ids[at] if at < len(o.ids) else END for o in (left, right)]
            found.append(Divergence(left.item, left.block, at, tokens[0], tokens[1], gap_nat(left, at)))
    return Agreement(n, found)


def arm_pairs(baseline: Iterable[Output], arm: Iterable[Output]) -> list[tuple[Output, Output]]:
    """The baseline's answer and the arm's, wherever both have one to a prompt in a block."""
    others = {(o.item, o.block): o for o in arm}
    return [(o, others[o.item, o.block]) for o in baseline if (o.item, o.block) in others]


def own_pairs(baseline: Sequence[Output]) -> list[tuple[Output, Output]]:
    """The baseline with itself: the first answer to each prompt and each later one, of whichever block."""
    first: dict[str, Output] = {}
    found = []
    for output in sorted(baseline, key=lambda o: o.block):
        if output.item in first:
            found.append((first[output.item], output))
        else:
            first[output.item] = output
    return found


def asked_of(body: Mapping[str, Any]) -> str:
    """Names the prompt of a request: equal for requests that differ in seed, length or what else comes back only."""
    return sha256_of({key: body[key] for key in ("prompt", "messages") if key in body})[:32]


def read_output(record: StreamRecord, text: TextRecord, block: int) -> Output | str:
    """An answer as the evidence holds it, or in words why it can't be compared."""
    if record.failure:
        return record.failure_message or record.failure
    temperature = text.request.get("temperature")
    if temperature != 0:
        return f"it was drawn at temperature {temperature}, and only greedy answers have one right answer"
    ids = tuple(i for event in text.ids for i in event)
    without = sum(e.without_id for e in record.events)
    if not ids or without:
        return f"{without} of its tokens came without an id" if without else "it came without token ids"
    return Output(answer_name(record.item, record.turn), block, ids, cut=record.final.get("stop_type") == "limit")
