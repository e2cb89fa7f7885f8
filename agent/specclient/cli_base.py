"""What the commands share: options that all take, a client, ids as people have them, files and times."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from speccore.plain import one_line
from speccore.spans import seconds_of

from .client import Client, read_file
from .errors import BadInput, NotFound
from .models import ExperimentWhole
from .screen import Screen

Action = Callable[["Call"], int]
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
STDIN = Path("-")


@dataclass
class Call:
    """One call of a command."""

    args: argparse.Namespace
    screen: Screen

    @cached_property
    def client(self) -> Client:
        return Client.from_config(self.args.profile or "", say=self.screen.note)

    @property
    def json(self) -> bool:
        return bool(self.args.json)


def common_options() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    parent.add_argument("--json", action="store_true", help="for programs: the API's own answer on standard output")
    parent.add_argument(
        "--profile", metavar="NAME", help="the login to use (default: SPECWEB_URL and SPECWEB_TOKEN, else SPECWEB_PROFILE, else default)"
    )
    return parent


def id_in(text: str) -> str:
    """An id, by itself or in the address of a page. Raises :class:`BadInput`."""
    found = _UUID.findall(text)
    if not found:
        raise BadInput(
            f"{one_line(text)[:100]!r} is neither an id nor a page's address", remedy="specweb list shows the ids of experiments."
        )
    return str(found[0]).lower()


@dataclass(frozen=True)
class Named:
    """The job that an id or a page's address means, and its experiment where that was asked for."""

    job: str
    experiment: ExperimentWhole | None


def job_named(client: Client, text: str) -> Named:
    """A job's own id, or an experiment with one job, or a page's address with ``?job=``. Raises :class:`BadInput`."""
    ids = [str(found).lower() for found in _UUID.findall(text)]
    if len(ids) > 1 and "job=" in text:
        return Named(ids[-1], None)
    meant = id_in(text)
    try:
        experiment = client.experiment(meant)
    except NotFound:
        return Named(client.job(meant).id, None)
    jobs = [j for j in experiment.current_jobs if not j.extends]
    if len(jobs) == 1:
        return Named(jobs[0].id, experiment)
    told = "; ".join(f"{j.id} on {j.host or 'any host'}" for j in jobs)
    raise BadInput(f"the experiment has {len(jobs)} jobs", remedy=f"Name one of them: {told}")


def content_of(path: Path, most: int) -> bytes:
    """Of a file, or of standard input for ``-``."""
    if path != STDIN:
        return read_file(path, most)
    content = sys.stdin.buffer.read(most + 1)
    if len(content) > most:
        raise BadInput(f"standard input has more than the {most:,} bytes that are read")
    return content


@contextmanager
def written_to(path: Path | None, screen: Screen) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there whole or not at all."""
    if path is None or path == STDIN:
        screen.out.flush()
        yield screen.out.buffer
        screen.out.buffer.flush()
        return
    part = ""
    try:
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}-")
        with open(handle, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
        part = ""
    except OSError as error:
        raise BadInput(f"{path} can't be written: {error.strerror}") from None
    finally:
        if part:
            with suppress(OSError):
                os.unlink(part)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def span(text: str) -> float:
    """For argparse: 90s, 15m, 3h."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    """For argparse: a whole number above 0."""
    if not text.isascii() or not text.isdecimal() or not int(text[:9]) > 0 or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number above 0")
    return int(text)


def add(
    actions: Any, name: str, action: Action, text: str, common: argparse.ArgumentParser, description: str = ""
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, parents=[common], help=text, description=description or f"{text[0].upper()}{text[1:]}."
    )
    parser.set_defaults(action=action)
    return parser
