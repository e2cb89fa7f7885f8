"""`make demo`: starts the service here, measures the sample experiment, shows the answer, and stays up until Ctrl-C.

Variables: RUN=1 measures again · ONCE=1 measures, writes OUT= and ends · SPECWEB_HOME= · PORT= · LLAMA_SERVER= ·
DATABASE_URL= and BROKER_URL= for servers of your own · EXPERIMENT= for another file than demo/experiment.yaml.
"""

from __future__ import annotations

import io
import json
import logging
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speccore.jobstate import FINAL, JobState
from speccore.spec import ExperimentSpec, parse_spec, problem_lines
from speccore.yamltext import read_yaml

from demo import preflight
from demo.prepare import NoEngine, write_agent_config
from demo.service import ROOT, ChildDied, Service, collect_static
from demo.stack import StackError

if TYPE_CHECKING:
    from specweb.experiments.models import Experiment, Host

AGENT_READY_S = 120.0
WAITING_S = 30.0  # the one host there is has said what it offers; what waits longer waits for ever


class DemoError(RuntimeError):
    """The demo can't go on; the message says why."""


@dataclass(frozen=True)
class Options:
    home: Path
    port: int
    again: bool
    once: bool
    out: Path | None
    database_url: str
    broker_url: str
    experiment: Path

    @classmethod
    def from_environment(cls) -> Options:
        def flag(name: str) -> bool:
            return os.environ.get(name, "").lower() not in ("", "0", "no", "false")

        out = Path(os.environ["OUT"]).expanduser().absolute() if os.environ.get("OUT") else None
        if out is not None and (out.is_dir() or not os.access(out.parent, os.W_OK | os.X_OK)):
            raise DemoError(f"OUT={out} can't be written: name a file in a folder that is there and writable")
        given = int(os.environ.get("PORT") or 8000)
        port = preflight.first_free_port(given)
        if port is None:
            raise DemoError(f"no free port from {given} on; choose another with PORT=")
        if port != given:
            print(f"port {given} is busy, taking {port}")
        return cls(
            home=Path(preflight.default_home()),
            port=port,
            again=flag("RUN") or flag("ONCE"),
            once=flag("ONCE"),
            out=out,
            database_url=os.environ.get("DATABASE_URL", ""),
            broker_url=os.environ.get("BROKER_URL", ""),
            experiment=Path(os.environ.get("EXPERIMENT") or ROOT / "demo" / "experiment.yaml").expanduser().absolute(),
        )


def command(name: str, *arguments: str, **options: Any) -> str:
    """Runs a management command in this process and returns what it printed."""
    from django.core.management import CommandError, call_command

    output = io.StringIO()
    try:
        call_command(name, *arguments, stdout=output, stderr=io.StringIO(), **options)
    except CommandError as error:
        raise DemoError(f"manage.py {name}: {error}") from error
    return output.getvalue()


def step(what: str, began: float) -> None:
    print(f"{what} ({time.monotonic() - began:.1f} s)", flush=True)


def start(service: Service) -> dict[str, Any]:
    """Brings everything up; returns what `bootstrap` said (team, user, …)."""
    began = time.monotonic()
    service.start_servers()
    os.environ.update(service.environment)
    import django

    django.setup()
    logging.getLogger().setLevel(logging.WARNING)  # the parts write logs of their own
    command("migrate", interactive=False, verbosity=0)
    collect_static(service.home, lambda: command("collectstatic", interactive=False, clear=True, verbosity=0) and None)
    step("database and broker", began)

    began = time.monotonic()
    config = write_agent_config(service.home, service.url)
    service.start_web()
    facts: dict[str, Any] = json.loads(command("bootstrap"))
    if not agent_is_known(service.home):
        service.run_agent_command("enrol", "--config", str(config), "--code", facts["enrolment_code"])
    service.start_agent(config)
    wait_for_agent(service)
    step(f"web, worker and agent at {service.url}", began)
    return facts


def agent_host(home: Path) -> Host | None:
    """The host that the local agent's token stands for in this database, if any."""
    from specweb.experiments.services.hosts import host_of_token

    try:
        return host_of_token(json.loads((home / "agent" / "server.json").read_text())["agent_token"])
    except (OSError, ValueError, KeyError):
        return None


def agent_is_known(home: Path) -> bool:
    return agent_host(home) is not None


def wait_for_agent(service: Service) -> None:
    """Returns when the agent has said what this machine offers. Raises :class:`DemoError` if that is no engine or no model."""
    from django.utils import timezone

    began, until = timezone.now(), time.monotonic() + AGENT_READY_S
    while True:
        service.check()
        host = agent_host(service.home)
        if host and host.inventory and host.last_seen_at and host.last_seen_at > began:
            break
        if time.monotonic() > until:
            raise DemoError(f"the agent did not report within {AGENT_READY_S:.0f} s; see {service.home / 'logs' / 'agent.log'}")
        time.sleep(0.2)
    inventory = host.inventory.parsed
    if not inventory.runtimes or len(inventory.models) < 2:
        raise DemoError("the agent can't use what it was given: " + "; ".join(inventory.problems))


def unfinished(experiments: Any) -> Any:
    from specweb.experiments.models import Job

    return Job.objects.filter(experiment__in=experiments).exclude(state__in=[s.value for s in FINAL])


def read_experiment(file: Path) -> ExperimentSpec:
    """Read before anything starts: a slip of the pen should not cost a minute."""
    try:
        spec, problems = parse_spec(read_yaml(file.read_bytes()))
    except (OSError, ValueError) as error:
        raise DemoError(f"{file} can't be read: {error}") from error
    if spec is None:
        raise DemoError("\n".join([f"{file} is no valid experiment:", *problem_lines(problems)]))
    return spec


def choose_experiment(spec: ExperimentSpec, file: Path, again: bool, facts: dict[str, Any]) -> tuple[Experiment, bool]:
    """The experiment to show and whether it is still to be measured. ``again``: a new one, and unfinished ones are cancelled."""
    from django.utils import timezone

    from specweb.accounts.models import Team
    from specweb.experiments.models import Experiment
    from specweb.experiments.services.jobs import request_cancel

    same = Experiment.objects.filter(team=Team.objects.get(slug=facts["team"]), spec_hash=spec.spec_hash()).order_by("-id")
    if again:
        for job in unfinished(same):
            request_cancel(job, now=timezone.now(), by="make demo")
    else:
        if open_job := unfinished(same).order_by("-id").first():
            return open_job.experiment, True
        if processed := same.filter(jobs__state="processed").first():
            return processed, False
    submitted = json.loads(command("submit", str(file), team=facts["team"], user=facts["user"], json=True))
    return Experiment.objects.get(pk=submitted["experiment"]), True


def begun(experiment: Experiment) -> bool:
    """Whether trials of it were measured before this start."""
    from specweb.results.models import Attempt

    return Attempt.objects.filter(trial__job__experiment=experiment).exists()


def follow(service: Service, experiment: Experiment) -> bool:
    """Shows the trials as they end, until the job has. Returns whether it came to a result."""
    from demo.progress import Progress

    job = experiment.jobs.earliest("id")
    progress = Progress(job)
    waiting_since = time.monotonic()
    while True:
        service.check()
        job = progress.look()
        if JobState(job.state) in FINAL:
            break
        if job.state != JobState.WAITING.value:
            waiting_since = time.monotonic()
        elif time.monotonic() - waiting_since > WAITING_S:
            raise DemoError(f"the experiment can't run on this machine: {job.reason}")
        time.sleep(1)
    if job.state != JobState.PROCESSED.value:
        print(f"the job is {job.state}: {job.reason}")
        return False
    return True


def show(experiment: Experiment) -> None:
    """The same table that `specweb-agent run` prints."""
    print("\n" + command("report", str(experiment.pk), table=True), flush=True)


def stay(service: Service, experiment: Experiment, facts: dict[str, Any], report_url: str) -> None:
    """Stays up until Ctrl-C; on a terminal, Enter makes a fresh login link (each works once, for ten minutes)."""

    def login_link() -> None:
        print(f"log in:   {command('login_link', user=facts['user']).strip()}", flush=True)

    print(f"results:  {report_url}")
    login_link()
    terminal = sys.stdin is not None and sys.stdin.isatty()
    print("Ctrl-C stops everything." + (" Enter makes a new login link." if terminal else ""), flush=True)
    while True:
        service.check()
        if not terminal:
            time.sleep(1)
        elif select.select([sys.stdin], [], [], 1)[0]:
            if not sys.stdin.readline():
                terminal = False
            else:
                login_link()


def run(options: Options, service: Service) -> int:
    spec = read_experiment(options.experiment)
    facts = start(service)
    experiment, to_measure = choose_experiment(spec, options.experiment, options.again, facts)
    if to_measure:
        print(f"measuring {experiment.name!r}{', which was interrupted' if begun(experiment) else ''}:", flush=True)
    else:
        print("measured before; RUN=1 measures again")
    measured = follow(service, experiment) if to_measure else True
    report = json.loads(command("report", str(experiment.pk), json=True))
    if measured:
        show(experiment)
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")
        print(f"written: {options.out}")
    if options.once:
        return 0 if measured else 1
    stay(service, experiment, facts, report["url"])
    return 0


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def on_signals(action: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # ignored: under nohup
            signal.signal(number, action)


def main() -> int:
    on_signals(interrupt)
    options = service = None
    try:
        options = Options.from_environment()
        service = Service(options.home, options.port, database_url=options.database_url, broker_url=options.broker_url)
        return run(options, service)
    except KeyboardInterrupt:
        print("\nstopping …", flush=True)
        return 130 if options is None or options.once else 0  # otherwise Ctrl-C is how it ends
    except (DemoError, StackError, NoEngine, ChildDied) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    finally:
        # From here on nothing may cut the stopping short; each step has its own time limit.
        on_signals(signal.SIG_IGN)
        if service is not None:
            service.stop()


if __name__ == "__main__":
    sys.exit(main())
