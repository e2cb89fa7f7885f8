"""Prints a one-time login link for a person at this machine."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse
from django.utils import timezone

from specweb.accounts.models import User
from specweb.accounts.services import LOGIN_LINK_LIFE, create_login_link


class Command(BaseCommand):
    help = "Prints a link that logs USER in once, within ten minutes, from this machine only."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", required=True, help="login name")
        parser.add_argument("--base-url", default=settings.SPECWEB_BASE_URL, help="address of the service (default %(default)s)")

    def handle(self, *args: Any, user: str, base_url: str, **options: Any) -> None:
        person = User.objects.filter(username=user, is_active=True).first()
        if person is None:
            raise CommandError(f"there is no active user {user!r}", returncode=2)
        link = reverse("login-once", args=[create_login_link(person, timezone.now())])
        self.stdout.write(base_url.rstrip("/") + link)
        minutes = int(LOGIN_LINK_LIFE.total_seconds() / 60)
        self.stderr.write(f"It works once, within {minutes} minutes, from this machine.")
