"""An experiment with all that it rests on as one zip file, written a piece at a time; the same experiment gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from itertools import chain
from typing import Any, cast
from uuid import UUID

import speccore
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from speccore.errors import ServerError
from speccore.measurement import ANALYSIS_VERSION, PARSER_VERSION

from specweb.experiments.models import Experiment, HostInventory, Job, JobMove, Lease, Origin, Point, Viewer, Workload

from . import archive_format as form
from .models import Analysis, ArchiveImport, Attempt, Blob, Comparison, EvidenceFile
from .page_queries import is_member, reads_texts
from .services.archive_facts import facts_of
from .store import CHUNK, open_stored

MOMENTS = ("created_at", "queued_at", "claimed_at", "running_at", "stalled_at", "completed_at", "processed_at", "ended_at")
#: No archive tells when it was made: the same content has the same bytes.
_DATE = (1980, 1, 1, 0, 0, 0)
_PRIVATE = "prompts and answers, which are for the experiment's team"


class EvidenceGone(ServerError):
    code = "evidence_gone"
    retry = False
    remedy = "See whether the evidence folder is whole; then ask again."


def archive_of(experiment: Experiment, user: Viewer) -> Iterator[bytes]:
    """The pieces of the file. Raises :class:`EvidenceGone`, before the first, where stored evidence is not there any more."""
    files = EvidenceFile.objects.filter(attempt__trial__job__experiment=experiment)
    readable = files if reads_texts(user, experiment) else files.filter(private=False)
    blobs = list(Blob.objects.filter(files__in=readable).distinct().order_by("sha256"))
    for blob in blobs:
        try:
            open_stored(blob).close()
        except OSError as error:
            raise EvidenceGone(f"{blob.path} can't be read: {error.strerror or error}", file=blob.path) from None
    return _Writer(experiment, user, blobs).pieces()


def file_name(experiment: Experiment) -> str:
    return f"specweb-experiment-{experiment.pk}.zip"


class _Out:
    """What a zip file is written to; handed on in pieces."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self._kept.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        piece, self._kept = b"".join(self._kept), []
        return piece


class _Writer:
    def __init__(self, experiment: Experiment, user: Viewer, blobs: list[Blob]) -> None:
        self.experiment, self.blobs = experiment, blobs
        self.whole = is_member(user, experiment)
        self.texts = reads_texts(user, experiment)
        self.user = user
        self.out = _Out()
        self.zip = zipfile.ZipFile(cast(Any, self.out), "w")
        self.entries: list[dict[str, Any]] = []

    def pieces(self) -> Iterator[bytes]:
        parts = chain(self._documents(), self._attempts(), self._numbers(), self._evidence(), self._manifest())
        for _ in parts:
            if piece := self.out.taken():
                yield piece
        self.zip.close()
        yield self.out.taken()

    def _add(self, path: str, content: bytes) -> None:
        self.entries.append({"path": path, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
        self.zip.writestr(_info(path, zipfile.ZIP_DEFLATED), content)

    def _document(self, path: str, content: Any) -> None:
        self._add(path, form.document(_plain(content)))

    def _documents(self) -> Iterator[None]:
        self._add(form.README, form.README_TEXT.encode())
        self._document(form.EXPERIMENT, self._experiment())
        self._document(form.WORKLOADS, self._workloads())
        yield
        jobs = list(self.experiment.jobs.select_related("host", "runtime", "target", "inventory").order_by("id"))
        leases = list(Lease.objects.filter(job__in=jobs).select_related("inventory").order_by("job_id", "n"))
        moves: dict[UUID, list[dict[str, Any]]] = {job.pk: [] for job in jobs}
        if self.whole:
            for move in JobMove.objects.filter(job__in=jobs).order_by("pk").values("job_id", "src", "dst", "at", "reason", "by"):
                moves[move.pop("job_id")].append(move)
        self._document(form.JOBS, [self._job(job, [x for x in leases if x.job_id == job.pk], moves[job.pk]) for job in jobs])
        yield
        inventories = {j.inventory_id: j for j in jobs if j.inventory_id} | {x.inventory_id: None for x in leases if x.inventory_id}
        for row in HostInventory.objects.filter(pk__in=inventories).order_by("hash").distinct("hash"):
            self._document(f"inventories/{row.hash}.json", row.content if self.whole else _used_only(row.content, jobs))
            yield

    def _experiment(self) -> dict[str, Any]:
        e = self.experiment
        came = ArchiveImport.objects.filter(experiment=e).first() if e.origin == Origin.IMPORTED else None
        return {
            "id": e.pk,
            "name": e.name,
            "question": e.question,
            "visibility": e.visibility,
            "origin": e.origin,
            "measured_on": came.measured_on if came else "",
            "team": e.team.slug,
            "created_by": e.created_by.get_username() if self.whole and e.created_by else "",
            "created_at": e.created_at,
            "spec": e.spec,
            "spec_hash": e.spec_hash,
        }

    def _workloads(self) -> dict[str, Any]:
        points = Point.objects.filter(experiment=self.experiment).select_related("workload")
        used: dict[str, Workload] = {p.settings["workload"]: p.workload for p in points}
        readable = set(Workload.objects.readable_to(self.user).filter(pk__in=[w.pk for w in used.values()]).values_list("pk", flat=True))
        return {
            name: {
                "name": w.name,
                "version": w.version,
                "title": w.title,
                "builtin": w.team_id is None,
                "content_hash": w.content_hash,
                "content": w.content if w.pk in readable else None,
                "withheld": "" if w.pk in readable else "its prompts are for who may read the workload",
            }
            for name, w in used.items()
        }

    def _job(self, job: Job, leases: list[Lease], moves: list[dict[str, Any]]) -> dict[str, Any]:
        own = ("state", "draft_hashes", "device_uuids", "commands", "plan", "blocks", "block_runs", "looked_after", "decided")
        return {name: getattr(job, name) for name in own} | {
            "id": job.pk,
            "reason": job.reason_for(team=self.whole),
            "error": job.error_for(team=self.whole),
            "host": job.host.name if job.host else "",
            "inventory": job.inventory.hash if job.inventory else "",
            "runtime_hash": job.runtime.manifest_hash if job.runtime else "",
            "target_hash": job.target.manifest_hash if job.target else "",
            "retry_of": job.retry_of_id,
            "extends": job.extends_id,
            "moments": {name: getattr(job, name) for name in MOMENTS},
            "leases": [_lease(x) for x in leases],
            "moves": moves,
            **facts_of(job),
        }

    def _attempts(self) -> Iterator[None]:
        """One document for all, since a list of a million small files helps nobody; each attempt on a line."""
        rows = Attempt.objects.filter(trial__job__experiment=self.experiment).select_related("trial", "lease")
        rows = rows.prefetch_related("evidence__blob").order_by("trial__job_id", "trial__index", "received_at", "pk")
        lines = []
        for a in rows.iterator(500):
            lines.append(form.document(_plain(_attempt(a))) + b"\n")
            yield
        self._add(form.ATTEMPTS, b"".join(lines))
        yield

    def _numbers(self) -> Iterator[None]:
        rows = Attempt.objects.filter(trial__job__experiment=self.experiment, measurement__isnull=False).order_by("pk")
        for pk, version, numbers in rows.values_list("pk", "measurement__parser_version", "measurement__numbers").iterator(50):
            if not self.texts:
                for probe in numbers.get("probes", []):
                    probe.pop("check_note", None)  # it may quote an answer
            self._document(f"measurements/{pk}.json", {"parser_version": version, "numbers": numbers})
            yield
        newest = Analysis.objects.filter(job__experiment=self.experiment).order_by("job_id", "-id").distinct("job_id")
        for a in newest:
            self._document(f"analyses/{a.job_id}.json", {"analysis_version": a.analysis_version, "numbers": a.numbers})
            yield
        current = Comparison.objects.current().filter(job__experiment=self.experiment).select_related("arm", "point")
        own = ("speedup", "ci_low", "ci_high", "n_blocks", "verdict", "reason", "recommended", "analysis_version")
        told = [
            {"job": c.job_id, "arm": c.arm.name, "point": c.point.key} | {name: getattr(c, name) for name in own}
            for c in current.order_by("job_id", "point__position", "arm__position")
        ]
        self._document(form.COMPARISONS, told)
        yield

    def _evidence(self) -> Iterator[None]:
        for blob in self.blobs:
            path, sha256, n_bytes = f"evidence/{blob.sha256}.zst", hashlib.sha256(), 0
            info = _info(path, zipfile.ZIP_STORED)
            info.file_size = blob.stored_bytes
            with open_stored(blob) as source, self.zip.open(info, "w", force_zip64=blob.stored_bytes > 1 << 30) as entry:
                while piece := source.read(CHUNK):
                    sha256.update(piece)
                    n_bytes += len(piece)
                    entry.write(piece)
                    yield
            self.entries.append({"path": path, "bytes": n_bytes, "sha256": sha256.hexdigest()})
            yield

    def _manifest(self) -> Iterator[None]:
        content = {
            "format": form.FORMAT,
            "version": form.VERSION,
            "server": settings.SPECWEB_BASE_URL,
            "release": speccore.__version__,
            "parser_version": PARSER_VERSION,
            "analysis_version": ANALYSIS_VERSION,
            "experiment": str(self.experiment.pk),
            "lacking": self._lacking(),
            "files": sorted(self.entries, key=lambda entry: str(entry["path"])),
        }
        self.zip.writestr(_info(form.MANIFEST, zipfile.ZIP_DEFLATED), form.document(form.sealed(content)))
        yield

    def _lacking(self) -> list[dict[str, Any]]:
        if self.texts:
            return []
        files = EvidenceFile.objects.filter(attempt__trial__job__experiment=self.experiment, private=True).order_by("attempt_id", "name")
        rows = files.values_list("attempt_id", "name", "blob_id", "blob__bytes")
        return [{"attempt": str(a), "name": n, "sha256": sha, "bytes": size, "reason": _PRIVATE} for a, n, sha, size in rows]


def _info(path: str, kind: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _DATE)
    info.compress_type, info.create_system, info.external_attr = kind, 3, 0o100644 << 16
    return info


def _lease(x: Lease) -> dict[str, Any]:
    own = {name: getattr(x, name) for name in ("n", "granted_at", "taken_up_at", "released_at")}
    return own | {"inventory": x.inventory.hash if x.inventory else ""}


def _attempt(a: Attempt) -> dict[str, Any]:
    own = ("n", "state", "outcome", "block_run", "counted", "accepted", "void_reason", "error", "boot_id", "durations_s")
    files = [
        {"name": f.name, "kind": f.kind, "sha256": f.blob_id, "bytes": f.blob.bytes, "private": f.private}
        for f in sorted(a.evidence.all(), key=lambda f: f.name)
    ]
    when = {name: getattr(a, name) for name in ("started_at", "ended_at", "received_at")}
    ids = {"id": a.pk, "job": a.trial.job_id, "trial": a.trial.plan_id, "lease": a.lease.n, "evidence": files}
    return {name: getattr(a, name) for name in own} | when | ids


def _used_only(content: dict[str, Any], jobs: list[Job]) -> dict[str, Any]:
    """Of a machine what the jobs ran with: what else lies there is for its team."""
    models = {j.target.manifest_hash for j in jobs if j.target} | {h for j in jobs for h in j.draft_hashes.values()}
    builds = {j.runtime.manifest_hash for j in jobs if j.runtime}
    used = {
        "models": [m for m in content.get("models", []) if m.get("manifest_hash") in models],
        "runtimes": [r for r in content.get("runtimes", []) if r.get("manifest_hash") in builds],
    }
    return content | used | {"labels": {}, "broken_runtimes": [], "problems": []}


def _plain(content: Any) -> Any:
    """With moments and ids as texts."""
    return json.loads(json.dumps(content, cls=_Encoder))


class _Encoder(DjangoJSONEncoder):
    def default(self, o: Any) -> Any:
        return o.isoformat() if hasattr(o, "isoformat") else super().default(o)
