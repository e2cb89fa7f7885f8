"""The command line ``specweb``: experiments, results and hosts of a SpecWeb service, from a shell and from CI."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from speccore.errors import SpecWebError
from speccore.spec import problem_lines

from . import __version__, cli_account, cli_documents, cli_experiments, cli_files, cli_reading
from .cli_base import Call, common_options
from .errors import ApiError, Invalid
from .gate import BAD_INPUT, FAILED, INTERRUPTED
from .screen import Screen, safe

#: As a shell tells it of a program that writes to a pipe which nobody reads any more.
BROKEN_PIPE = 141
_EPILOG = """\
exit codes: 0 done, and with --watch what was expected holds · 2 something given is wrong · 3 the service refused, failed or is away
  of what was measured: 10 otherwise than expected · 11 inconclusive · 12 invalid · 13 not measured · 14 the time is over · 130 Ctrl-C
"""


def main(argv: Sequence[str] | None = None) -> int:
    screen = Screen()
    args = parser().parse_args(argv)
    try:
        code: int = args.action(Call(args, screen))
        screen.clear()
        sys.stdout.flush()
        return code
    except SpecWebError as error:
        return _told(error, screen, as_json=args.json)
    except BrokenPipeError:  # who reads our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        screen.complain(f"{error.filename or 'the file system'}: {error.strerror or error}")
        return FAILED
    except KeyboardInterrupt:
        screen.clear()
        return INTERRUPTED


def _told(error: SpecWebError, screen: Screen, *, as_json: bool) -> int:
    """The error for a person on standard error, and for a program in the API's own shape."""
    try:
        if as_json:
            screen.json({"error": error.body().model_dump(mode="json")})
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, Invalid) and error.problems:
        n = error.details.get("n_problems")
        count = n if isinstance(n, int) else len(error.problems)
        screen.complain(f"the service finds {count} fault{'' if count == 1 else 's'} in it")
        for line in problem_lines(error.problems):
            screen.note(f"  {safe(line)}")
        if error.remedy_text:
            screen.note(f"  → {safe(error.remedy_text)}")
    else:
        screen.complain(error.message, error.remedy_text)
    if isinstance(error, ApiError):
        return BAD_INPUT if error.error.blame == "spec" or error.status in (400, 404, 413, 415, 422) else FAILED
    return BAD_INPUT if error.blame == "spec" else FAILED


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="specweb",
        description="Asks a SpecWeb service: submits experiments and waits for their verdicts, reads results, hosts and workloads.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--version", action="version", version=f"specweb {__version__}")
    common = common_options()
    actions = found.add_subparsers(title="actions", required=True, metavar="ACTION")
    cli_account.add_commands(actions, common)
    cli_experiments.add_commands(actions, common)
    cli_reading.add_commands(actions, common)
    cli_documents.add_commands(actions, common)
    cli_files.add_commands(actions, common)
    return found


if __name__ == "__main__":
    sys.exit(main())
