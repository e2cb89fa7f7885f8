"""The account page: who one is, tokens that are shown once, passwords, other browsers; teams' roles; the command that makes members."""

from __future__ import annotations

import html
import re
import threading
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError
from django.db import connection, connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from specweb.accounts import services
from specweb.accounts.models import ApiToken, Membership, Role, Team, User
from specweb.accounts.services import AccountError, create_token, revoke_token, set_role, token_of
from tests.web.people_api import Program, error
from tests.web.test_ways_in import refused, run, user_of
from tests.worlds import World

pytestmark = pytest.mark.django_db


def user_behind(secret: str, now: datetime) -> User | None:
    token = token_of(secret, now)
    return token.user if token else None


LONG = "a long enough password"


def as_user(user: User | None, **options: Any) -> Client:
    client = Client(**options)
    if user is not None:
        client.force_login(user)
    return client


def text_of(answer: Any) -> str:
    """What a reader sees: without markup, spaces folded."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def made_token(answer: Any) -> str:
    found = re.search(r"SPECWEB_TOKEN=(swt_[\w-]+)", answer.content.decode())
    assert found, answer.content.decode()
    return found[1]


class TestTokens:
    def test_is_shown_once_and_works(self, world: World) -> None:
        client = as_user(world.owner)
        answer = client.post("/account/tokens", {"name": "  my   laptop "})
        secret = made_token(answer)
        assert answer.status_code == 200
        assert "no-store" in answer["Cache-Control"]
        assert "curl -H" in text_of(answer)
        page = client.get("/account/").content.decode()
        assert secret not in page
        assert secret[:12] in page
        assert "my laptop" in page
        told = Program(token=secret).get("me").json()
        assert told == {"user": "owner", "teams": [{"slug": "ours", "name": "Ours", "role": "maintainer"}]}

    def test_only_its_hash_is_kept(self, world: World) -> None:
        token, secret = create_token(world.owner, "x")
        assert secret not in str(ApiToken.objects.values().get())
        assert (token.prefix, len(token.hash)) == (secret[:12], 64)
        assert len(secret) > 40

    def test_last_used_is_told_to_the_minute(self, world: World) -> None:
        _, secret = create_token(world.owner, "x")
        now = timezone.now()
        used = lambda: ApiToken.objects.get().last_used_at  # noqa: E731
        assert user_behind(secret, now) == world.owner
        assert used() == now
        with CaptureQueriesContext(connection) as captured:
            assert user_behind(secret, now + timedelta(seconds=59)) == world.owner
        assert (used(), len(captured)) == (now, 1)
        assert user_behind(secret, now + timedelta(seconds=60)) == world.owner
        assert used() == now + timedelta(seconds=60)

    def test_a_revoked_one_is_refused_in_words(self, world: World) -> None:
        client, program = as_user(world.owner), Program(world.owner)
        token = ApiToken.objects.get()
        assert program.get("me").status_code == 200
        answer = client.post(f"/account/tokens/{token.pk}/revoke", follow=True)
        assert "The token a program is revoked" in text_of(answer)
        assert token.prefix not in answer.content.decode()
        said = error(program.get("me"), 401)
        assert (said["code"], said["retry"]) == ("not_authenticated", False)
        assert said["message"].startswith("the token 'a program' was revoked on 20")
        assert "/account/" in said["remedy"]
        assert "was revoked before" in text_of(client.post(f"/account/tokens/{token.pk}/revoke", follow=True))

    def test_so_is_that_of_a_closed_account(self, world: World) -> None:
        program = Program(world.owner)
        User.objects.filter(pk=world.owner.pk).update(is_active=False)
        assert "'owner' of this token is closed" in error(program.get("me"), 401)["message"]

    def test_nobody_revokes_anothers(self, world: World) -> None:
        token, secret = create_token(world.owner, "x")
        for other in (world.teammate, world.stranger):
            as_user(other).post(f"/account/tokens/{token.pk}/revoke")
        assert revoke_token(world.stranger, 10**30, timezone.now()) is None
        assert user_behind(secret, timezone.now()) == world.owner
        assert as_user(world.owner).post(f"/account/tokens/{10**30}/revoke").status_code == 302

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("", "needs a name"),
            (" \x00 ", "needs a name"),
            ("x" * 81, "has 81 characters, at most 80"),
            ("taken", "have a token 'taken' already"),
        ],
    )
    def test_names_that_cannot_be(self, world: World, name: str, said: str) -> None:
        create_token(world.owner, "taken")
        answer = as_user(world.owner).post("/account/tokens", {"name": name})
        assert answer.status_code == 400
        assert said in text_of(answer)
        assert 'aria-invalid="true"' in answer.content.decode()
        assert ApiToken.objects.count() == 1

    def test_a_revoked_ones_name_is_free_again(self, world: World) -> None:
        token, _ = create_token(world.owner, "ci")
        revoke_token(world.owner, token.pk, timezone.now())
        assert create_token(world.owner, "ci")[0].pk != token.pk
        assert create_token(world.stranger, "ci")

    def test_not_without_end(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(services, "MAX_TOKENS", 2)
        create_token(world.owner, "1"), create_token(world.owner, "2")
        with pytest.raises(AccountError, match="revoke one first"):
            create_token(world.owner, "3")

    def test_markup_in_a_name_is_text(self, world: World) -> None:
        client, name = as_user(world.owner), "<script>alert(1)</script>"
        for answer in (
            client.post("/account/tokens", {"name": name}),
            client.get("/account/"),
            client.post("/account/tokens", {"name": name}),
        ):
            assert "<script>alert" not in answer.content.decode()
            assert name in text_of(answer).replace("The token ", "") or html.escape(name) in answer.content.decode()


class TestPassword:
    def test_who_came_by_a_link_sets_a_first_one(self, world: World) -> None:
        world.owner.set_unusable_password()
        world.owner.save()
        client = as_user(world.owner)
        assert "Set a password" in text_of(client.get("/account/"))
        answer = client.post("/account/password", {"new_password1": LONG, "new_password2": LONG}, follow=True)
        assert "Your password is changed" in text_of(answer)
        assert user_of(client)
        assert Client().login(username="owner", password=LONG)

    def test_who_has_one_must_know_it(self, world: World) -> None:
        world.owner.set_password(LONG)
        world.owner.save()
        client, elsewhere = as_user(world.owner), as_user(world.owner)
        new = {"new_password1": LONG + "2", "new_password2": LONG + "2"}
        answer = client.post("/account/password", {"old_password": "wrong", **new})
        assert answer.status_code == 400
        assert "old password was entered incorrectly" in text_of(answer)
        assert client.post("/account/password", new).status_code == 400
        assert client.post("/account/password", {"old_password": LONG, **new}).status_code == 302
        assert client.get("/account/").status_code == 200
        assert elsewhere.get("/account/").status_code == 302  # every other browser is logged out
        assert Client().login(username="owner", password=LONG + "2")

    @pytest.mark.parametrize(
        ("one", "two", "said"), [("short", "short", "at least 12"), (LONG, LONG + "x", "didn’t match"), ("", "", "required")]
    )
    def test_those_that_cannot_be(self, world: World, one: str, two: str, said: str) -> None:
        world.owner.set_unusable_password()
        world.owner.save()
        answer = as_user(world.owner).post("/account/password", {"new_password1": one, "new_password2": two})
        assert answer.status_code == 400
        assert said in text_of(answer)
        assert not User.objects.get(pk=world.owner.pk).has_usable_password()


def test_logging_out_everywhere_else(world: World) -> None:
    here, there, stranger = as_user(world.owner), as_user(world.owner), as_user(world.stranger)
    program = Program(world.owner)
    answer = here.post("/account/sessions/end", follow=True)
    assert "Logged out in 1 other browser." in text_of(answer)
    assert [c.get("/account/").status_code for c in (here, there, stranger)] == [200, 302, 200]
    assert program.get("me").status_code == 200


class TestLogin:
    def test_leads_on_to_the_page_that_was_asked_for(self, world: World) -> None:
        world.owner.set_password(LONG)
        world.owner.save()
        client = Client()
        first = client.get("/account/", follow=True)
        assert urlsplit(first.redirect_chain[0][0]).query == "next=/account/"
        wrong = client.post("/login/", {"username": "owner", "password": "wrong", "next": "/account/"})
        assert "enter a correct username and password" in text_of(wrong)
        assert 'role="alert"' in wrong.content.decode()
        assert 'value="/account/"' in wrong.content.decode()
        right = client.post("/login/", {"username": "owner", "password": LONG, "next": "/account/"})
        assert right["Location"] == "/account/"

    def test_never_to_another_site(self, world: World) -> None:
        world.owner.set_password(LONG)
        world.owner.save()
        answer = Client().post("/login/", {"username": "owner", "password": LONG, "next": "https://elsewhere.example/"})
        assert answer["Location"] == "/"

    def test_not_into_a_closed_account(self, world: World) -> None:
        world.owner.set_password(LONG)
        world.owner.is_active = False
        world.owner.save()
        answer = Client().post("/login/", {"username": "owner", "password": LONG})
        assert answer.status_code == 200
        assert "enter a correct username and password" in text_of(answer)  # as for one that isn't there


class TestAccountPage:
    def test_tells_teams_roles_and_what_these_may_do(self, world: World) -> None:
        Membership.objects.create(user=world.owner, team=world.other_team, role=Role.VIEWER)
        said = text_of(as_user(world.owner).get("/account/"))
        assert "Ours maintainer all that a submitter may" in said
        assert "Theirs viewer read experiments" in said

    def test_who_is_in_no_team_learns_the_next_step(self, world: World) -> None:
        nobody = User.objects.create(username="nobody")
        assert "You are in no team" in text_of(as_user(nobody).get("/account/"))

    def test_the_name_in_the_head_leads_there(self, world: World) -> None:
        assert 'href="/account/"' in as_user(world.owner).get("/").content.decode()

    def test_statements_do_not_grow(self, world: World) -> None:
        def counted(path: str) -> int:
            with CaptureQueriesContext(connection) as captured:
                assert client.get(path).status_code == 200
            return len(captured)

        client = as_user(world.owner)
        create_token(world.owner, "first")
        before = {path: counted(path) for path in ("/account/", "/teams/ours/")}
        assert before == {"/account/": 5, "/teams/ours/": 6}  # three of each are the session, its user, and what the head shows
        for i in range(9):
            create_token(world.owner, f"t{i}")
            team = Team.objects.create(slug=f"t{i}", name=f"T{i}")
            Membership.objects.create(user=world.owner, team=team, role=Role.VIEWER)
            Membership.objects.create(user=User.objects.create(username=f"u{i}"), team=world.team, role=Role.VIEWER)
        assert {path: counted(path) for path in before} == before


class TestTeamPage:
    def roles(self, team: Team) -> dict[str, str]:
        return dict(Membership.objects.filter(team=team).values_list("user__username", "role"))

    def change(self, who: User | None, **fields: str) -> Any:
        return as_user(who).post("/teams/ours/members", fields, follow=who is not None)

    def test_a_maintainer_adds_changes_and_removes(self, world: World) -> None:
        assert "stranger is submitter of Ours now" in text_of(self.change(world.owner, user="stranger", role="submitter"))
        assert "teammate is maintainer of Ours now" in text_of(self.change(world.owner, user="teammate", role="maintainer"))
        assert self.roles(world.team) == {"owner": "maintainer", "teammate": "maintainer", "stranger": "submitter"}
        assert "stranger is no longer in Ours" in text_of(self.change(world.owner, user="stranger", role="none"))
        assert self.roles(world.team) == {"owner": "maintainer", "teammate": "maintainer"}

    def test_who_leaves_ends_on_the_account_page(self, world: World) -> None:
        self.change(world.owner, user="teammate", role="maintainer")
        answer = self.change(world.owner, user="owner", role="none")
        assert answer.redirect_chain == [("/account/", 302)]
        assert as_user(world.owner).get("/teams/ours/").status_code == 404

    def test_never_the_last_maintainer(self, world: World) -> None:
        for role in ("none", "viewer", "submitter"):
            answer = self.change(world.owner, user="owner", role=role)
            assert answer.status_code == 409
            assert "owner is the last maintainer of Ours" in text_of(answer)
        assert self.roles(world.team)["owner"] == "maintainer"
        # One whose account is closed maintains nothing.
        set_role(world.team, world.teammate, Role.MAINTAINER)
        User.objects.filter(pk=world.teammate.pk).update(is_active=False)
        assert self.change(world.owner, user="owner", role="none").status_code == 409

    @pytest.mark.parametrize("role", [Role.VIEWER, Role.SUBMITTER])
    def test_for_maintainers_only(self, world: World, role: Role) -> None:
        Membership.objects.filter(user=world.teammate).update(role=role)
        before = self.roles(world.team)
        assert self.change(world.teammate, user="teammate", role="maintainer").status_code == 403
        assert "Add somebody" not in text_of(as_user(world.teammate).get("/teams/ours/"))
        assert self.change(world.stranger, user="stranger", role="maintainer").status_code == 404
        assert self.change(None, user="stranger", role="maintainer")["Location"] == "/login/?next=/teams/ours/"
        assert self.roles(world.team) == before

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"user": "nobody", "role": "viewer"}, "There is no account 'nobody'"),
            ({"user": "no\x00body", "role": "viewer"}, "There is no account"),
            ({"role": "viewer"}, "There is no account"),
            ({"user": "stranger", "role": "king"}, "'king' is no role"),
            ({"user": "stranger"}, "'' is no role"),
        ],
    )
    def test_what_cannot_be(self, world: World, fields: dict[str, str], said: str) -> None:
        answer = self.change(world.owner, **fields)
        assert answer.status_code == 400
        assert said in text_of(answer)
        assert "stranger" not in self.roles(world.team)


@pytest.mark.django_db(transaction=True)
def test_two_maintainers_cannot_both_leave_at_once(world: World) -> None:
    set_role(world.team, world.teammate, Role.MAINTAINER)
    gate, refusals = threading.Barrier(2), []

    def leave(user: User) -> None:
        gate.wait()
        try:
            set_role(world.team, user, None)
        except AccountError as refusal:
            refusals.append(str(refusal))
        connections.close_all()

    threads = [threading.Thread(target=leave, args=[u]) for u in (world.owner, world.teammate)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals) == 1
    assert Membership.objects.get(team=world.team).role == "maintainer"


class TestMemberCommand:
    def test_makes_the_account_and_a_way_in(self, world: World) -> None:
        link = run("member", "ada", "ours", "submitter", "--login-link").strip()
        ada = User.objects.get(username="ada")
        assert ada.role_in(world.team.pk) == "submitter"
        assert not ada.has_usable_password()
        client = Client()
        client.get(urlsplit(link).path)
        assert user_of(client) == str(ada.pk)

    def test_changes_a_role_and_takes_it(self, world: World) -> None:
        assert run("member", "teammate", "ours", "maintainer") == ""
        assert world.teammate.role_in(world.team.pk) == "maintainer"
        run("member", "teammate", "ours", "none")
        assert world.teammate.role_in(world.team.pk) is None
        assert User.objects.filter(username="teammate").exists()

    def test_makes_a_team_if_told_its_name(self, world: World) -> None:
        assert "--team-name NAME makes it" in refused("member", "ada", "lab", "maintainer")
        assert not User.objects.filter(username="ada").exists()
        run("member", "ada", "lab", "maintainer", "--team-name", "The lab")
        assert Team.objects.get(slug="lab").name == "The lab"

    def test_bad_input_in_words(self, world: World) -> None:
        assert "roles: viewer, submitter, maintainer, or none" in refused("member", "owner", "ours", "king")
        assert "no user 'ada'" in refused("member", "ada", "ours", "none")
        assert "username" in refused("member", "a b", "ours", "viewer")
        assert "slug" in refused("member", "ada", "no slug", "viewer", "--team-name", "x")
        User.objects.filter(username="teammate").update(is_active=False)
        assert "closed" in refused("member", "teammate", "ours", "viewer")
        assert not User.objects.filter(username="ada").exists()

    def test_never_the_last_maintainer(self, world: World) -> None:
        with pytest.raises(CommandError, match="last maintainer") as caught:
            run("member", "owner", "ours", "none")
        assert caught.value.returncode == 3
