"""``submit``, ``watch``, ``cancel``: an experiment sent, followed to its end, and its verdicts as an exit code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from speccore.spec import ExperimentSpec, SpecProblem, parse_spec, problem_lines
from speccore.yamltext import MAX_BYTES, YamlFault, read_document

from .cli_base import STDIN, Call, add, content_of, id_in, span
from .errors import BadInput, NotPossible, NotTheApi, ServerFailed, Unreachable
from .following import Follower, TimedOut
from .gate import BAD_INPUT, INTERRUPTED, OK, TIMED_OUT, Expectation, Finding, Wanted, exit_code, expectation, findings, refuse_unknown
from .models import Experiment, ExperimentWhole
from .screen import safe
from .tables import compared, job_line

VISIBILITIES = ("private", "team", "public")
_GATE_WORDS = {0: "holds", 10: "otherwise", 11: "inconclusive", 12: "invalid", 13: "not measured"}


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    submit = add(
        actions,
        "submit",
        _submit,
        "submit an experiment; with --watch wait for its verdicts",
        common,
        "Checks the experiment here, then has the service check and store it. With --watch it goes on until every job has ended, and the "
        "exit code says whether what was expected holds.",
    )
    submit.add_argument("file", type=Path, metavar="FILE", help="the experiment in YAML or JSON; - for standard input")
    submit.add_argument("--check", action="store_true", help="only say whether it is sound; nothing is stored")
    add_submission_options(submit)
    watch = add(
        actions,
        "watch",
        _watch,
        "follow an experiment until it has ended",
        common,
        "Follows an experiment; exit codes as of submit --watch.",
    )
    watch.add_argument("id", metavar="ID", help="of the experiment, or its page's address")
    _add_gate_options(watch)
    cancel = add(actions, "cancel", _cancel, "cancel what an experiment still runs", common)
    cancel.add_argument("id", metavar="ID", help="of the experiment, or its page's address")


def add_submission_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--team", default="", metavar="TEAM", help="where you may submit for several")
    parser.add_argument("--visibility", choices=VISIBILITIES, default="", help="who may read it (default: the team)")
    parser.add_argument(
        "--key", default="", metavar="UUID", help="an Idempotency-Key: the same experiment under the same key is stored once"
    )
    parser.add_argument("--watch", action="store_true", help="wait until every job has ended; the exit code tells the verdict")
    _add_gate_options(parser)


def _add_gate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="[ARM][@WORK=]WHAT",
        help="keep (default), no-regression or any, of the best arm at each work; or of an arm, of * for each arm, at a work; may be repeated",
    )
    parser.add_argument("--timeout", type=span, metavar="TIME", help="wait so long at most, such as 90m; the experiment goes on")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _submit(call: Call) -> int:
    args = call.args
    text = content_of(args.file, MAX_BYTES)
    spec = checked_here(call, text, "standard input" if args.file == STDIN else str(args.file))
    if spec is None:
        return BAD_INPUT
    if args.check:
        return _check(call, text)
    return submit_text(call, text, spec)


def checked_here(call: Call, text: bytes, name: str) -> ExperimentSpec | None:
    """The experiment, or None after every fault was told with its line: nothing needs to travel for that."""
    try:
        document = read_document(text)
        spec, problems = parse_spec(document.data)
        problems = [p.model_copy(update={"line": document.line_of(p.field)}) for p in problems]
    except YamlFault as fault:
        spec, problems = None, [SpecProblem(field="", message=f"is neither YAML nor JSON: {fault.words}", line=fault.line)]
    if spec is None:
        _tell_problems(call, problems, name)
    return spec


def _tell_problems(call: Call, problems: list[SpecProblem], name: str) -> None:
    if call.json:
        call.screen.json({"ok": False, "problems": [p.model_dump(mode="json") for p in problems], "spec_hash": None})
    call.screen.complain(f"{name} is no valid experiment")
    for line in problem_lines(problems):
        call.screen.note(f"  {safe(line)}")


def _check(call: Call, text: bytes) -> int:
    problems = call.client.check(text, team=call.args.team)
    if problems:
        _tell_problems(call, problems, str(call.args.file))
        return BAD_INPUT
    if call.json:
        call.screen.json({"ok": True, "problems": [], "spec_hash": None})
    else:
        call.screen.print("sound: it can be submitted")
    return OK


def submit_text(call: Call, text: bytes, spec: ExperimentSpec) -> int:
    """Stores it once, whatever becomes of the answer, and watches it where that is asked for."""
    args, screen = call.args, call.screen
    expected = _expectations(args, spec)
    key = _key(args.key)
    again = f"If it was stored, the same command with --key {key} finds it again."
    try:
        made = call.client.submit(text, team=args.team, visibility=args.visibility, key=key)
    except KeyboardInterrupt:
        screen.note(f"stopped before the service answered. {again}")
        return INTERRUPTED
    except (Unreachable, ServerFailed, NotTheApi) as error:
        screen.note(again)
        raise error
    if args.watch:
        screen.note(f"submitted: {safe(made.name)}\n{made.id}\n{safe(made.url)}")
        return _followed(call, made.id, expected)
    if call.json:
        screen.json(made.raw)
        return OK
    screen.print(made.id)
    screen.print(safe(made.url))
    return OK


def _key(given: str) -> str:
    try:
        return str(UUID(given)) if given else str(uuid4())
    except ValueError:
        raise BadInput(f"--key: {given[:60]!r} is no UUID", remedy="uuidgen draws one.") from None


def _expectations(args: argparse.Namespace, spec: ExperimentSpec | None) -> list[Expectation]:
    expected = [expectation(text) for text in args.expect] or [Expectation(Wanted.KEEP)]
    if spec is not None and (args.expect or args.watch):
        refuse_unknown(expected, spec)
    return expected


def _watch(call: Call) -> int:
    experiment = id_in(call.args.id)
    expected = _expectations(call.args, None)
    return _followed(call, experiment, expected)


def _followed(call: Call, experiment: str, expected: list[Expectation]) -> int:
    args, screen = call.args, call.screen
    try:
        found = Follower(call.client, screen, quiet=args.quiet).until_final(experiment, timeout_s=args.timeout)
    except KeyboardInterrupt:
        screen.note(f"the experiment goes on. Watch it: specweb watch {experiment} · stop it: specweb cancel {experiment}")
        return INTERRUPTED
    except TimedOut as over:
        screen.complain(over.message, over.remedy_text)
        if call.json:
            screen.json(call.client.experiment(experiment).raw | {"gate": {"exit_code": TIMED_OUT, "findings": []}})
        return TIMED_OUT
    judged = findings(found, expected)
    code = exit_code(judged)
    if call.json:
        told = [
            {
                "expected": f.expected,
                "holds": f.code == OK,
                "exit_code": f.code,
                "arm": f.arm,
                "point": f.point,
                "host": f.host,
                "words": f.words,
            }
            for f in judged
        ]
        screen.json(found.raw | {"gate": {"exit_code": code, "findings": told}})
        return code
    tell_comparisons(call, found)
    _tell_gate(call, judged, several=len(found.current_jobs) > 1)
    screen.print(safe(found.url))
    return code


def tell_comparisons(call: Call, found: ExperimentWhole) -> None:
    if found.comparisons:
        head, cells = compared(found.comparisons)
        call.screen.table(head, cells)
        call.screen.print()


def _tell_gate(call: Call, judged: list[Finding], *, several: bool) -> None:
    """What was expected beside what came out, a line each."""
    for f in judged:
        place = " at ".join(p for p in (f.arm, f.point) if p) + (f" on {f.host}" if f.host and (several or not f.arm) else "")
        word = _GATE_WORDS[f.code]
        line = f"{word}: expected {f.expected}" + (f", {place}" if place else "") + f": {f.words}"
        call.screen.print(safe(line))
    call.screen.print()


def _cancel(call: Call) -> int:
    """Each job that has not ended. One that ends meanwhile needs it no more."""
    found: Experiment = call.client.experiment(id_in(call.args.id))
    left = [j for j in found.current_jobs if not j.is_final and not j.cancelling]
    done = []
    for job in left:
        try:
            done.append(call.client.cancel(job.id))
        except NotPossible:
            continue
    if call.json:
        call.screen.json({"jobs": [j.raw for j in done]})
    elif done:
        for job in done:
            call.screen.print(safe(job_line(job)))
    else:
        call.screen.print("nothing to cancel: every job has ended, or is being cancelled")
    return OK
