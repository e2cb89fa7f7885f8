"""Tokens of people: what they may be used for, for how long they stand, and what a refused one is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from specweb.accounts.models import ApiToken
from specweb.accounts.scopes import Scope
from specweb.accounts.services import AccountError, create_token, tokens_of
from specweb.experiments.models import Experiment
from specweb.experiments.services.submission import submit
from tests.web.people_api import Program, error
from tests.web.test_account import as_user, text_of
from tests.worlds import World, spec

pytestmark = pytest.mark.django_db


def program(world: World, *scopes: str) -> Program:
    return Program(token=create_token(world.owner, " ".join(scopes), scopes=scopes)[1])


@pytest.fixture
def ready(world: World) -> World:
    world.agent.poll()
    world.agent.send_inventory()
    return world


class TestScopes:
    def test_one_that_reads_changes_nothing(self, ready: World) -> None:
        job = submit(spec(), ready.team, ready.owner).jobs.get()
        reader = program(ready, "read")
        assert reader.get("experiments/").status_code == 200
        assert reader.post("experiments/preview", spec().model_dump(mode="json")).status_code == 200, "which stores nothing"
        for path in ("experiments/", f"jobs/{job.pk}/cancel"):
            refused = error(reader.post(path, spec().model_dump(mode="json") if path == "experiments/" else None), 403)
            assert refused["code"] == "scope_too_small"
            assert "is for read only, and this needs the scope submit" in refused["message"]
            assert "/account/" in refused["remedy"]
            assert refused["details"] == {"needed": "submit", "scopes": ["read"]}
        assert Experiment.objects.count() == 1

    def test_one_that_submits_need_not_read(self, ready: World) -> None:
        sender = program(ready, "submit")
        assert sender.post("experiments/", spec().model_dump(mode="json")).status_code == 201
        assert error(sender.get("experiments/"), 403)["details"]["needed"] == "read"

    def test_what_the_owner_may_not_no_scope_allows(self, ready: World) -> None:
        job = submit(spec(), ready.team, ready.owner).jobs.get()
        stranger = Program(ready.stranger)
        assert error(stranger.post(f"jobs/{job.pk}/cancel"), 404)

    def test_tokens_from_before_there_were_scopes_have_all(self, world: World) -> None:
        old = ApiToken.objects.create(user=world.owner, name="old", prefix="swt_old", hash="0" * 64)
        assert (old.scopes, old.expires_at, old.is_expired) == (["read", "submit", "manage"], None, False)

    @pytest.mark.parametrize(("scopes", "said"), [((), "at least one scope"), (("read", "everything"), "'everything' is no scope")])
    def test_scopes_that_cannot_be(self, world: World, scopes: tuple[str, ...], said: str) -> None:
        with pytest.raises(AccountError, match=said):
            create_token(world.owner, "x", scopes=scopes)


class TestExpiry:
    def test_an_expired_one_is_told_when_and_what_to_do(self, world: World) -> None:
        token, secret = create_token(world.owner, "nightly", life=timedelta(days=1))
        ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
        refused = error(Program(token=secret).get("me"), 401)
        assert "the token 'nightly' expired on 20" in refused["message"]
        assert "Make a token on your account page" in refused["remedy"]

    def test_90_days_unless_another_life_is_asked_for(self, world: World) -> None:
        usual, ever = (create_token(world.owner, f"{life}", **life)[0] for life in ({}, {"life": None}))
        assert usual.expires_at is not None
        assert abs(usual.expires_at - timezone.now() - timedelta(days=90)) < timedelta(minutes=1)
        assert ever.expires_at is None

    @pytest.mark.parametrize("days", [0, -1, 2000])
    def test_lives_that_cannot_be(self, world: World, days: int) -> None:
        with pytest.raises(AccountError, match="from 1 to"):
            create_token(world.owner, "x", life=timedelta(days=days))

    def test_its_name_is_free_again_and_its_owner_sees_it_for_a_while(self, world: World) -> None:
        token, _ = create_token(world.owner, "ci")
        ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(days=29))
        create_token(world.owner, "ci")
        assert [t.is_expired for t in tokens_of(world.owner)] == [False, True]
        ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(days=31))
        assert len(tokens_of(world.owner)) == 1


class TestThePage:
    def asked(self, world: World, **fields: Any) -> Any:
        return as_user(world.owner).post("/account/tokens", {"name": "ci", "scope": ["read"], "expires": "30"} | fields)

    def test_scopes_and_end_are_chosen_and_told(self, world: World) -> None:
        made = text_of(self.asked(world, scope=["submit", "read"]))
        assert "it may read, submit" in made
        assert "it expires" in made
        token = ApiToken.objects.get()
        assert token.scopes == ["read", "submit"]
        assert token.expires_at is not None
        shown = text_of(as_user(world.owner).get("/account/"))
        assert "read, submit" in shown

    def test_never_is_a_choice_of_its_own(self, world: World) -> None:
        assert "it never expires" in text_of(self.asked(world, expires="never"))
        assert ApiToken.objects.get().expires_at is None

    @pytest.mark.parametrize(
        ("fields", "said"),
        [({"scope": []}, "at least one scope"), ({"scope": ["root"]}, "no scope"), ({"expires": "soon"}, "no time that can be chosen")],
    )
    def test_what_cannot_be_is_told_and_the_form_keeps_what_was_asked(self, world: World, fields: dict[str, Any], said: str) -> None:
        answer = self.asked(world, **fields)
        assert answer.status_code == 400
        assert said in text_of(answer)
        assert 'value="ci"' in answer.content.decode()
        assert not ApiToken.objects.exists()

    def test_reading_alone_is_what_stands_there_at_first(self, world: World) -> None:
        page = as_user(world.owner).get("/account/").content.decode()
        assert 'value="read" checked' in page
        assert page.count("checked") == 1
        assert '<option value="90" selected>' in page
        assert all(scope.may in page for scope in Scope)

    def test_an_expired_one_is_marked(self, world: World) -> None:
        token, _ = create_token(world.owner, "ci")
        ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(days=1))
        assert "expired" in text_of(as_user(world.owner).get("/account/"))


def test_nobody_reads_with_a_token_of_another_kind(world: World) -> None:
    assert Client().get("/api/v1/me", headers={"Authorization": f"Bearer {world.token}"}).status_code == 401
