"""Shuts a host out."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from specweb.experiments.management.named import BY, NOTHING_DONE, host_named
from specweb.experiments.services.hosts import revoke_host


class Command(BaseCommand):
    help = "Refuses a host's token from now on. The job that it holds fails and keeps its finished blocks."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="name or id of the host")
        parser.add_argument("--team", default="", help="short name of its team, where several have a host of this name")

    def handle(self, *args: Any, name: str, **options: Any) -> None:
        host = host_named(name, options["team"])
        if not revoke_host(host, now=timezone.now(), by=BY):
            raise CommandError(f"{host} was revoked on {host.revoked_at:%Y-%m-%d at %H:%M} UTC", returncode=NOTHING_DONE)
        self.stdout.write(f"{host} is revoked: its agent is refused from its next call on")
