"""What the commands share: exit codes, complaints, an orderly end on a signal, and progress on standard error."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from speccore.budget import in_words
from speccore.protocol import AttemptReport, Running

OK, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130

_CLEAR_LINE = "\r\x1b[2K"


def complain(message: str, remedy: str = "") -> None:
    print(f"error: {message}", file=sys.stderr)
    if remedy:
        print(f"  → {remedy}", file=sys.stderr)


def note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


@contextlib.contextmanager
def stopping(stop: Any) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask for an orderly end: the engine is stopped, what was measured is kept."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stop()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


class LiveLine:
    """One line that is written over, at a terminal only; what stays is printed above it."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live = not quiet and self._stream.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        if self._live and text != self._shown:
            self._stream.write(f"{_CLEAR_LINE}{text[:110]}")
            self._stream.flush()
            self._shown = text

    def keep(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(f"{_CLEAR_LINE if self._shown else ''}{text}\n")
            self._stream.flush()
            self._shown = ""

    def clear(self) -> None:
        if self._shown:
            self._stream.write(_CLEAR_LINE)
            self._stream.flush()
            self._shown = ""


class RunProgress:
    """A line for each trial that ended, and below it what happens now, with the time that is left."""

    def __init__(self, *, quiet: bool, stream: TextIO | None = None) -> None:
        self._line = LiveLine(stream, quiet=quiet)
        self._n_trials = 0
        self._n_ended = 0
        self._speeds: dict[str, float] = {}  # trial: tokens/s of its last probe

    def planned(self, n_trials: int) -> None:
        self._n_trials = n_trials

    def running(self, running: Running) -> None:
        if running.tokens_per_s is not None:
            self._speeds[running.trial] = running.tokens_per_s
        parts = [f"[{self._n_ended + 1}/{self._n_trials}] {running.trial} {running.phase}"]
        if running.n_probes:
            parts.append(f"{running.probe} of {running.n_probes}")
        if running.tokens_per_s is not None:
            parts.append(f"{running.tokens_per_s:.1f} tokens/s")
        parts.append(f"about {in_words(running.eta_s)} left" if running.eta_s is not None else "time left: known after the first trial")
        if running.note:
            parts.append(running.note)
        self._line.show(" · ".join(parts))

    def attempt(self, report: AttemptReport) -> None:
        self._n_ended += 1
        seconds = (report.ended_at - report.started_at).total_seconds()
        speed = f"{self._speeds[report.trial]:7.1f} tokens/s" if report.trial in self._speeds else " " * 16
        result = report.outcome if not report.error else f"{report.outcome}: {report.error.message.splitlines()[0][:100]}"
        self._line.keep(f"[{self._n_ended}/{self._n_trials}] {report.trial:24} {seconds:6.1f} s {speed}  {result}")

    def over(self) -> None:
        self._line.clear()
