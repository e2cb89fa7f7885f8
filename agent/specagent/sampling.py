"""Draws the continuations of the sampling-rule test: from servers that run, or from the arms of an experiment started one by one."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from speccore.errors import EngineError, ProbeFailed
from speccore.records import Continuation
from speccore.sampling_plan import MOST_FAILED
from speccore.sampling_rule import Answer, RuleResult, sampling_rule, seeds
from speccore.spec import Sampling

from .arm_engine import standing
from .asking import Address, Closed, Target
from .continuing import continuation_of, request_of
from .launch import Stopped
from .load import run_load
from .prepared import PreparedJob

#: Requests between two looks at how far it is.
_BATCH = 200

Say = Callable[[str], None]


class NothingDrafted(EngineError):
    code = "not_engaged"
    remedy = "Is speculation on? See the server's log; the test needs drafts to say anything."


@dataclass(frozen=True)
class Asked:
    """What is drawn: ``n`` continuations of each arm, shared evenly among the prompts, each of ``positions`` tokens."""

    prompts: dict[str, str]
    n: int
    positions: int
    temperature: float
    first_seed: int
    concurrency: int = 1
    timeout_s: float = 60


@dataclass
class Sample:
    """What one arm drew. ``drafted``: tokens that its engine drafted meanwhile, None where it doesn't say."""

    answers: list[Answer] = field(default_factory=list)
    drafted: int | None = None
    n_failed: int = 0
    first_failure: str = ""


def draw(target: Target, dialect: ModuleType, asked: Asked, drawn_with: Sequence[int], stop: threading.Event, say: Say) -> Sample:
    """One continuation for each seed. Raises :class:`ProbeFailed` if more than one in a hundred fails, :class:`Stopped` if told to stop."""
    sampling = Sampling(temperature=asked.temperature)
    names = itertools.cycle(asked.prompts)
    requests = [request_of(dialect, asked.positions, sampling, name, asked.prompts[name], seed) for name, seed in zip(names, drawn_with)]
    sample = Sample()
    for start in range(0, len(requests), _BATCH):
        batch = requests[start : start + _BATCH]
        done = run_load(target, batch, Closed(asked.concurrency, len(batch)), timeout_s=asked.timeout_s, stop=stop)
        if stop.is_set():
            raise Stopped
        for exchange in done.exchanges:
            _take(sample, continuation_of(dialect, exchange, asked.positions))
        if sample.n_failed > MOST_FAILED * len(requests):
            raise ProbeFailed(
                f"{sample.n_failed} of {start + len(batch)} requests failed; the first: {sample.first_failure}",
                remedy="Look at the engine's log: a test of what is left over would be a test of the failures.",
            )
        say(f"{start + len(batch):,} of {len(requests):,} continuations")
    return sample


def _take(sample: Sample, drawn: Continuation) -> None:
    if drawn.problem:
        sample.n_failed += 1
        sample.first_failure = sample.first_failure or drawn.problem
        return
    sample.answers.append(Answer(drawn.item, drawn.seed, tuple(drawn.ids)))
    if drawn.drafted is not None:
        sample.drafted = (sample.drafted or 0) + drawn.drafted


def _of(name: str, say: Say) -> Say:
    return lambda text: say(f"{name}: {text}")


# --- servers that run ---


def compare_servers(
    off: Target, on: Target, dialect: ModuleType, asked: Asked, stop: threading.Event, say: Say
) -> tuple[RuleResult, dict[str, int]]:
    """The baseline draws first and last, so that the control shows what the time between them changes."""
    ranges = seeds(asked.first_seed, 3, asked.n)
    samples = []
    for name, target, drawn_with in zip(("off", "on", "off again"), (off, on, off), ranges):
        samples.append(draw(target, dialect, asked, drawn_with, stop, _of(name, say)))
    return _judged(samples[0], samples[2], {"on": samples[1]}, asked)


# --- the arms of an experiment ---


def compare_arms(
    job: PreparedJob, arms: Sequence[str], asked: Asked, work: Path, stop: threading.Event, say: Say
) -> tuple[RuleResult, dict[str, int]]:
    """Starts the baseline, each of the arms, and the baseline again, which is the control."""
    baseline = job.offer.spec.baseline.name
    order = [baseline, *arms, baseline]
    samples = []
    for i, (arm, drawn_with) in enumerate(zip(order, seeds(asked.first_seed, len(order), asked.n))):
        name = f"[{i + 1}/{len(order)}] {arm}{' again' if i == len(order) - 1 else ''}"
        say(f"{name}: starting")
        with running(job, arm, work, stop) as at:
            target = Target(*at)
            samples.append(draw(target, job.dialect, asked, drawn_with, stop, _of(name, say)))
    return _judged(samples[0], samples[-1], dict(zip(arms, samples[1:-1])), asked)


@contextlib.contextmanager
def running(job: PreparedJob, arm: str, work: Path, stop: threading.Event) -> Iterator[Address]:
    """An arm's engine, as a trial would start it; yields where it answers. Its log is left under ``work``."""
    with standing(job, arm, work, stop) as there:
        yield there.at


def _judged(baseline: Sample, control: Sample, arms: dict[str, Sample], asked: Asked) -> tuple[RuleResult, dict[str, int]]:
    """With how much each arm drafted. Raises what makes a test of it meaningless."""
    if baseline.drafted:
        raise EngineError(
            f"the baseline drafted {baseline.drafted:,} tokens: it speculates itself",
            remedy="Name a server without speculation first.",
        )
    if idle := [name for name, sample in arms.items() if not sample.drafted]:
        raise NothingDrafted(f"{', '.join(idle)} drafted nothing in {asked.n:,} continuations: nothing was tested")
    answers = {name: sample.answers for name, sample in arms.items()}
    result = sampling_rule(baseline.answers, control.answers, answers, positions=asked.positions, seed=asked.first_seed)
    if not isinstance(result, RuleResult):
        raise ProbeFailed(f"nothing can be said: it {result.withheld}", remedy="Ask for more: --n 2000")
    return result, {name: sample.drafted or 0 for name, sample in arms.items()}
