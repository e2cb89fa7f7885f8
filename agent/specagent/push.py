"""Uploads a run's folder as *self-run*: everything is hashed here first, sent file by file, and hashed again by the server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from speccore.errors import ServerError
from speccore.protocol import PROTOCOL, AttemptReport, decode
from speccore.selfrun import INVENTORY, JOB, RUN, WORKLOADS, RunIndex, RunInvalid, RunReply, RunUpload, SelfRun, read_run

from .connection import Connection, Refused, Unreachable
from .filecache import file_sha256
from .local import read_json
from .spool import compress

_NEVER_ENDED = "A run that was killed can't be uploaded: go on with it (specweb-agent run --resume DIR), or run the experiment again into a new folder."


@dataclass(frozen=True)
class Folder:
    """A run's folder, read and found whole. ``files``: hash → path of each evidence file."""

    path: Path
    upload: RunUpload
    run: SelfRun
    files: dict[str, Path]


def read_folder(path: Path, *, team: str = "", visibility: Literal["team", "public"] = "team") -> Folder:
    """Reads a run and hashes every file of it. Raises :class:`RunInvalid` that names what is missing or changed, and OSError."""
    if not path.is_dir():
        raise RunInvalid(f"{path} is no folder", remedy="Name the folder that specweb-agent run has left.")
    if not (path / RUN).exists():
        left = path / JOB
        raise RunInvalid(
            f"{path} holds no run that has ended: there is no {RUN}",
            remedy=_NEVER_ENDED if left.exists() else "Name the folder that specweb-agent run has left.",
        )
    index = _index(path)
    reports: dict[str, Any] = {}
    folders: dict[str, Path] = {}
    for attempt in index.attempts:
        folder = path / "attempts" / f"{attempt.trial}.{attempt.n}"
        if folder.parent != path / "attempts":
            raise RunInvalid(f"{RUN} names trial {attempt.trial!r}, which is no file name")
        if (folder / "report.json").exists():
            reports[attempt.attempt_id], folders[attempt.attempt_id] = read_json(folder / "report.json"), folder
    upload = RunUpload(
        team=team,
        visibility=visibility,
        run=index,
        job=read_json(path / JOB),
        inventory=read_json(path / INVENTORY),
        workloads=read_json(path / WORKLOADS),
        reports=list(reports.values()),
    )
    run = read_run(upload)
    return Folder(path, upload, run, _files(run, folders))


def push(
    folder: Folder,
    server: Connection,
    say: Callable[[str], None] = lambda text: None,
) -> RunReply:
    """Uploads it, or goes on with an upload that broke off; a run that is there already stays as it is.

    Raises :class:`Refused` in the server's own words, and :class:`Unreachable`.
    """
    try:
        return _push(folder, server, say)
    except Unreachable as error:
        raise Unreachable(error.message, remedy="Look at the network and at the server's address, then push again.") from error


def _push(folder: Folder, server: Connection, say: Callable[[str], None]) -> RunReply:
    missing = _offer(folder, server)
    while isinstance(missing, Refused):
        wanted, team = missing.error.details.get("missing"), str(missing.error.details.get("team", ""))
        unknown = [w for w in wanted if w not in folder.files] if isinstance(wanted, list) and wanted else ["?"]
        if unknown:
            raise ServerError(f"the server asks for files that are not of this run: {', '.join(map(str, unknown[:3]))}")
        for n, sha256 in enumerate(wanted or [], start=1):
            say(f"sending file {n} of {len(wanted or [])}")
            _send(sha256, folder.files[sha256], server, team)
        before, missing = wanted, _offer(folder, server)
        if isinstance(missing, Refused) and missing.error.details.get("missing") == before:
            raise ServerError(
                f"the server has not kept {len(before or [])} files that it took", remedy="Look at the server's log, then push again."
            )
    return missing


def _offer(folder: Folder, server: Connection) -> RunReply | Refused:
    """The server's answer to the run: taken, or the refusal that names the files to send first."""
    try:
        answer = server.retried(lambda: server.once("POST", "runs/", json=folder.upload.model_dump(mode="json")))
    except Refused as refused:
        if refused.error.code == "blobs_missing":
            return refused
        raise
    return server.message(RunReply, answer)


def _send(sha256: str, path: Path, server: Connection, team: str) -> None:
    url = f"runs/blobs/{sha256}?team={team}"
    with tempfile.TemporaryDirectory(prefix="specweb-push-") as room:
        packed = Path(room) / f"{sha256}.zst"
        compress(path, packed)
        offset = server.offset_of(url)
        if offset is None:
            return
        try:
            server.put_file(url, packed, {}, offset)
        except Refused as refused:
            if refused.error.code != "hash_mismatch":
                raise
            server.put_file(url, packed, {})  # what lay there from before was of another packing


def _index(path: Path) -> RunIndex:
    raw = read_json(path / RUN)
    if isinstance(raw, dict) and raw.get("protocol") != PROTOCOL:
        raise RunInvalid(
            f"{RUN} is of protocol {raw.get('protocol')}, this agent speaks {PROTOCOL}", remedy="Push with the agent that made the run."
        )
    try:
        index: RunIndex = decode(RunIndex, raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RunInvalid(f"{RUN} can't be read: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    return index


def _files(run: SelfRun, folders: Mapping[str, Path]) -> dict[str, Path]:
    """Each evidence file by its hash, computed anew. Raises :class:`RunInvalid` for one that is gone or another one by now."""
    files: dict[str, Path] = {}
    problems: list[str] = []
    for report in run.reports:
        for name, sha256, problem in _checked(report, folders[report.attempt_id]):
            if problem:
                problems.append(problem)
            files[sha256] = folders[report.attempt_id] / name
    if problems:
        raise RunInvalid("the evidence is not as it was measured: " + "; ".join(problems[:3]), problems=problems[:100])
    return files


def _checked(report: AttemptReport, folder: Path) -> list[tuple[str, str, str]]:
    found = []
    for ref in report.evidence:
        path = folder / ref.name
        where = f"{folder.name}/{ref.name}"
        if path.parent != folder or not path.is_file():
            found.append((ref.name, ref.sha256, f"{where} is missing"))
        elif file_sha256(path) != ref.sha256:
            found.append((ref.name, ref.sha256, f"{where} was changed"))
        else:
            found.append((ref.name, ref.sha256, ""))
    return found
