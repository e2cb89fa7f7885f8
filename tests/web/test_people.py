"""Teams that people make, rename and leave; invitations; accounts that are made, confirmed, reset and closed."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction
from django.test import Client
from django.utils import timezone

from specweb.accounts import teams
from specweb.accounts.invitations import InvitationRefused, accept, invite, sign_up, withdraw
from specweb.accounts.models import ApiToken, AuditEntry, Invitation, Membership, Role, Team, User
from specweb.accounts.services import AccountError, create_token, set_role
from tests.web.test_account import LONG, as_user, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db
NAMED = {"username": "newcomer", "password1": LONG, "password2": LONG}


@pytest.fixture
def smtp(settings: Any) -> Any:
    """As if EMAIL_HOST were set; Django's tests keep mail in memory."""
    settings.EMAIL_HOST = "smtp.example.org"
    return mail


def secret_of(made: Any) -> str:
    return str(made.url.rpartition("/")[2])


def invited(world: World, **more: Any) -> str:
    return secret_of(invite(world.team, world.owner, now=timezone.now(), **{"role": "submitter"} | more))


class TestTeams:
    def test_who_makes_one_maintains_it(self, world: World) -> None:
        answer = as_user(world.stranger).post("/teams/new", {"name": " New  lab ", "slug": "Lab"}, follow=True)
        made = Team.objects.get(slug="lab")
        assert (made.name, world.stranger.role_in(made.pk)) == ("New lab", "maintainer")
        assert "you are its maintainer" in text_of(answer)

    @pytest.mark.parametrize(
        ("name", "slug", "field"),
        [("", "x", "name"), ("x" * 121, "x", "name"), ("x", "ours", "slug"), ("x", "a b", "slug"), ("x", "new", "slug")],
    )
    def test_what_is_wrong_is_named_and_nothing_made(self, world: World, name: str, slug: str, field: str) -> None:
        n = Team.objects.count()
        answer = as_user(world.owner).post("/teams/new", {"name": name, "slug": slug})
        assert answer.status_code == 400
        assert f"{field}:" in text_of(answer)
        assert Team.objects.count() == n

    def test_can_be_left_to_the_operator(self, world: World, settings: Any) -> None:
        settings.SPECWEB_USERS_MAKE_TEAMS = False
        client = as_user(world.owner)
        assert client.post("/teams/new", {"name": "x", "slug": "x"}).status_code == 403
        assert "Make a team" not in text_of(client.get("/account/"))

    def test_is_renamed_under_the_same_address(self, world: World) -> None:
        as_user(world.owner).post("/teams/ours/rename", {"name": "Another"})
        assert Team.objects.get(slug="ours").name == "Another"
        entry = AuditEntry.objects.get(action="team.rename")
        assert (entry.before, entry.after, entry.actor) == ("Ours", "Another", "owner")

    def test_the_last_maintainer_cannot_leave(self, world: World) -> None:
        answer = as_user(world.owner).post("/teams/ours/leave")
        assert answer.status_code == 409
        assert "last maintainer" in text_of(answer)
        assert as_user(world.teammate).post("/teams/ours/leave").status_code == 302
        assert world.teammate.role_in(world.team.pk) is None


class TestInvitations:
    def test_the_link_is_shown_once_and_only_its_hash_kept(self, world: World) -> None:
        client = as_user(world.owner)
        page = client.post("/teams/ours/invitations", {"role": "viewer"}).content.decode()
        secret = re.search(r"/join/(invite_[\w-]+)", page)[1]  # type: ignore[index]
        assert secret not in client.get("/teams/ours/").content.decode()
        assert secret not in str(Invitation.objects.values().get())
        assert secret not in str(list(AuditEntry.objects.values()))

    def test_takes_in_who_is_logged_in_and_is_used_up(self, world: World) -> None:
        secret = invited(world)
        client = as_user(world.stranger)
        assert "Join as stranger" in text_of(client.get(f"/join/{secret}"))
        assert world.stranger.role_in(world.team.pk) is None  # to look is not to join
        assert client.post(f"/join/{secret}")["Location"] == "/teams/ours/"
        assert world.stranger.role_in(world.team.pk) == "submitter"
        again = Client().get(f"/join/{secret}")
        assert (again.status_code, "used up" in text_of(again)) == (404, True)

    def test_makes_an_account_for_who_has_none(self, world: World) -> None:
        client = Client()
        answer = client.post(f"/join/{invited(world)}", NAMED, follow=True)
        assert "you are in Ours" in text_of(answer)
        assert User.objects.get(username="newcomer").role_in(world.team.pk) == "submitter"
        assert client.get("/account/").status_code == 200

    @pytest.mark.parametrize(
        "odd", [{"username": "owner"}, {"password2": "other"}, {"password1": "x", "password2": "x"}, {"username": "a b"}]
    )
    def test_a_form_with_a_fault_makes_nothing(self, world: World, odd: dict[str, str]) -> None:
        n = User.objects.count()
        secret = invited(world)
        assert Client().post(f"/join/{secret}", NAMED | odd).status_code == 400
        assert (User.objects.count(), Invitation.objects.get().n_used) == (n, 0)

    def test_never_lowers_a_role_and_isnt_spent_on_who_has_more(self, world: World) -> None:
        secret = invited(world, role="viewer")
        assert accept(secret, world.owner, timezone.now()).role == "maintainer"
        assert Invitation.objects.get().n_used == 0

    @pytest.mark.parametrize(
        ("change", "word"),
        [({"expires_at": timezone.now() - timedelta(seconds=1)}, "expired"), ({"withdrawn_at": timezone.now()}, "withdrawn")],
    )
    def test_ends(self, world: World, change: dict[str, Any], word: str) -> None:
        secret = invited(world)
        Invitation.objects.update(**change)
        assert word in text_of(as_user(world.stranger).post(f"/join/{secret}"))
        with pytest.raises(InvitationRefused, match=word):
            sign_up("newcomer", LONG, "", timezone.now(), secret=secret)
        assert not User.objects.filter(username="newcomer").exists()

    def test_is_withdrawn_by_a_maintainer_of_its_own_team_only(self, world: World) -> None:
        invited(world)
        pk = Invitation.objects.get().pk
        assert not withdraw(world.other_team, pk, timezone.now())
        assert as_user(world.owner).post(f"/teams/ours/invitations/{pk}/withdraw").status_code == 302
        assert Invitation.objects.get().withdrawn_at is not None

    def test_bound_to_an_address_it_takes_no_other_account(self, world: World) -> None:
        secret = invited(world, email="a@example.org")
        User.objects.filter(pk=world.stranger.pk).update(email="a@example.org")  # typed in, not confirmed
        world.stranger.refresh_from_db()
        with pytest.raises(InvitationRefused, match="confirmed"):
            accept(secret, world.stranger, timezone.now())
        User.objects.filter(pk=world.stranger.pk).update(email="A@example.org", email_confirmed_at=timezone.now())
        world.stranger.refresh_from_db()
        assert accept(secret, world.stranger, timezone.now()).role == "submitter"

    def test_goes_by_mail_where_there_is_mail_and_is_shown_to_nobody(self, world: World, smtp: Any) -> None:
        page = as_user(world.owner).post("/teams/ours/invitations", {"role": "viewer", "email": "a@example.org"}).content.decode()
        assert "/join/" not in page
        assert smtp.outbox[0].to == ["a@example.org"]
        secret = re.search(r"/join/(\S+)", smtp.outbox[0].body)[1]  # type: ignore[index]
        made = sign_up("newcomer", LONG, "", timezone.now(), secret=secret)
        assert (made.email, made.email_confirmed_at is not None) == ("a@example.org", True)

    def test_mail_that_fails_leaves_the_link_to_pass_on(self, world: World, settings: Any) -> None:
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1  # where nobody listens
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        page = as_user(world.owner).post("/teams/ours/invitations", {"role": "viewer", "email": "a@example.org"})
        assert "could not be sent" in text_of(page)
        assert "/join/invite_" in text_of(page)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("role", "king"), ("days", "0"), ("days", "91"), ("days", "x"), ("uses", "101"), ("uses", "-1"), ("email", "no")],
    )
    def test_what_is_wrong_is_named(self, world: World, field: str, value: str) -> None:
        answer = as_user(world.owner).post("/teams/ours/invitations", {"role": "viewer"} | {field: value})
        assert answer.status_code == 400
        assert f"{field}: {value!r}" in text_of(answer) or f"{field}: {value}" in text_of(answer)
        assert not Invitation.objects.exists()

    def test_the_database_itself_refuses_one_use_too_many(self, world: World) -> None:
        invited(world)
        with pytest.raises(IntegrityError), transaction.atomic():
            Invitation.objects.update(n_used=2)


class TestAccounts:
    def test_without_an_invitation_none_is_made(self, world: World, settings: Any) -> None:
        assert Client().post("/sign-up", NAMED).status_code == 404
        settings.SPECWEB_OPEN_SIGNUP = True
        assert Client().post("/sign-up", NAMED)["Location"] == "/account/"
        assert User.objects.get(username="newcomer").memberships.count() == 0

    def test_an_address_is_confirmed_by_the_link_that_went_there(self, world: World, smtp: Any) -> None:
        client = as_user(world.owner)
        client.post("/account/email", {"email": "me@example.org"})
        link = re.search(r"(/account/email/confirm/\S+)", smtp.outbox[0].body)[1]  # type: ignore[index]
        as_user(world.stranger).get(link)
        client.get(link[:-1] + "x")
        assert User.objects.get(username="owner").email_confirmed_at is None
        client.get(link)
        assert User.objects.get(username="owner").email_confirmed_at is not None
        client.post("/account/email", {"email": "other@example.org"})
        client.get(link)
        assert User.objects.get(username="owner").email_confirmed_at is None

    def test_a_lost_password_is_reset_by_a_confirmed_address_only(self, world: World, smtp: Any) -> None:
        world.owner.set_password(LONG)
        world.owner.email = "me@example.org"
        world.owner.save()
        asked = lambda: Client().post("/password/reset", {"email": "me@example.org"}, HTTP_HOST="localhost", follow=True)  # noqa: E731
        assert "Look into your mail" in text_of(asked())
        assert smtp.outbox == []
        User.objects.update(email_confirmed_at=timezone.now())
        assert "Look into your mail" in text_of(asked())
        link = re.search(r"http://127.0.0.1:8000(/password/reset/\S+)", smtp.outbox[0].body)[1]  # type: ignore[index]
        client = Client()
        form = client.get(link, follow=True).redirect_chain[-1][0]
        new = "quite another password"
        assert client.post(form, {"new_password1": new, "new_password2": new})["Location"] == "/login/"
        assert Client().login(username="owner", password=new)
        assert "used up or too old" in text_of(Client().get(link))

    def test_without_mail_the_page_says_who_helps(self, world: World) -> None:
        assert "manage.py login_link" in text_of(Client().get("/password/reset"))
        assert Client().post("/password/reset", {"email": "a@example.org"}).status_code == 200

    def test_a_closed_one_loses_sessions_tokens_and_invitations(self, world: World) -> None:
        set_role(world.team, world.teammate, Role.MAINTAINER)
        client, (_, secret) = as_user(world.owner), create_token(world.owner, "x")
        link = invited(world)
        call_command("account", "close", "owner")
        assert client.get("/account/").status_code == 302
        assert Client(headers={"Authorization": f"Bearer {secret}"}).get("/api/v1/me").status_code == 401
        assert ApiToken.objects.get().revoked_at is not None
        assert "withdrawn" in text_of(Client().get(f"/join/{link}"))
        call_command("account", "reopen", "owner")
        assert client.get("/account/").status_code == 302  # the session is gone, not asleep
        assert ApiToken.objects.get().revoked_at is not None

    def test_the_last_maintainers_is_not_closed(self, world: World) -> None:
        with pytest.raises(AccountError, match="last maintainer"):
            teams.close_account(world.owner, timezone.now())
        assert User.objects.get(username="owner").is_active


def at_once(*doing: Any) -> list[BaseException | None]:
    """Runs all at the same moment, each on a connection of its own; what each raised."""
    ready, raised = threading.Barrier(len(doing)), [None] * len(doing)

    def run(i: int) -> None:
        try:
            ready.wait(timeout=30)
            doing[i]()
        except BaseException as error:
            raised[i] = error  # type: ignore[call-overload]
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(doing))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(raised)


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_an_invitation_is_used_by_one_of_two(self, world: World) -> None:
        for round_ in range(4):
            secret = invited(world)
            both = [User.objects.create_user(f"n{round_}{i}") for i in range(2)]
            raised = at_once(*(lambda u=u, s=secret: accept(s, u, timezone.now()) for u in both))
            assert sorted(type(e).__name__ for e in raised) == ["InvitationRefused", "NoneType"]
            assert Membership.objects.filter(user__in=both).count() == 1

    def test_of_two_maintainers_who_leave_one_stays(self, world: World) -> None:
        set_role(world.team, world.teammate, Role.MAINTAINER)
        raised = at_once(*(lambda u=u: set_role(world.team, u, None) for u in (world.owner, world.teammate)))
        assert sorted(type(e).__name__ for e in raised) == ["AccountError", "NoneType"]
        assert world.team.memberships.filter(role=Role.MAINTAINER).count() == 1

    def test_closing_and_leaving_leave_a_maintainer(self, world: World) -> None:
        set_role(world.team, world.teammate, Role.MAINTAINER)
        set_role(world.team, User.objects.create_user("third"), Role.VIEWER)  # with nobody left, nobody need maintain
        raised = at_once(lambda: teams.close_account(world.owner, timezone.now()), lambda: set_role(world.team, world.teammate, None))
        assert sorted(type(e).__name__ for e in raised) == ["AccountError", "NoneType"]
        assert world.team.memberships.filter(role=Role.MAINTAINER, user__is_active=True).count() == 1
