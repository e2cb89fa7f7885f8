"""The commands for one who runs no server: run FILE|PRESET · presets · push DIR."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import sys
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from speccore import budget, plan, spans
from speccore.errors import SpecError
from speccore.estimate import job_minutes
from speccore.presets import DRAFT, TARGET, Preset, Role, preset, presets
from speccore.protocol import JobPlan
from speccore.reference import PORT, THREADS, reference_builds, reference_commands
from speccore.report import width_line
from speccore.selfrun import JOB, REPORT, RUN, RunIndex
from speccore.spec import ExperimentSpec, parse_spec, problem_lines
from speccore.table import analysis_text
from speccore.workload import Workload
from speccore.workloads import builtin
from speccore.yamltext import data_to_yaml

from . import evidence, local, push, report, table
from .again import read_again
from .config import find_config, load_config
from .connection import Connection
from .filecache import FileCache
from .inventory import Host, take_inventory
from .models import configured_models
from .sweep import sweep_records
from .terminal import BAD_INPUT, FAILED, INTERRUPTED, OK, HashProgress, LiveLine, RunProgress, complain, note, stopping

TOKEN_VARIABLE = "SPECWEB_TOKEN"  # noqa: S105  a name, not a secret


def add_commands(actions: Any, common: argparse.ArgumentParser) -> None:
    run = actions.add_parser("run", parents=[common], help="run an experiment here, with no server")
    run.add_argument("experiment", metavar="FILE|PRESET", nargs="?", help="the experiment, YAML or JSON; or one of `specweb-agent presets`")
    run.add_argument("--target", metavar="ALIAS", help="the model of a preset, by its alias in the configuration")
    run.add_argument("--draft", metavar="ALIAS", help="the draft model of a preset")
    run.add_argument(
        "--model", metavar="ROLE=ALIAS", action="append", default=[], help="another model of a preset; those whose name fits are found"
    )
    run.add_argument("--out", type=Path, help="folder for evidence, analysis and report (default: specweb-run-TIME)")
    run.add_argument("--budget", type=_seconds, metavar="TIME", help="begin no block that would not end in this time: 45m, 3h, 1h30m")
    run.add_argument(
        "--resume", type=Path, metavar="DIR", help="go on with a run that was stopped, killed or out of time; whole blocks are kept"
    )
    run.add_argument(
        "--again", type=Path, metavar="DIR", help="ask here what a run asked elsewhere: its models by hash, its prompts' versions, its seed"
    )
    run.add_argument("--json", type=Path, dest="json_file", help="write the comparisons to this file")
    run.add_argument("--quiet", action="store_true", help="print the result only")
    run.set_defaults(action=_run)

    listed = actions.add_parser("presets", help="the experiments that come with the agent")
    listed.add_argument("name", nargs="?", help="print this one as YAML")
    listed.add_argument("--commands", action="store_true", help="print its launch commands instead, in today's dialect and older ones")
    listed.set_defaults(action=_presets)

    pushed = actions.add_parser("push", parents=[common], help="upload a run's folder to a server, as self-run")
    pushed.add_argument("folder", type=Path, metavar="DIR", help="what `run` has left")
    pushed.add_argument("--server", help="the server's address (default: the configuration's)")
    pushed.add_argument("--token", help=f"your token of the server's account page (default: the environment's {TOKEN_VARIABLE})")
    pushed.add_argument("--team", default="", help="the team that it is for, where you are in several")
    pushed.add_argument("--public", action="store_true", help="anybody may see it; prompts and answers stay with the team")
    pushed.set_defaults(action=_push)


def _seconds(text: str) -> float:
    try:
        return spans.seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)  # the progress lines say the rest
    config = load_config(args.config or find_config())
    spec = experiment_named(args, [alias for alias, _ in configured_models(config)])
    workloads = builtin()
    host = take_inventory(config, FileCache(config.state_dir / "files.json", HashProgress(quiet=args.quiet)))
    for problem in [*host.inventory.problems, *(local.doubts(spec, host.inventory) if spec else [])] if not args.quiet else []:
        note(problem)
    out = args.resume or args.out or Path(f"specweb-run-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    if not args.resume and (out / JOB).exists():
        complain(f"{out} holds another run", f"Name another folder with --out, or go on with it: --resume {out}")
        return BAD_INPUT
    if args.json_file and not args.json_file.resolve().parent.is_dir():
        complain(f"--json {args.json_file}: there is no such folder", "Make the folder first.")
        return BAD_INPUT
    if spec and args.budget is not None and (refusal := _tell_plan(spec, host, workloads, args.budget, quiet=args.quiet)):
        complain(*refusal)
        return BAD_INPUT
    if not args.resume:
        out.mkdir(parents=True, exist_ok=True)
    if host.engine_records:
        sweep_records(host.engine_records, host.container_engines())
    stop = threading.Event()
    progress = RunProgress(quiet=args.quiet)
    told = (stop, progress.running, progress.attempt, progress.planned)
    with stopping(stop.set):
        if spec:
            done = local.run_local(spec, host, workloads, out.resolve(), *told, budget_s=args.budget, on_look=progress.looked)
        else:
            done = local.resume_local(host, out.resolve(), *told, budget_s=args.budget, on_look=progress.looked)
    progress.over()
    if args.json_file:
        data = table.as_json(done.offer, host.inventory.hostname, done.reports, done.analysis)
        evidence.write_whole(args.json_file.resolve(), json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n")
    return _tell_result(done, host, out)


def experiment_named(args: argparse.Namespace, aliases: list[str]) -> ExperimentSpec | None:
    """A file that is there, else a preset with its models put in; None where a run is gone on with, which has it."""
    if args.resume:
        if given := [n for n in ("experiment", "out", "target", "draft", "model", "again") if getattr(args, n)]:
            raise SpecError(f"--resume goes on with a run as it is, and {', '.join(given)} would change it", remedy="Leave it out.")
        return None
    if args.again:
        if given := [n for n in ("experiment", "target", "draft", "model") if getattr(args, n)]:
            raise SpecError(f"--again asks what a run asked, and {', '.join(given)} would change it", remedy="Leave it out.")
        return read_again(args.again)
    if not args.experiment:
        raise SpecError("no experiment is named", remedy="Name a file, or one of `specweb-agent presets`.")
    path = Path(args.experiment)
    a_part = args.experiment in presets()  # such as spare-memory/helper
    if path.exists() or path.suffix in (".yaml", ".yml", ".json") or (len(path.parts) > 1 and not a_part):
        if args.target or args.draft or args.model:
            raise SpecError("--target, --draft and --model are for presets; a file names its models itself", remedy="Leave them out.")
        return local.read_spec(path)
    found = preset(args.experiment)
    named = _named(args)
    models = found.matched(aliases, named) | named
    if not args.quiet and (taken := [f"{role}: {alias}" for role, alias in models.items() if role not in named]):
        note(f"models by their names: {', '.join(taken)}")
    spec, problems = parse_spec(found.bound(models))
    if spec is None:
        raise SpecError("\n".join([f"the preset {found.name} can't be used so:", *problem_lines(problems)]), remedy="")
    return spec


def _named(args: argparse.Namespace) -> dict[str, str]:
    """Role → alias, as given."""
    found = {role: alias for role, alias in ((TARGET, args.target), (DRAFT, args.draft)) if alias}
    for given in args.model:
        role, _, alias = given.partition("=")
        if not role or not alias:
            raise SpecError(f"--model {given}: a role and an alias are due, such as LARGER=qwen-q8", remedy="")
        found[role] = alias
    return found


def _tell_plan(spec: ExperimentSpec, host: Host, workloads: dict[str, Workload], budget_s: float, *, quiet: bool) -> tuple[str, str] | None:
    """Says what is planned and what fits into the time. Returns (message, remedy) if it makes no sense to begin."""
    planned = plan.plan_job(spec, workloads)
    per_block = len(planned.trials) // spec.blocks
    say: Callable[[str], None] = (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr))
    say(
        f"plan: {spec.blocks} block{'' if spec.blocks == 1 else 's'} of {per_block} start{'' if per_block == 1 else 's'}, in {spans.in_words(budget_s)} at most"
    )
    guess = _guess(spec, host, planned)
    if guess is None:
        say("how long a block takes is known after the first")
        return None
    low, high, basis = guess
    say(f"a block takes {spans.in_words(low)} to {spans.in_words(high)} ({basis})")
    decision = budget.before_start(budget_s, low, spec.blocks)
    if decision.start:
        if decision.why_not:
            say(f"by this guess {decision.why_not}; the first block will tell")
        return None
    return f"--budget: {decision.why_not}", "Give more time, or lower the experiment's arms, points, probes or max_tokens. Nothing was run."


def _guess(spec: ExperimentSpec, host: Host, planned: JobPlan) -> tuple[float, float, str] | None:
    """Seconds of a block: lowest, highest, and what that rests on. None if the target isn't here, which is told later."""
    model = next((m for m in host.inventory.models if spec.target.model in (m.alias, m.manifest_hash)), None)
    if model is None:
        return None
    on_gpu = any(d.kind == "gpu" for d in host.inventory.devices)
    minutes = job_minutes(spec, planned, model_bytes=model.size_bytes, on_gpu=on_gpu, workloads=builtin())
    return 60 * minutes.low / spec.blocks, 60 * minutes.high / spec.blocks, minutes.basis


def _tell_result(done: local.LocalRun, host: Host, out: Path) -> int:
    if done.analysis is None:
        error = done.finished.error
        complain(f"the job {done.finished.outcome}" + (f": {error.message}" if error else ""), error.remedy if error else "")
        print(f"evidence: {out}\nto go on: specweb-agent run --resume {out}", file=sys.stderr)
        return INTERRUPTED if done.finished.outcome == "cancelled" else FAILED
    analysis = done.analysis
    index = RunIndex.model_validate(local.read_json(out / RUN))
    told = report.markdown(report.Told(done, index, host, out), analysis)
    evidence.write_whole(out.resolve() / REPORT, told.encode())
    print(analysis_text(analysis))
    if done.cut_short:
        print(f"\nthe time was up: {width_line(analysis, done.n_blocks, done.offer.spec.blocks)} ({done.cut_short})")
    elif index.budget_s is not None or index.decided:
        print(f"\n{width_line(analysis, done.n_blocks, done.offer.spec.blocks)}")
    print(f"\nreport: {out / REPORT}\nevidence: {out}")
    return OK


def _presets(args: argparse.Namespace) -> int:
    if args.name:
        found = preset(args.name)
        print(_commands(found) if args.commands else data_to_yaml(found.data), end="")
        return OK
    listed = presets()
    width = max(map(len, listed))
    for name, each in listed.items():
        print(f"{name:{width}}  {each.question}\n{'':{width}}  specweb-agent run {name} {' '.join(map(_option, each.roles.values()))}")
        if each.needs:
            print(f"{'':{width}}  needs {each.needs}")
    return OK


def _option(role: Role) -> str:
    given = {TARGET: "--target ALIAS", DRAFT: "--draft ALIAS"}.get(role.name, f"--model {role.name}=ALIAS")
    return f"[{given}]" if role.like else given


def _commands(found: Preset) -> str:
    """Of builds that stand for each dialect; a port and the threads are the host's to say."""
    spec, problems = parse_spec(found.as_written())
    if spec is None:
        raise SpecError("\n".join([f"the preset {found.name} can't be read:", *problem_lines(problems)]), remedy="")
    lines = []
    for build in reference_builds(spec.runtime.engine):
        told = reference_commands(spec, build)
        lines.append(f"# {build.words}")
        for arm in spec.arms:
            words = shlex.join(told.argv[arm.name]) if arm.name in told.argv else f"# can't: {'; '.join(told.refusals[arm.name])}"
            lines += [f"# {arm.name}", words.replace(f"'{PORT}'", PORT).replace(f"'{THREADS}'", THREADS)]
        lines.append("")
    return "\n".join(lines)


def _push(args: argparse.Namespace) -> int:
    logging.getLogger().setLevel(logging.WARNING)
    server = (args.server or load_config(args.config or find_config()).server).rstrip("/")
    if not server.startswith(("http://", "https://")):
        complain(f"--server {server!r} is no http:// or https:// address" if server else "no server is named", "Give --server URL.")
        return BAD_INPUT
    token = args.token or os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        complain("no token is given", f"Make one on the server's account page, and set {TOKEN_VARIABLE} or give --token.")
        return BAD_INPUT
    folder = push.read_folder(args.folder, team=args.team, visibility="public" if args.public else "team")
    line = LiveLine()
    connection = Connection(f"{server}/api/v1", token)
    try:
        reply = push.push(folder, connection, line.show)
    finally:
        line.clear()
        connection.close()
    said = "uploaded as self-run" if reply.created else "was uploaded before"
    print(f"{said}: {reply.n_attempts} attempts, {reply.n_files} files\n{reply.url}")
    return OK
