"""Where a job's results go: a folder on this machine, or the server by way of the spool."""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from speccore.errors import ServerError
from speccore.protocol import AttemptReport, EvidenceRef

from . import evidence
from .client import Client, Refused
from .spool import Spool, Spooled, decompressed
from .trial import AttemptDone

log = logging.getLogger(__name__)

_UPLOAD_WAIT_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class FolderSink:
    """Keeps each attempt as a folder of plain files, so that a person reads them with nothing but an editor.

    ``attempts/TRIAL.N/`` holds the evidence and ``report.json``, which names every file with its SHA-256.
    """

    def __init__(self, out: Path, on_attempt: Callable[[AttemptReport], None] | None = None) -> None:
        self._attempts = out / "attempts"
        self._attempts.mkdir(parents=True, exist_ok=True)
        self._on_attempt = on_attempt
        self._numbers: dict[str, int] = {}
        self.done: list[tuple[AttemptReport, Path]] = []

    def next_attempt(self, trial: str) -> int:
        self._numbers[trial] = self._numbers.get(trial, 0) + 1
        return self._numbers[trial]

    def attempt(self, done: AttemptDone) -> None:
        evidence.write_json(done.folder / "report.json", done.report)
        folder = Path(shutil.move(done.folder, self._attempts / f"{done.report.trial}.{done.report.n}"))
        self.done.append((done.report, folder))
        if self._on_attempt:
            self._on_attempt(done.report)


class ServerSink:
    """Spools each attempt, then delivers what waits: between trials, never while something is measured."""

    def __init__(self, spool: Spool, client: Client, job_id: str, lease_token: str) -> None:
        self._spool, self._client, self._job_id, self._lease_token = spool, client, job_id, lease_token

    def next_attempt(self, trial: str) -> int:
        return self._spool.next_attempt(self._job_id, trial)

    def attempt(self, done: AttemptDone) -> None:
        self._spool.store(done, self._lease_token)
        try:
            deliver_waiting(self._spool, self._client)
        except ServerError as error:
            if isinstance(error, Refused) and error.is_final_for_agent:
                raise
            log.warning("attempt %s waits in the spool: %s", done.report.attempt_id, error.message)

    def finish(self, stop: threading.Event) -> None:
        """Delivers all that waits, for as long as it takes, or until ``stop``: what waits then goes out later."""
        n = 0
        while True:
            try:
                deliver_waiting(self._spool, self._client)
                return
            except ServerError as error:
                if isinstance(error, Refused) and error.is_final_for_agent:
                    raise
                log.warning("results wait in the spool: %s", error.message)
            if stop.wait(_UPLOAD_WAIT_S[min(n, len(_UPLOAD_WAIT_S) - 1)]):
                return
            n += 1


def deliver_waiting(spool: Spool, client: Client) -> int:
    """Sends every attempt that waits; returns how many. Raises :class:`ServerError` if one can't be sent now."""
    n = 0
    for spooled in spool.waiting():
        try:
            _deliver(spooled, client)
        except Refused as refused:
            if refused.is_final_for_agent or refused.status >= 500 or refused.status == 429:
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
        if not client.has_blob(ref.sha256, report.job_id, token):
            _send(spooled, ref, client)
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


def _send(spooled: Spooled, ref: EvidenceRef, client: Client) -> None:
    """One file; a second time if the bytes were damaged on the way."""
    path, job, token = spooled.blob(ref), spooled.report.job_id, spooled.lease_token
    try:
        client.put_blob(ref.sha256, path, job, token)
    except Refused as refused:
        if refused.error.code != "hash_mismatch" or hashlib.sha256(decompressed(path)).hexdigest() != ref.sha256:
            raise
        client.put_blob(ref.sha256, path, job, token)
