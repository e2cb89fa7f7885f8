"""Taking somebody's own prompts as a workload, sharing it, and taking it out of use. A version's content never changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, Q
from speccore.prompt_file import read_prompt_file
from speccore.spec import SpecProblem
from speccore.spec_words import shown

from specweb.accounts import audit
from specweb.accounts.models import Team, User
from specweb.experiments.models import Experiment, Point, Workload


@dataclass(frozen=True)
class Uploaded:
    """``workload`` is None if there are problems, of which the first are listed. ``created``: it was not there before."""

    workload: Workload | None
    problems: list[SpecProblem] = field(default_factory=list)
    n_problems: int = 0
    warnings: list[str] = field(default_factory=list)
    created: bool = False


def upload_workload(
    data: bytes, team: Team, user: User, *, name: str, title: str = "", description: str = "", share: bool = False
) -> Uploaded:
    """Stores a file of prompts as a new version of ``name``, for ``user`` alone or shared; the same file again is the same version."""
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)  # orders two uploads under one name
        taken = _taken(name, team, user)
        there = [] if taken else list(Workload.objects.filter(team=team, name=name).defer("content").order_by("-version"))
        version = there[0].version + 1 if there else 1
        read = read_prompt_file(data, name=name, version=version, title=title, description=description)
        if taken or read.workload is None:
            problems = [SpecProblem(field="name", message=taken, value=shown(name))] if taken else []
            return Uploaded(None, [*problems, *read.problems], read.n_problems + len(problems))
        for known in there:
            same = read.workload.model_copy(update={"version": known.version})
            if _may_read(known, user) and same.content_hash() == known.content_hash:
                if share and known.private:
                    share_workload(known)
                return Uploaded(known, warnings=read.warnings)
        row = Workload.objects.create(
            team=team,
            name=name,
            version=version,
            title=read.workload.title,
            content_hash=read.workload.content_hash(),
            content=read.workload.model_dump(mode="json"),
            owner=user,
            private=not share,
        )
        _recorded(row, "add", after="for the team" if share else "for its owner")
    return Uploaded(row, warnings=read.warnings, created=True)


def _taken(name: str, team: Team, user: User) -> str:
    """Why somebody can't add a version under a name; empty if they can."""
    if Workload.objects.filter(team=None, name=name).exists():
        return f"{name} is a built-in workload: take another name"
    there = list(Workload.objects.filter(team=team, name=name).defer("content"))
    if there and not any(_may_read(w, user) for w in there):
        return f"{name} is the name of somebody’s private workload in this team: take another name"
    return ""


def _may_read(workload: Workload, user: User) -> bool:
    return not workload.private or workload.owner_id == user.pk


def share_workload(workload: Workload) -> bool:
    """Lets the whole team read and use it, for good. False if it was shared before."""
    with transaction.atomic():
        shared = Workload.objects.filter(pk=workload.pk, private=True).exclude(team=None).update(private=False)
        return bool(shared) and _recorded(workload, "share", before="for its owner", after="for the team")


def archive_workload(workload: Workload, now: datetime) -> bool:
    """Offers it no more; experiments that name it keep it. False if that was so before."""
    with transaction.atomic():
        archived = Workload.objects.filter(pk=workload.pk, archived_at=None).exclude(team=None).update(archived_at=now)
        return bool(archived) and _recorded(workload, "archive", before="offered", after="offered no more")


def restore_workload(workload: Workload) -> bool:
    with transaction.atomic():
        restored = Workload.objects.filter(pk=workload.pk, archived_at__isnull=False).update(archived_at=None)
        return bool(restored) and _recorded(workload, "restore", before="offered no more", after="offered")


def _recorded(workload: Workload, verb: str, *, before: str = "", after: str = "") -> bool:
    audit.record(f"workload.{verb}", workload.pk, str(workload), team=workload.team, before=before, after=after)
    return True


def is_named(workload: Workload) -> bool:
    """Whether an experiment, whoever may read it, asks with this version, or with its name where that is left open."""
    if Point.objects.filter(workload=workload).exists():
        return True
    tested = Q(spec__sampling_test__workload__in=[workload.name, str(workload)])
    return Experiment.objects.filter(tested, team=workload.team).exists()


def delete_workload(workload: Workload) -> bool:
    """Removes one that no experiment names. False if one does, or it is built in."""
    if workload.team_id is None:
        return False
    try:
        with transaction.atomic():
            # Who submits holds a lock on the row that its points name; this one waits for it, or makes it fail.
            row = Workload.objects.select_for_update().filter(pk=workload.pk).first()
            if row is None or is_named(row):
                return False
            _recorded(row, "delete", before=f"hash {row.content_hash[:12]}…")
            row.delete()
    except (ProtectedError, IntegrityError):
        return False
    return True
