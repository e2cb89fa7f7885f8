"""The greedy answers of a run beside the baseline's, and what the target itself held where they part."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from pydantic import ValidationError
from speccore import records
from speccore.agreement import Agreement, Output, agreement, arm_pairs, own_pairs, read_output
from speccore.errors import SpecError
from speccore.protocol import JobOffer
from speccore.records import SecondLook, StreamRecord, TextRecord
from speccore.selfrun import JOB, WORKLOADS
from speccore.workload import Workload

from . import local
from .asking import Closed, Exchange, Request, Target
from .filling import TextServer
from .launch import Stopped
from .load import run_load
from .prepared import PreparedJob
from .sampling import running
from .sinks import FolderSink
from .sse import parse_response

_TIMEOUT_S = 60.0
#: By point, prompt, block and number of tokens: how far apart the target holds its two likeliest ones there.
Gaps = dict[tuple[str, str, int, int], float]


@dataclass
class Answers:
    """The greedy answers of a run. ``left_out``: in words why others can't be compared, with how many."""

    offer: JobOffer
    workloads: dict[str, Workload]
    by_point: dict[str, dict[str, list[Output]]] = field(default_factory=dict)  # point: arm: answers
    looks: dict[str, list[tuple[Output, Output]]] = field(default_factory=dict)  # point: the baseline's answers, and when asked again
    prompts: dict[tuple[str, str], str] = field(default_factory=dict)  # point, item: what was asked
    left_out: Counter[str] = field(default_factory=Counter)

    def pairs(self, point: str) -> dict[str, list[tuple[Output, Output]]]:
        """By arm; the baseline's own name has its pairs with itself, over blocks and with second arms like it."""
        arms, spec = self.by_point[point], self.offer.spec
        baseline = arms.get(spec.baseline.name, [])
        found = {spec.baseline.name: own_pairs(baseline) + self.looks.get(point, [])}
        for arm in spec.arms:
            if arm.is_repeat:
                found[spec.baseline.name] += arm_pairs(baseline, arms.get(arm.name, []))
            elif not arm.is_baseline:
                found[arm.name] = arm_pairs(baseline, arms.get(arm.name, []))
        return found


def read_answers(folder: Path) -> Answers:
    """Raises :class:`SpecError` if the folder holds no run."""
    if not (folder / JOB).exists():
        raise SpecError(f"{folder} holds no run", remedy="Name the folder that specweb-agent run has left.")
    try:
        offer = JobOffer.model_validate(local.read_json(folder / JOB))
        workloads = {name: Workload.model_validate(w) for name, w in local.read_json(folder / WORKLOADS).items()}
    except ValidationError as error:
        raise SpecError(f"the run in {folder} can't be read: it was made by another release", remedy="Run it again.") from error
    answers = Answers(offer, workloads)
    trials = {t.id: t for t in offer.plan.trials}
    for report, attempt in local.counted(offer, FolderSink(folder)):
        if report.outcome != "ok":
            continue
        trial = trials[report.trial]
        lines = [(attempt / name).read_text(encoding="utf-8").splitlines() for name in (records.RECORDS, records.TEXTS)]
        asked: dict[str, Output] = {}  # by probe
        for record_line, text_line in zip(*lines):
            record, text = StreamRecord.model_validate_json(record_line), TextRecord.model_validate_json(text_line)
            if not record.warmup and (output := _add(answers, trial.arm, trial.block, record, text)):
                asked[record.probe] = output
        _look_again(answers, asked, attempt / records.SECOND_LOOK)
    places = [p.key for p in offer.spec.points]
    answers.by_point = dict(sorted(answers.by_point.items(), key=lambda entry: places.index(entry[0])))
    return answers


def _look_again(answers: Answers, asked: dict[str, Output], file: Path) -> None:
    """What the baseline said when it was asked again, beside what it had said; only its attempts have such a file."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        look = SecondLook.model_validate_json(line)
        if not look.problem and look.probe in asked:
            first = asked[look.probe]
            answers.looks.setdefault(look.point, []).append((first, replace(first, ids=tuple(look.ids), cut=look.cut)))


def _add(answers: Answers, arm: str, block: int, record: StreamRecord, text: TextRecord) -> Output | None:
    output = read_output(record, text, block)
    if isinstance(output, str):
        answers.left_out[f"{record.point}: {output}"] += 1
        return None
    answers.by_point.setdefault(record.point, {}).setdefault(arm, []).append(output)
    answers.prompts[record.point, output.item] = str(text.request.get("prompt", ""))
    return output


def judged(answers: Answers, gaps: Gaps) -> dict[str, dict[str, Agreement]]:
    """Point: arm: agreement with the baseline."""
    found: dict[str, dict[str, Agreement]] = {}
    for point in answers.by_point:

        def gap(left: Output, at: int, point: str = point) -> float | None:
            return gaps.get((point, left.item, left.block, at))

        found[point] = {arm: agreement(pairs, gap) for arm, pairs in answers.pairs(point).items()}
    return found


# --- where answers part, the target is asked ---


def divergences(answers: Answers) -> dict[tuple[str, str, int, int], tuple[int, ...]]:
    """Every place where an answer leaves the baseline's, with the tokens that both have before it."""
    places = {}
    for point in answers.by_point:
        for pairs in answers.pairs(point).values():
            lefts = {(left.item, left.block): left for left, _ in pairs}
            for d in agreement(pairs).divergences:
                places[point, d.item, d.block, d.at] = lefts[d.item, d.block].ids[: d.at]
    return places


def ask_target(job: PreparedJob, answers: Answers, work: Path, stop: threading.Event) -> Gaps:
    """Starts the baseline's engine once more and asks it about every divergence. Raises :class:`Stopped` if told to stop."""
    places = divergences(answers)
    with running(job, job.offer.spec.baseline.name, work, stop) as at:
        server = TextServer(job.dialect, at, stop)
        read = {prompt: server.prompt_tokens(prompt) for prompt in {answers.prompts[place[:2]] for place in places}}
        requests = []
        for i, (place, ids) in enumerate(places.items()):
            prompt = answers.prompts[place[:2]]
            path, body = job.dialect.next_token(prompt, read[prompt], ids)
            requests.append(Request(body, path, probe=str(i)))
        done = run_load(Target(*at), requests, Closed(1, len(requests)), timeout_s=_TIMEOUT_S, stop=stop)
    if stop.is_set():
        raise Stopped
    keys = list(places)
    gaps = {keys[int(e.request.probe)]: _gap(job.dialect, e) for e in done.exchanges}
    return {place: gap for place, gap in gaps.items() if gap is not None}


def _gap(dialect: ModuleType, exchange: Exchange) -> float | None:
    try:
        reply = json.loads(parse_response(exchange.segments).text())
        gap: float = dialect.next_gap(reply if isinstance(reply, dict) else {})
    except ValueError:
        return None
    return gap
