"""Makes what a new installation needs: a team, its first maintainer, the built-in workloads, a way in for a host."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone
from speccore.errors import HostRevoked
from speccore.workloads import builtin

from specweb.accounts.models import Role, Team
from specweb.accounts.services import ensure_member
from specweb.experiments.models import Host
from specweb.experiments.services.hosts import create_enrolment_code, create_host, host_of_token
from specweb.experiments.services.submission import seed_workload


class Command(BaseCommand):
    help = (
        "Makes team, user and built-in workloads where they are missing, and prints them as JSON with an enrolment code "
        "for a host, or with --token-file makes the host at once. Safe to run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--team", default="demo", help="the team's short name (default %(default)s)")
        parser.add_argument("--team-name", default="", help="the team's name (default: the short one)")
        parser.add_argument("--user", default="demo", help="login name of a maintainer of the team (default %(default)s)")
        parser.add_argument("--host", default="", help="name of the host that --token-file is for (default: the team's short name)")
        parser.add_argument("--token-file", type=Path, help="keeps the host's agent token here; one that is there and valid stays")

    def handle(self, *args: Any, **options: Any) -> None:
        team, user = ensure_member(options["team"], options["team_name"] or options["team"], options["user"], Role.MAINTAINER)
        workloads = [seed_workload(w) for w in {w.content_hash(): w for w in builtin().values()}.values()]
        made: dict[str, Any] = {"team": team.slug, "user": user.username, "workloads": sorted(str(w) for w in workloads)}
        if path := options["token_file"]:
            host = self._host(team, options["host"] or team.slug, path)
            made["host"] = {"id": str(host.pk), "name": host.name, "token_file": str(path)}
        else:
            made["enrolment_code"] = create_enrolment_code(team, timezone.now())
        self.stdout.write(json.dumps(made, indent=2))

    def _host(self, team: Team, name: str, path: Path) -> Host:
        try:
            known = _host_behind(path)
            if known is not None and known.team_id == team.pk:
                return known
            path.parent.mkdir(parents=True, exist_ok=True)
            with transaction.atomic():  # no host whose token nobody has
                host, token = create_host(team, name)
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                    file.write(token + "\n")
        except OSError as error:
            raise CommandError(f"--token-file {path}: {error.strerror}", returncode=2) from None
        return host


def _host_behind(token_file: Path) -> Host | None:
    try:
        return host_of_token(token_file.read_text().strip()) if token_file.exists() else None
    except HostRevoked:
        return None
