"""The command line: run · plan · push · presets · probe · compare · sampling-test · agreement · fit · break-even · enrol · poll · once · inventory · doctor."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import logging
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from speccore.errors import HostError, SpecWebError
from speccore.plain import one_line

from . import __version__, cli_agreement, cli_break_even, cli_fit, cli_plan, cli_probe, cli_run, cli_sampling, doctor
from .client import Client, Unreachable
from .config import Config, find_config, load_config
from .connection import Refused
from .filecache import FileCache
from .findings import is_fit
from .inventory import Host, take_inventory
from .launch import disk_error
from .loop import Loop
from .spool import Spool
from .terminal import BAD_INPUT, FAILED, INTERRUPTED, OK, HashProgress, complain, stopping

log = logging.getLogger(__name__)

_IDENTITY = "server.json"
_HTTP = re.compile(r"https?://[^/\s]+")
#: A thread that has just received bytes waits for others at most this long (the interpreter's default is 5 ms).
_SWITCH_INTERVAL_S = 0.0005


class NotEnrolled(HostError):
    code = "not_enrolled"
    retry = False
    remedy = "Get an enrolment code from the server's Hosts page and run: specweb-agent enrol --server URL --code CODE"


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        result: int = args.action(args)
        return result
    except SpecWebError as error:
        complain(error.message, error.remedy_text)
        blame = error.error.blame if isinstance(error, Refused) else error.blame
        return BAD_INPUT if blame == "spec" or error.code in ("config_invalid", "not_enrolled") else FAILED
    except BrokenPipeError:  # who reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        complain(f"{error.filename or 'the file system'}: {error.strerror or error}", "")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specweb-agent", description="Runs SpecWeb's experiments on this machine.")
    parser.add_argument("--version", action="version", version=f"specweb-agent {__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config",
        type=Path,
        help="configuration (default: SPECWEB_AGENT_CONFIG, ./specweb-agent.yaml, ~/.config/specweb-agent/config.yaml)",
    )
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")

    cli_run.add_commands(actions, common)
    cli_plan.add_command(actions, common, cli_run.experiment_named)
    cli_probe.add_commands(actions)
    cli_sampling.add_commands(actions, common)
    cli_agreement.add_commands(actions, common)
    cli_fit.add_commands(actions, common)
    cli_break_even.add_commands(actions, common)

    enrol = actions.add_parser("enrol", parents=[common], help="make this host known to a server")
    enrol.add_argument("--server", help="the server's address, https://…")
    enrol.add_argument("--code", required=True, help="enrolment code from the server's Hosts page")
    enrol.set_defaults(action=_enrol)

    for name, once, text in (
        ("poll", False, "take jobs from the server until stopped"),
        ("once", True, "take at most one job from the server"),
    ):
        polling = actions.add_parser(name, parents=[common], help=text)
        polling.set_defaults(action=_poll, once=once)

    inventory = actions.add_parser("inventory", parents=[common], help="print what this machine offers, as JSON")
    inventory.set_defaults(action=_inventory)
    checks = actions.add_parser(
        "doctor", parents=[common], help="what this machine is, whether it is fit to measure, what is missing and how to mend it"
    )
    checks.add_argument("--json", action="store_true", help="as JSON, with every flag of every engine build")
    checks.set_defaults(action=_doctor)
    return parser


def _enrol(args: argparse.Namespace) -> int:
    config, path = _config(args)
    server = (args.server or config.server).rstrip("/")
    if not server:
        complain("no server is named", "Give --server URL, or set server in the configuration.")
        return BAD_INPUT
    if not _HTTP.match(server):
        complain(f"--server {server!r} is no http:// or https:// address", "Give it as the server's page shows it.")
        return BAD_INPUT
    if config.server and not _same_machine(config.server, server):  # polls would go to the one that the configuration names
        complain(
            f"--server is {server}, and the configuration {path} names {config.server}",
            f"Set server: {server} in the configuration, then enrol; the code is not used yet.",
        )
        return BAD_INPUT
    part = config.state_dir / f"{_IDENTITY}.part"
    with _room_for_token(part) as f:  # taken first, since the code works only once
        try:
            reply = Client(server).enrol(args.code, socket.gethostname())
        except Unreachable as error:
            raise Unreachable(error.message, remedy="Look at the network and at the server's address, then enrol again.") from error
        identity = {"server": server, "host_id": reply.host_id, "host_name": reply.host_name, "agent_token": reply.agent_token}
        f.write(json.dumps(identity).encode())
        f.truncate()
        f.flush()
        os.fsync(f.fileno())
        os.replace(part, config.state_dir / _IDENTITY)
    print(f"enrolled at {server} as {reply.host_name}; now run: specweb-agent poll")
    return OK


@contextlib.contextmanager
def _room_for_token(part: Path) -> Iterator[BinaryIO]:
    """A file for its owner alone, with room on the disk; gone afterwards unless it was moved. Raises :class:`HostError`."""
    try:
        part.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            os.posix_fallocate(f.fileno(), 0, 4096)
            yield f
    except OSError as error:
        raise disk_error(error, f"the token can't be kept in {part.parent}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _poll(args: argparse.Namespace) -> int:
    config, _ = _config(args)
    identity = _identity(config)
    server = config.server or identity["server"]
    if not _same_machine(server, identity["server"]):
        raise NotEnrolled(
            f"this host is enrolled at {identity['server']}, and the configuration names {config.server}",
            remedy=f"Set server: {identity['server']} in the configuration, or enrol at {config.server} with a code from its Hosts page.",
        )
    with _only_one(config.state_dir):
        client = Client(server, identity["agent_token"])
        loop = Loop(client, Spool(config.state_dir / "spool"), lambda: _host(config), once=args.once)
        with stopping(loop.quit):
            log.info("polling %s as %s", server, identity.get("host_name", "a host"))
            code, message = loop.run()
    if message:
        print(message, file=sys.stderr)
    return code


def _inventory(args: argparse.Namespace) -> int:
    config, _ = _config(args)
    print(_host(config).inventory.model_dump_json(indent=1))
    return OK


def _doctor(args: argparse.Namespace) -> int:
    config, path = _config(args)
    try:
        identity = _identity(config)
    except NotEnrolled:
        identity = {}
    address = config.server or identity.get("server", "")
    enrolled = identity and _same_machine(address, identity["server"])  # a token is shown to no other
    client = Client(address, identity["agent_token"]) if enrolled else None
    found = doctor.findings(config, path, _host(config), doctor.server_findings(client, address))
    fit = is_fit(found)
    if args.json:
        print(json.dumps({"fit": fit, "findings": [asdict(f) for f in found]}, indent=1, ensure_ascii=False))
        return OK if fit else FAILED
    for finding in found:
        mark = {"ok": " ok ", "warn": "warn", "fail": "FAIL"}[finding.level]
        print(f"[{mark}] {finding.subject}: {one_line(finding.text)}")  # names in it are those of files and servers
        if finding.remedy:
            print(f"       → {one_line(finding.remedy)}")
    return OK if fit else FAILED


def _config(args: argparse.Namespace) -> tuple[Config, Path | None]:
    path = args.config or find_config()
    return load_config(path), path


def _host(config: Config) -> Host:
    return take_inventory(config, FileCache(config.state_dir / "files.json", HashProgress()))


def _identity(config: Config) -> dict[str, str]:
    try:
        identity: dict[str, str] = json.loads((config.state_dir / _IDENTITY).read_text(encoding="utf-8"))
    except OSError as error:
        raise NotEnrolled(f"this host is not enrolled at a server ({config.state_dir / _IDENTITY}: {error.strerror})") from error
    return identity


def _same_machine(one: str, other: str) -> bool:
    """A token belongs to the machine that gave it, whose port may move, and is shown to no other."""
    return urlsplit(one).hostname == urlsplit(other).hostname


@contextlib.contextmanager
def _only_one(state_dir: Path) -> Iterator[None]:
    """Two agents would measure each other."""
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state_dir / "agent.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise HostError(f"another agent runs with {state_dir}", remedy="Stop it first, or give this one another state_dir.") from error
        yield


if __name__ == "__main__":
    sys.exit(main())
