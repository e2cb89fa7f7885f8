"""Login by an OpenID provider that runs in a process of its own: who gets in, and that nobody comes into another's account."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.utils import timezone

from specweb import settings as our_settings
from specweb.accounts import oidc
from specweb.accounts.models import AuditEntry, Membership, OidcIdentity, Role, User
from specweb.accounts.teams import close_account
from tests.web.test_account import LONG, as_user, text_of
from tests.worlds import World

pytestmark = pytest.mark.django_db
PEOPLE = [
    {"sub": "ada-1", "email": "ada@example.org", "email_verified": True, "preferred_username": "ada", "groups": ["gpu", "all"]},
    {"sub": "eve-1", "email": "owner@example.org", "email_verified": True, "preferred_username": "owner"},
    {"sub": "unverified-1", "email": "owner@example.org", "email_verified": False, "preferred_username": "owner"},
    {"sub": "silent-1"},
]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """Its issuer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    claims = [word for person in PEOPLE for word in ("--user-claims", json.dumps(person))]
    command = [sys.executable, "-m", "oidc_provider_mock", "-p", str(port), "-n", *claims]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"NO_COLOR": "1"})
    issuer = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                httpx.get(f"{issuer}/.well-known/openid-configuration").raise_for_status()
                break
            except httpx.HTTPError:
                assert process.poll() is None, "the provider ended"
                time.sleep(0.1)
        yield issuer
    finally:
        process.terminate()
        process.wait(timeout=10)


@pytest.fixture
def on(provider: str, settings: Any) -> Any:
    settings.SPECWEB_OIDC_ISSUER = provider
    settings.SPECWEB_OIDC_CLIENT_ID, settings.SPECWEB_OIDC_CLIENT_SECRET = "specweb", "secret"
    settings.AUTHENTICATION_BACKENDS = [*settings.AUTHENTICATION_BACKENDS, "specweb.accounts.oidc.OidcBackend"]
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    return settings


def sent_back(client: Client, sub: str, next_: str = "") -> str:
    """Where the provider sends a person back to, who logged in there."""
    to = client.get("/oidc/login/" + (f"?next={next_}" if next_ else ""))
    asked = parse_qs(urlsplit(to["Location"]).query)
    assert {"state", "nonce", "code_challenge"} <= set(asked)
    assert asked["code_challenge_method"] == ["S256"]
    back = httpx.post(to["Location"], data={"sub": sub})
    assert back.status_code == 302, back.text
    where = urlsplit(back.headers["Location"])
    return f"{where.path}?{where.query}"


def log_in(client: Client, sub: str, **more: str) -> Any:
    return client.get(sent_back(client, sub, **more), follow=True)


class TestComing:
    def test_makes_an_account_once_and_finds_it_again(self, world: World, on: Any) -> None:
        client = Client()
        page = log_in(client, "ada-1", next_="/compare/")
        assert page.redirect_chain[-1][0] == "/compare/"
        ada = User.objects.get(username="ada")
        assert (ada.email, ada.email_confirmed_at is not None, ada.has_usable_password()) == ("ada@example.org", True, False)
        other = Client()
        log_in(other, "ada-1")
        assert other.get("/account/").wsgi_request.user == ada
        assert {"account.make", "account.link"} <= set(AuditEntry.objects.filter(actor="ada").values_list("action", flat=True))

    def test_never_comes_into_a_local_account_by_its_address_or_name(self, world: World, on: Any) -> None:
        User.objects.filter(pk=world.owner.pk).update(email="owner@example.org", email_confirmed_at=timezone.now())
        client = Client()
        log_in(client, "eve-1")
        user = client.get("/account/").wsgi_request.user
        assert user != world.owner
        assert user.get_username() == "owner-2"
        assert user.memberships.count() == 0

    @pytest.mark.parametrize("sub", ["unverified-1", "silent-1"])
    def test_without_a_verified_address_no_account_is_made(self, world: World, on: Any, sub: str) -> None:
        n = User.objects.count()
        page = log_in(Client(), sub)
        assert "verified" in text_of(page)
        assert (User.objects.count(), OidcIdentity.objects.count()) == (n, 0)

    def test_where_no_accounts_are_made_only_linked_ones_come(self, world: World, on: Any) -> None:
        on.SPECWEB_OIDC_NEW_ACCOUNTS = False
        assert "no account of yours" in text_of(log_in(Client(), "ada-1"))
        assert not User.objects.filter(username="ada").exists()

    def test_a_closed_account_stays_closed(self, world: World, on: Any) -> None:
        client = Client()
        log_in(client, "ada-1")
        close_account(User.objects.get(username="ada"), timezone.now())
        assert client.get("/account/").status_code == 302
        assert "closed" in text_of(log_in(Client(), "ada-1"))

    def test_leads_to_no_other_site(self, world: World, on: Any) -> None:
        assert log_in(Client(), "ada-1", next_="https://evil.example/").redirect_chain[-1][0] == "/"


class TestLinking:
    def test_ones_own_account_when_logged_in(self, world: World, on: Any) -> None:
        client = as_user(world.owner)
        assert "To the login provider" in text_of(client.post("/account/oidc/link"))
        page = log_in(client, "eve-1")
        assert "linked" in text_of(page)
        assert OidcIdentity.objects.get().user == world.owner
        other = Client()
        log_in(other, "eve-1")
        assert other.get("/account/").wsgi_request.user == world.owner

    def test_a_login_without_the_wish_links_nothing(self, world: World, on: Any) -> None:
        client = as_user(world.owner)
        log_in(client, "ada-1")
        assert OidcIdentity.objects.get().user.get_username() == "ada"

    def test_not_one_that_is_anothers(self, world: World, on: Any) -> None:
        log_in(Client(), "ada-1")
        client = as_user(world.owner)
        client.post("/account/oidc/link")
        assert "another account" in text_of(log_in(client, "ada-1"))
        assert OidcIdentity.objects.get().user.get_username() == "ada"
        assert client.get("/account/").wsgi_request.user == world.owner


class TestGroups:
    def test_give_and_take_roles_and_leave_what_was_given_here(self, world: World, on: Any) -> None:
        on.SPECWEB_OIDC_GROUPS = {"gpu": ("ours", "submitter"), "all": ("ours", "viewer"), "ops": ("theirs", "viewer")}
        log_in(Client(), "ada-1")
        ada = User.objects.get(username="ada")
        assert ada.role_in(world.team.pk) == "submitter"
        oidc.follow_groups(ada, ["all"])
        assert ada.role_in(world.team.pk) == "viewer"
        oidc.follow_groups(ada, None)
        assert ada.role_in(world.team.pk) is None
        Membership.objects.create(user=ada, team=world.team, role=Role.MAINTAINER)
        oidc.follow_groups(ada, ["gpu"])
        assert ada.role_in(world.team.pk) == "maintainer"

    @pytest.mark.parametrize("odd", ["gpu", "gpu=lab", "gpu=lab:king", "=lab:viewer"])
    def test_an_odd_mapping_is_told_at_the_start(self, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
        monkeypatch.setenv("X_GROUPS", odd)
        with pytest.raises(ImproperlyConfigured, match="group=team:role"):
            our_settings._groups("X_GROUPS")


class TestRefusals:
    def test_an_answer_is_taken_once_and_in_its_own_session_only(self, world: World, on: Any) -> None:
        client = Client()
        back = sent_back(client, "ada-1")
        assert Client().get(back)["Location"] == "/login/"
        assert client.get(back).status_code == 302
        again = client.get(back, follow=True)
        assert "did not work" in text_of(again)

    @pytest.mark.parametrize("query", ["", "?state=x&code=y", "?error=access_denied", "?state=&code=", "?code=%00&state=x"])
    def test_an_odd_answer_is_told_in_a_sentence(self, world: World, on: Any, query: str) -> None:
        page = Client().get(f"/oidc/callback/{query}", follow=True)
        assert (page.status_code, "did not work" in text_of(page)) == (200, True)

    @pytest.mark.parametrize("query", ["?error=access_denied", "?error=access_denied&state=x", "", "?code=x"])
    def test_an_address_that_anybody_can_write_logs_nobody_out_and_links_nothing(self, world: World, on: Any, query: str) -> None:
        client = as_user(world.owner)
        client.post("/account/oidc/link")
        page = client.get(f"/oidc/callback/{query}", follow=True)
        assert "did not work" in text_of(page)
        assert "is linked" not in text_of(page)
        assert client.get("/account/").status_code == 200
        client.get(sent_back(client, "ada-1"), follow=True)
        assert not OidcIdentity.objects.filter(user=world.owner).exists(), "the wish to link was over"

    def test_an_id_token_of_another_is_refused(self, world: World, on: Any) -> None:
        """By audience, issuer, end and key; each one otherwise sound."""
        backend, key = oidc.OidcBackend(), "a key of at least thirty-two bytes"
        on.SPECWEB_OIDC_ALGORITHM = "HS256"
        now = int(time.time())
        sound = {"iss": on.SPECWEB_OIDC_ISSUER, "aud": "specweb", "sub": "x", "iat": now, "exp": now + 60}
        assert backend.get_payload_data(jwt.encode(sound, key, "HS256"), key)["sub"] == "x"
        for odd in ({"aud": "other"}, {"iss": "http://other"}, {"exp": now - 600}, {"azp": "other"}, {"sub": None}):
            with pytest.raises(oidc.SuspiciousOperation):
                backend.get_payload_data(jwt.encode(sound | odd, key, "HS256"), key)
        with pytest.raises(oidc.SuspiciousOperation):
            backend.get_payload_data(jwt.encode(sound, "b" * 40, "HS256"), key)
        with pytest.raises(oidc.SuspiciousOperation):
            backend.get_payload_data(jwt.encode(sound, None, "none"), key)

    def test_a_provider_that_is_away_is_told(self, world: World, on: Any) -> None:
        on.SPECWEB_OIDC_ISSUER = "http://127.0.0.1:1"
        page = Client().get("/oidc/login/", follow=True)
        assert "can't be reached" in text_of(page).replace("’", "'")
        world.owner.set_password(LONG)
        world.owner.save()
        assert Client().login(username="owner", password=LONG)  # a password doesn't need it

    def test_is_off_by_default(self, world: World) -> None:
        assert Client().get("/oidc/login/").status_code == 404
        assert "provider" not in text_of(Client().get("/login/"))

    def test_the_login_page_leads_there_by_a_link_under_its_policy(self, world: World, on: Any) -> None:
        page = Client().get("/login/?next=/hosts/")
        assert 'href="/oidc/login/?next=/hosts/"' in page.content.decode()
        assert "form-action 'self'" in page["Content-Security-Policy"]
