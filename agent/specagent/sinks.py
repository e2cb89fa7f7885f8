"""Where a job's results go: a folder on this machine, or the server by way of the spool."""

from __future__ import annotations

import hashlib
import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import zstandard
from pydantic import ValidationError
from speccore.errors import HostError, ServerError, SpecError, SpecWebError
from speccore.protocol import AttemptReport, EvidenceRef

from . import evidence
from .attempt_files import AttemptDone
from .client import Client, Refused, Unreachable
from .launch import disk_error
from .spool import Spool, Spooled, decompressed

log = logging.getLogger(__name__)

_LOOK_S = 0.1
_UPLOAD_WAIT_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class FolderSink:
    """Keeps each attempt as a folder of plain files, so that a person reads them with nothing but an editor.

    ``attempts/TRIAL.N/`` holds the evidence and ``report.json``, which names every file with its SHA-256.
    """

    def __init__(self, out: Path, on_attempt: Callable[[AttemptReport], None] | None = None) -> None:
        """A folder that holds attempts already is gone on with: ``done`` begins with them."""
        self._attempts = out / "attempts"
        self._attempts.mkdir(parents=True, exist_ok=True)
        self._on_attempt = on_attempt
        self.done: list[tuple[AttemptReport, Path]] = sorted(self._earlier(), key=lambda done: done[0].ended_at)
        self._numbers: dict[str, int] = {}
        for report, _ in self.done:
            self._numbers[report.trial] = max(report.n, self._numbers.get(report.trial, 0))

    def _earlier(self) -> Iterator[tuple[AttemptReport, Path]]:
        for path in self._attempts.glob("*/report.json"):
            try:
                yield AttemptReport.model_validate_json(path.read_bytes()), path.parent
            except ValidationError as error:
                said = f"{path} can't be read: {error.errors(include_url=False, include_input=False)[0]['msg']}"
                remedy = "Restore it from a copy, or move its folder away: its block is then run again."
                raise SpecError(said, remedy=remedy) from error

    def next_attempt(self, trial: str) -> int:
        self._numbers[trial] = self._numbers.get(trial, 0) + 1
        return self._numbers[trial]

    def flush(self) -> None:
        """All is where it belongs."""

    def attempt(self, done: AttemptDone) -> None:
        evidence.write_json(done.folder / "report.json", done.report)
        folder = Path(shutil.move(done.folder, self._attempts / f"{done.report.trial}.{done.report.n}"))
        self.done.append((done.report, folder))
        if self._on_attempt:
            self._on_attempt(done.report)


class ServerSink:
    """Spools each attempt, then delivers what waits: between trials, never while something is measured.

    Nothing here waits for the server once ``stop`` is set.
    """

    def __init__(
        self,
        spool: Spool,
        delivery: Delivery,
        job_id: str,
        lease_token: str,
        stop: threading.Event,
        is_away: Callable[[], bool] = lambda: False,
    ) -> None:
        """``is_away``: the server answers no polls now, so that nothing is tried between trials."""
        self._spool, self._delivery, self._job_id, self._lease_token = spool, delivery, job_id, lease_token
        self._stop, self._is_away = stop, is_away

    def next_attempt(self, trial: str) -> int:
        return self._spool.next_attempt(self._job_id, trial)

    def attempt(self, done: AttemptDone) -> None:
        self._spool.store(done, self._lease_token)
        self.flush()

    def flush(self) -> None:
        """Raises only what is final for this agent."""
        if self._is_away():
            return
        try:
            self._delivery.run(self._stop)
        except SpecWebError as error:
            if is_final(error):
                raise
            log.warning("results wait in the spool: %s", error.message)

    def finish(self) -> bool:
        """Delivers all that waits, for as long as it takes, or until it is told to stop: what waits then goes out later.

        Returns whether all is delivered.
        """
        n = 0
        while True:
            try:
                return self._delivery.run(self._stop)
            except SpecWebError as error:
                if is_final(error):
                    raise
                log.warning("results wait in the spool: %s", error.message)
            if self._stop.wait(_UPLOAD_WAIT_S[min(n, len(_UPLOAD_WAIT_S) - 1)]):
                return False
            n += 1


class Delivery:
    """Sends what waits in a thread of its own, one at a time, so that nobody who must stop waits for a slow server."""

    def __init__(self, spool: Spool, client: Client) -> None:
        self._spool, self._client = spool, client
        self._lock = threading.Lock()
        self._thread: _Sending | None = None

    def run(self, stop: threading.Event, timeout_s: float = math.inf) -> bool:
        """True when nothing waits any more; False when it was stopped or took longer, and then the sending goes on by itself.

        Raises what keeps an attempt from being sent now.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            sending = self._sending()
            while sending.is_alive():
                sending.join(_LOOK_S)
                if sending.is_alive() and (stop.is_set() or time.monotonic() > deadline):
                    return False
            if sending.error:
                raise sending.error
            if not self._spool.waiting():
                return True
            if stop.is_set():
                return False

    def _sending(self) -> _Sending:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = _Sending(self._spool, self._client)
                self._thread.start()
            return self._thread


class _Sending(threading.Thread):
    """A daemon: an agent that quits leaves an upload where it is, and the next one goes on from there."""

    def __init__(self, spool: Spool, client: Client) -> None:
        super().__init__(name="delivery", daemon=True)
        self._spool, self._client = spool, client
        self.error: SpecWebError | None = None

    def run(self) -> None:
        try:
            deliver_waiting(self._spool, self._client)
        except SpecWebError as error:
            self.error = error
        except OSError as error:
            self.error = disk_error(error, "the spool can't be delivered")
        except Exception as error:  # else nobody would hear of it
            log.exception("delivery")
            self.error = HostError(f"the agent failed: {type(error).__name__}: {error}", remedy="Report this with the agent's log.")


def is_final(error: SpecWebError) -> bool:
    """Nothing that this agent does can succeed any more."""
    return isinstance(error, Refused) and error.is_final_for_agent


def is_passing(error: SpecWebError) -> bool:
    """The same request may succeed later: the server is away, busy or in trouble, or another request was in the way."""
    if isinstance(error, Refused):
        clash = error.status == 409 and error.error.retry  # with another request, perhaps an earlier one of ours
        return error.status >= 500 or error.status in (408, 429) or clash
    return isinstance(error, Unreachable)


def deliver_waiting(spool: Spool, client: Client) -> int:
    """Sends every attempt that waits; returns how many. Raises :class:`ServerError` if one can't be sent now."""
    n = 0
    for spooled in spool.waiting():
        try:
            _deliver(spooled, client)
        except Refused as refused:
            if refused.is_final_for_agent or is_passing(refused):
                raise
            log.warning("the server will not take attempt %s: %s", spooled.report.attempt_id, refused.message)
            spool.refuse(spooled, f"{refused.error.code}: {refused.message}")
        else:
            spool.remove(spooled)
            n += 1
    return n


def _deliver(spooled: Spooled, client: Client) -> None:
    report, token = spooled.report, spooled.lease_token
    for ref in report.evidence:
        offset = client.blob_offset(ref.sha256, report.job_id, token)
        if offset is not None:
            _send(spooled, ref, client, offset)
    reply = client.report(report, token)
    if reply.missing:  # lost between its upload and the report
        for ref in report.evidence:
            if ref.sha256 in reply.missing:
                _send(spooled, ref, client)
        reply = client.report(report, token)
    if not reply.stored:
        raise ServerError(f"the server did not store attempt {report.attempt_id}; still missing: {', '.join(reply.missing) or 'nothing'}")
    if not reply.counted:
        log.warning("attempt %s is kept by the server and not counted", report.attempt_id)


def _send(spooled: Spooled, ref: EvidenceRef, client: Client, offset: int = 0) -> None:
    """One file; a second time if the bytes were damaged on the way."""
    path, job, token = spooled.blob(ref), spooled.report.job_id, spooled.lease_token
    try:
        client.put_blob(ref.sha256, path, job, token, offset)
    except Refused as refused:
        if refused.error.code != "hash_mismatch" or not _is_whole(path, ref):
            raise
        client.put_blob(ref.sha256, path, job, token)


def _is_whole(path: Path, ref: EvidenceRef) -> bool:
    try:
        return hashlib.sha256(decompressed(path)).hexdigest() == ref.sha256
    except zstandard.ZstdError:
        return False
