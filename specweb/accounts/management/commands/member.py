"""Makes a person's account and gives them a role in a team."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from specweb.accounts import audit
from specweb.accounts.models import Role, Team, User
from specweb.accounts.services import AccountError, create_login_link, set_role

BAD_INPUT, NOTHING_DONE = 2, 3
NO_ROLE = "none"


class Command(BaseCommand):
    help = (
        "Gives USER the role ROLE in TEAM, and makes the account where it is missing (without a password: a login link is the "
        "way in). The role 'none' takes them out of the team. Exit codes: 0 done, 2 bad input, 3 not possible."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", help="login name")
        parser.add_argument("team", metavar="TEAM", help="short name of the team")
        parser.add_argument("role", metavar="ROLE", help=f"{', '.join(Role.values)} or {NO_ROLE}")
        parser.add_argument("--team-name", default="", help="makes the team under this name if it isn't there")
        parser.add_argument("--login-link", action="store_true", help="print a link that logs USER in once, from this machine")
        parser.add_argument("--base-url", default=settings.SPECWEB_BASE_URL, help="address of the service (default %(default)s)")

    def handle(self, *args: Any, user: str, team: str, role: str, **options: Any) -> None:
        if role not in (*Role.values, NO_ROLE):
            raise CommandError(f"{role!r} is no role; roles: {', '.join(Role.values)}, or {NO_ROLE}", returncode=BAD_INPUT)
        leaves = role == NO_ROLE
        found = self._team(team, "" if leaves else options["team_name"])
        person = User.objects.filter(username=user).first()
        if person is None:
            if leaves:
                raise CommandError(f"there is no user {user!r}", returncode=BAD_INPUT)
            person = self._new(user)
        elif not person.is_active and not leaves:
            raise CommandError(f"the account {user!r} is closed", returncode=BAD_INPUT)
        try:
            set_role(found, person, None if leaves else Role(role))
        except AccountError as error:
            raise CommandError(str(error), returncode=NOTHING_DONE) from None
        self.stderr.write(f"{user} is no longer in {found.slug}" if leaves else f"{user} is {role} of {found.slug}")
        if options["login_link"] and not leaves:
            self.stdout.write(options["base_url"].rstrip("/") + reverse("login-once", args=[create_login_link(person, timezone.now())]))

    def _team(self, slug: str, name: str) -> Team:
        found = Team.objects.filter(slug=slug).first()
        if found is not None:
            return found
        if not name:
            known = ", ".join(Team.objects.order_by("slug").values_list("slug", flat=True)) or "none"
            raise CommandError(f"there is no team {slug!r}; teams: {known}. --team-name NAME makes it.", returncode=BAD_INPUT)
        return self._clean(Team(slug=slug, name=name))

    def _new(self, username: str) -> User:
        person = User(username=username)
        person.set_unusable_password()
        return self._clean(person)

    def _clean(self, made: Any) -> Any:
        try:
            made.full_clean()
        except ValidationError as error:
            words = "; ".join(f"{field}: {' '.join(texts)}" for field, texts in error.message_dict.items())
            raise CommandError(words, returncode=BAD_INPUT) from None
        with transaction.atomic():
            made.save()
            if isinstance(made, Team):
                audit.record("team.make", made.pk, made.name, team=made, after=f"{made.name} ({made.slug})")
            else:
                audit.record("account.make", made.pk, made.get_username(), after="by a command")
        return made
