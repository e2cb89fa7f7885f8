"""Lets a host finish its job and take no other, or take jobs again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from specweb.experiments.management.named import BY, NOTHING_DONE, host_named
from specweb.experiments.services.hosts import drain_host, undrain_host


class Command(BaseCommand):
    help = "Lets a host finish the job that it has and take no other, until drain --end."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", metavar="NAME", help="name or id of the host")
        parser.add_argument("--end", action="store_true", help="let the host take jobs again")
        parser.add_argument("--team", default="", help="short name of its team, where several have a host of this name")

    def handle(self, *args: Any, name: str, end: bool, **options: Any) -> None:
        host = host_named(name, options["team"])
        if host.revoked_at:
            raise CommandError(f"{host} was revoked on {host.revoked_at:%Y-%m-%d at %H:%M} UTC: it takes no jobs", returncode=NOTHING_DONE)
        change = undrain_host if end else drain_host
        if not change(host, now=timezone.now(), by=BY):
            raise CommandError(f"{host} {'does not drain' if end else 'drains already'}", returncode=NOTHING_DONE)
        self.stdout.write(f"{host} {'takes jobs again' if end else 'finishes the job that it has and takes no other'}")
