"""What the commands share: exit codes, complaints, an orderly end on a signal, and progress on standard error."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from speccore.protocol import AttemptReport, Running
from speccore.spans import in_words

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
        self.live = not quiet and self._stream.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        if self.live and text != self._shown:
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


class HashProgress:
    """How far the hashing of a large file is, with the time that is left; elsewhere than at a terminal one line for each."""

    _LARGE, _VERY_LARGE = 64 << 20, 1 << 30

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._line = LiveLine(stream, quiet=quiet)
        self._clock = clock
        self._file: Path | None = None
        self._began = self._shown = 0.0

    def __call__(self, path: Path, done: int, total: int) -> None:
        if total < self._LARGE:
            return
        now = self._clock()
        what = f"hashing {path.name}, {total / 1e9:.1f} GB (once, until it changes)"
        if path != self._file:
            self._file, self._began, self._shown = path, now, 0.0
            if not self._line.live and total >= self._VERY_LARGE:
                self._line.keep(what)
        if done == total:
            self._line.clear()
        elif now - self._shown >= 0.1:
            left = (now - self._began) / done * (total - done)
            self._line.show(f"{what}: {100 * done // total} %, about {in_words(left)} left")
            self._shown = now


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

    def looked(self, text: str, n_spared: int) -> None:
        """An early look has decided an arm."""
        self._n_trials -= n_spared
        self._line.keep(f"{text} ({n_spared} start{'' if n_spared == 1 else 's'} spared)")

    def over(self) -> None:
        self._line.clear()
