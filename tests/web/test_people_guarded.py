"""What people could do to each other by invitations, roles, names and mail, and can't."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from specweb.accounts.invitations import InvitationRefused, accept, invite
from specweb.accounts.models import AuditEntry, Invitation, Membership, Role, Team, User
from specweb.accounts.oidc import _free_name, follow_groups
from specweb.accounts.services import create_token, set_role
from tests.web.people_api import Program, error
from tests.web.test_account import LONG, as_user, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def fresh_counts(settings: Any) -> Any:
    settings.CACHES = {"default": settings.CACHES["default"] | {"KEY_PREFIX": str(uuid4())}}
    yield settings
    cache.close()


def maintainer(team: Team, name: str) -> User:
    user = User.objects.create_user(name)
    Membership.objects.create(user=user, team=team, role=Role.MAINTAINER)
    return user


class TestInvitationsOfWhoMaintainedATeam:
    @pytest.mark.parametrize("role", [None, Role.SUBMITTER])
    def test_end_with_the_role(self, world: World, role: Role | None) -> None:
        gone = maintainer(world.team, "gone")
        secret = invite(world.team, gone, role="maintainer", now=timezone.now(), uses=5).url.rpartition("/")[2]
        others = invite(world.team, world.owner, role="viewer", now=timezone.now()).invitation
        set_role(world.team, gone, role)
        with pytest.raises(InvitationRefused, match="withdrawn"):
            accept(secret, gone, timezone.now())
        assert gone.role_in(world.team.pk) == role
        assert Invitation.objects.get(pk=others.pk).withdrawn_at is None
        entry = AuditEntry.objects.get(action="invitation.withdraw")
        assert (entry.team, entry.reason) == ("Ours", "gone is no maintainer any more")

    def test_stay_where_the_role_does(self, world: World) -> None:
        secret = invite(world.team, maintainer(world.team, "stays"), role="viewer", now=timezone.now()).url.rpartition("/")[2]
        set_role(world.team, User.objects.get(username="stays"), Role.MAINTAINER)
        assert accept(secret, world.stranger, timezone.now()).role == "viewer"


def test_a_role_that_somebody_gave_is_no_groups_any_more(world: World, settings: Any) -> None:
    settings.SPECWEB_OIDC_GROUPS = {"gpu": ("ours", "viewer")}
    follow_groups(world.stranger, ["gpu"])
    assert world.stranger.role_in(world.team.pk) == "viewer"
    set_role(world.team, world.stranger, Role.SUBMITTER)
    for groups in (["gpu"], []):
        follow_groups(world.stranger, groups)
        assert world.stranger.role_in(world.team.pk) == "submitter"


def test_no_name_is_anothers_in_other_letter_cases(world: World) -> None:
    secret = invite(world.team, world.owner, role="viewer", now=timezone.now()).url.rpartition("/")[2]
    answer = Client().post(f"/join/{secret}", {"username": "OWNER", "password1": LONG, "password2": LONG})
    assert (answer.status_code, "already exists" in text_of(answer)) == (400, True)
    assert _free_name({"preferred_username": "Owner"}, "x@example.org") == "Owner-2"


def test_another_spelling_of_a_name_is_counted_with_it(world: World, fresh_counts: Any) -> None:
    fresh_counts.SPECWEB_LOGINS_PER_MINUTE = 2
    names = ("owner", "ｏwner", "ｏｗner")
    seen = [Client().post("/login/", {"username": name, "password": "a guess"}).status_code for name in names]
    assert seen == [200, 200, 429]


class TestMail:
    """With 12 an hour, so that one mailbox gets two."""

    @pytest.fixture(autouse=True)
    def limited(self, fresh_counts: Any) -> None:
        fresh_counts.SPECWEB_MAILS_PER_HOUR, fresh_counts.EMAIL_HOST = 12, "smtp.example.org"

    def test_of_lost_passwords(self, world: World) -> None:
        User.objects.filter(pk=world.owner.pk).update(email="owner@example.org", email_confirmed_at=timezone.now(), password="pbkdf2_x")
        for address, told in (("owner@example.org", [302, 302, 429]), ("nobody@example.org", [302, 302, 429])):
            answers = [Client().post("/password/reset", {"email": address}) for _ in told]
            assert [a.status_code for a in answers] == told, "the same whether the address is known or not"
            assert "Wait" in text_of(answers[-1])
            assert int(answers[-1]["Retry-After"]) > 0
        assert len(mail.outbox) == 2

    def test_to_confirm_an_address(self, world: World) -> None:
        client = as_user(world.owner)
        seen = [client.post("/account/email", {"email": f"someone-{i}@example.org"}).status_code for i in range(13)]
        assert (seen, len(mail.outbox)) == ([302] * 12 + [400], 12)
        assert User.objects.get(pk=world.owner.pk).email == "someone-11@example.org"

    def test_of_invitations(self, world: World) -> None:
        program = Program(token=create_token(world.owner, "its token")[1])
        asked = {"role": "viewer", "email": "someone@example.org"}
        assert [program.post("teams/ours/invitations", asked).status_code for _ in range(2)] == [201, 201]
        assert "too many mails" in error(program.post("teams/ours/invitations", asked), 400)["message"]
        assert (len(mail.outbox), Invitation.objects.count()) == (2, 2)
        assert program.post("teams/ours/invitations", {"role": "viewer"}).status_code == 201, "one without mail is not counted"


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"name":' * 20_000, b'{"name": "' + b"x" * 300_000 + b'"}'], ids=["[", "{", "large"])
def test_a_body_that_no_program_means_is_refused(world: World, body: bytes) -> None:
    answer = Program(world.owner).post("teams/", body)
    assert error(answer, 413 if len(body) > 256 * 1024 else 400)["remedy"] == "Send a JSON object with the fields name, slug."
