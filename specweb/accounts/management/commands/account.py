"""Closes somebody's account, or opens it again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from specweb.accounts.models import User
from specweb.accounts.services import AccountError
from specweb.accounts.teams import close_account, reopen_account


class Command(BaseCommand):
    help = (
        "close: ends USER's logins, tokens and invitations at once; what they did stays under their name. reopen: lets them log "
        "in again. Exit codes: 0 done, 2 bad input, 3 not possible."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["close", "reopen"])
        parser.add_argument("user", metavar="USER", help="login name")

    def handle(self, *args: Any, action: str, user: str, **options: Any) -> None:
        person = User.objects.filter(username=user).first()
        if person is None:
            raise CommandError(f"there is no user {user!r}", returncode=2)
        try:
            if action == "close":
                close_account(person, timezone.now())
            else:
                reopen_account(person)
        except AccountError as error:
            raise CommandError(str(error), returncode=3) from None
        self.stderr.write(f"the account {user} is {'closed' if action == 'close' else 'open'}")
