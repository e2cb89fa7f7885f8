"""Importing a file of another tool, and taking it out again. A file with a fault is not taken in part."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import zstandard
from django.db import transaction
from speccore.importers import TABLE, TOOLS, ImportFault, Mapping, Number, Reading, Run, read_file, tool_of
from speccore.importers.places import MAX_BYTES, plain

from specweb.accounts.audit import record
from specweb.accounts.models import Team, User
from specweb.accounts.services import may_maintain, may_submit
from specweb.experiments.models import Visibility
from specweb.experiments.text import storable

from .models import Draft, MappingTemplate, RawFile, Report, ReportedNumber, ReportedRun

LEVEL = 9
DRAFT_LIFE = timedelta(days=1)
MOST_DRAFTS, MOST_TEMPLATES, MOST_WORDS = 5, 200, 5
_TEMPLATE_NAME = re.compile(r"[\w .()-]{1,80}")


@dataclass(frozen=True)
class About:
    """What is said of a file beside it. ``public_table``: rows of a table that others published, so a source is needed."""

    file_name: str = ""
    title: str = ""
    source_url: str = ""
    notes: str = ""
    visibility: str = Visibility.TEAM
    public_table: bool = False

    def tidy(self) -> About:
        """As it can be stored and shown."""
        return About(
            plain(self.file_name, 200),
            plain(self.title, 200),
            self.source_url.strip(),
            storable(self.notes.strip())[:2_000],
            self.visibility,
            self.public_table,
        )


@dataclass(frozen=True)
class Imported:
    """``report`` is None with faults. ``created``: it was not there before."""

    report: Report | None
    faults: tuple[ImportFault, ...] = ()
    n_faults: int = 0
    created: bool = False
    reading: Reading | None = field(default=None, repr=False)


def read(data: bytes, tool: str = "", mapping: Mapping | None = None) -> Reading:
    return read_file(data[: MAX_BYTES + 1], tool, mapping)


def faults_of(about: About) -> list[ImportFault]:
    """What is wrong with what was said of a file."""
    found = []
    if about.visibility not in Visibility.values:
        found.append(ImportFault("is unknown", f"Known: {', '.join(Visibility.values)}.", "visibility", plain(about.visibility, 40)))
    url = about.source_url
    if url and (wrong := _wrong_url(url)):
        found.append(
            ImportFault(wrong, "Give the address of the page it comes from, such as https://github.com/….", "source_url", plain(url, 60))
        )
    if about.public_table and not url:
        words = "is required for rows of a public table"
        found.append(ImportFault(words, "Give the address of the table, so that who reads a row can see where it stands.", "source_url"))
    return found


def _wrong_url(url: str) -> str:
    if len(url) > 500:
        return f"has {len(url):,} characters, at most 500 are kept"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        secret = parts.username or parts.password
    except ValueError:
        return "is no address"
    if parts.scheme not in ("http", "https") or not host or not url.isprintable() or " " in url:
        return "is no address of a web page"
    return "holds a user name or password" if secret else ""


def import_file(data: bytes, team: Team, user: User, about: About, *, tool: str = "", mapping: Mapping | None = None) -> Imported:
    """Stores a file with its runs; the same file read the same way, where the person may read it, is that one again."""
    about = about.tidy()
    faults = faults_of(about)
    slug = tool or tool_of(data[: MAX_BYTES + 1])
    found = read(data, slug, mapping)
    if faults or found.faults:
        whole = (*faults, *found.faults)
        return Imported(None, whole, len(faults) + found.n_faults, reading=found)
    sha256 = hashlib.sha256(data).hexdigest()
    told = mapping.as_json() if mapping and slug == TABLE else None
    way = hashlib.sha256(json.dumps([slug, told], sort_keys=True).encode()).hexdigest()
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)  # orders two imports of the same file
        known = Report.objects.visible_to(user).filter(team=team, file_sha256=sha256, reading_hash=way).first()
        if known is not None:
            return Imported(known, reading=found)
        report = _stored(data, team, user, about, slug, found, sha256=sha256, way=way, mapping=told)
        record("report.import", report.pk, _shown_name(report), team=team, after=f"{report.n_runs} runs of {report.tool_name}")
    return Imported(report, created=True, reading=found)


def _stored(data: bytes, team: Team, user: User, about: About, slug: str, found: Reading, **more: Any) -> Report:
    title = about.title or about.file_name or (TOOLS[slug].title if slug in TOOLS else "Table")
    report = Report.objects.create(
        team=team,
        imported_by=user,
        visibility=about.visibility,
        tool=slug,
        tool_name=plain(found.tool, 120),
        tool_version=plain(found.version, 120),
        title=title,
        file_name=about.file_name or "file",
        file_sha256=more["sha256"],
        file_bytes=len(data),
        reading_hash=more["way"],
        source_url=about.source_url,
        notes=about.notes,
        mapping=more["mapping"],
        warnings=list(found.warnings),
        model_words=_first(run.model for run in found.runs),
        hardware_words=_first(run.hardware for run in found.runs),
        n_runs=len(found.runs),
    )
    RawFile.objects.create(report=report, content=zstandard.ZstdCompressor(level=LEVEL).compress(data))
    rows = ReportedRun.objects.bulk_create([_run(report, i, run) for i, run in enumerate(found.runs)], batch_size=500)
    numbers = [_number(row, i, n) for row, run in zip(rows, found.runs, strict=True) for i, n in enumerate(run.numbers)]
    ReportedNumber.objects.bulk_create(numbers, batch_size=2_000)
    return report


def _first(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(w for w in words if w))[:MOST_WORDS]


def key_of(words: str) -> str:
    """Letters and digits only, so that "Qwen3-14B" is found in "Qwen/Qwen3_14b-GGUF"."""
    return "".join(c for c in words.lower() if c.isalnum())


def _run(report: Report, index: int, run: Run) -> ReportedRun:
    devices = list(run.devices) or ([run.hardware] if run.hardware else [])
    return ReportedRun(
        report=report,
        index=index,
        line=run.line,
        title=plain(run.title),
        model=plain(run.model),
        engine=plain(run.engine),
        hardware=plain(run.hardware),
        devices=devices,
        arm=plain(run.arm),
        concurrency=run.concurrency,
        prompt_tokens=run.prompt_tokens,
        output_tokens=run.output_tokens,
        context_tokens=run.context_tokens,
        n_requests=run.n_requests,
        n_failed=run.n_failed,
        at=plain(run.at),
        contributor=plain(run.contributor),
        notes=run.notes[:2_000],
        settings=run.settings,
        model_key=key_of(run.model)[:300],
        hardware_key=" ".join(key_of(d) for d in devices)[:600],
    )


def _number(run: ReportedRun, index: int, n: Number) -> ReportedNumber:
    kind = n.kind
    return ReportedNumber(
        run=run,
        index=index,
        key=plain(kind.key, 160),
        name=plain(kind.name, 160),
        unit=kind.unit,
        statistic=kind.statistic or "not told",
        definition=kind.definition,
        caution=kind.caution,
        metric=kind.metric,
        value=n.value,
        low=n.low,
        high=n.high,
        written=plain(n.written, 120),
        note=plain(n.note, 160),
        line=n.line,
    )


def raw_bytes(report: Report) -> bytes:
    """The file as it came (1 statement)."""
    content = bytes(RawFile.objects.get(report=report).content)
    return zstandard.ZstdDecompressor().decompress(content, max_output_size=MAX_BYTES + 1)


def may_change(user: Any, report: Report) -> bool:
    """Who imported it, while they may submit for the team, and its maintainers."""
    own = bool(user.pk) and report.imported_by_id == user.pk and may_submit(user, report.team)
    return own or may_maintain(user, report.team)


def may_set(user: Any, report: Report, visibility: Visibility) -> bool:
    """Private is for who imported it; else nobody could see it any more who may change it."""
    return visibility != Visibility.PRIVATE or (bool(user.pk) and report.imported_by_id == user.pk)


def may_remove_template(user: Any, template: MappingTemplate) -> bool:
    own = template.made_by_id == user.pk and may_submit(user, template.team)
    return own or may_maintain(user, template.team)


def delete_report(report: Report) -> bool:
    """Takes it out with its file, runs and numbers. False if somebody did before."""
    with transaction.atomic():
        row = Report.objects.select_for_update().filter(pk=report.pk).first()
        if row is None:
            return False
        record("report.delete", row.pk, _shown_name(row), team=row.team, before=f"{row.n_runs} runs of {row.tool_name}")
        row.delete()
    return True


def change_visibility(report: Report, visibility: Visibility) -> bool:
    """False if it was that before."""
    with transaction.atomic():
        was = report.visibility
        if not Report.objects.filter(pk=report.pk, visibility=was).exclude(visibility=visibility).update(visibility=visibility):
            return False
        record("report.visibility", report.pk, _shown_name(report), team=report.team, before=was, after=visibility)
    return True


def _shown_name(report: Report) -> str:
    return "a private report" if report.visibility == Visibility.PRIVATE else report.title


# --- templates of mappings ---


def keep_template(team: Team, user: User, name: str, mapping: Mapping) -> ImportFault | None:
    """Keeps a mapping under a name, in place of an earlier one. What is wrong with the name, or None."""
    name = " ".join(name.split())
    if not _TEMPLATE_NAME.fullmatch(name):
        words = "is no name for a template"
        return ImportFault(words, "Letters, digits, spaces, dashes and points, up to 80.", "template", plain(name, 60))
    with transaction.atomic():
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        there = MappingTemplate.objects.filter(team=team)
        if not there.filter(name=name).exists() and there.count() >= MOST_TEMPLATES:
            return ImportFault(f"would be one more than the {MOST_TEMPLATES} that a team keeps", "Remove one first.", "template", name)
        MappingTemplate.objects.update_or_create(team=team, name=name, defaults={"mapping": mapping.as_json(), "made_by": user})
        record("mapping-template.keep", "", name, team=team)
    return None


def delete_template(template: MappingTemplate) -> bool:
    with transaction.atomic():
        gone = bool(MappingTemplate.objects.filter(pk=template.pk).delete()[0])
        if gone:
            record("mapping-template.delete", "", template.name, team=template.team)
    return gone


# --- files on their way in ---


def keep_draft(data: bytes, team: Team, user: User, about: dict[str, Any], now: datetime) -> Draft:
    """Keeps a file until it is imported; a person's oldest make room, and what is older than a day goes."""
    Draft.objects.filter(created_at__lt=now - DRAFT_LIFE).delete()
    kept = list(Draft.objects.filter(user=user).order_by("-created_at").values_list("pk", flat=True))
    Draft.objects.filter(pk__in=kept[MOST_DRAFTS - 1 :]).delete()
    content = zstandard.ZstdCompressor(level=3).compress(data)
    return Draft.objects.create(user=user, team=team, created_at=now, about=storable(about), content=content)


def draft_of(user: User, draft_id: UUID, now: datetime) -> tuple[Draft, bytes] | None:
    """Somebody's own draft and its file, while it is kept."""
    row = Draft.objects.filter(pk=draft_id, user=user, created_at__gte=now - DRAFT_LIFE).select_related("team").first()
    if row is None:
        return None
    return row, zstandard.ZstdDecompressor().decompress(bytes(row.content), max_output_size=MAX_BYTES + 1)
