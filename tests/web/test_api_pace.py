"""How often programs may ask and people may try to log in: who is held up, who is not, and what an answer tells of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import cache
from django.test import Client

from specweb.accounts import rates
from specweb.accounts.services import create_token
from specweb.settings import cache_at
from tests.web.people_api import Program, error
from tests.worlds import World

pytestmark = pytest.mark.django_db


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0  # a window begins

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """Windows of the test's own, in the real cache."""
    settings.CACHES = {"default": settings.CACHES["default"] | {"KEY_PREFIX": str(uuid4())}}
    it = Clock()
    monkeypatch.setattr(rates, "time", it)
    monkeypatch.setattr(rates, "_blind_until", 0.0)
    yield it
    cache.close()


@pytest.fixture
def limits(settings: Any) -> Any:
    settings.SPECWEB_REQUESTS_PER_MINUTE = 3
    settings.SPECWEB_UPLOADS_PER_MINUTE = 5
    settings.SPECWEB_OPEN_REQUESTS_PER_MINUTE = 2
    settings.SPECWEB_LOGINS_PER_MINUTE = 2
    return settings


class TestPrograms:
    def test_one_too_many_is_told_when_to_come_again(self, world: World, limits: Any, clock: Clock) -> None:
        mine, theirs = Program(world.owner), Program(world.stranger)
        clock.now += 15
        seen = [mine.get("me") for _ in range(3)]
        assert [(a.status_code, a["RateLimit-Limit"], a["RateLimit-Remaining"], a["RateLimit-Reset"]) for a in seen] == [
            (200, "3", "2", "45"),
            (200, "3", "1", "45"),
            (200, "3", "0", "45"),
        ]
        answer = mine.get("me")
        refused = error(answer, 429)
        assert (refused["code"], refused["retry"], answer["Retry-After"], answer["RateLimit-Remaining"]) == (
            "too_many_requests",
            True,
            "45",
            "0",
        )
        assert "3 requests a minute" in refused["message"]
        assert "45 s" in refused["remedy"]
        assert theirs.get("me").status_code == 200
        clock.now += 45
        assert mine.get("me").status_code == 200

    def test_each_token_counts_for_itself(self, world: World, limits: Any) -> None:
        one = Program(world.owner)
        for _ in range(4):
            one.get("me")
        other = Program(token=create_token(world.owner, "another program")[1])
        assert other.get("me").status_code == 200

    def test_refused_requests_count_too(self, world: World, limits: Any) -> None:
        program = Program(world.owner)
        for _ in range(3):
            assert program.get("experiments/?stat=x").status_code == 400
        error(program.get("me"), 429)

    def test_uploads_of_evidence_have_a_limit_of_their_own(self, world: World, limits: Any) -> None:
        program = Program(world.owner)
        for _ in range(3):
            program.get("me")
        assert program.call("HEAD", f"runs/blobs/{'0' * 64}?team=ours").status_code == 404
        assert program.get("me").status_code == 429

    def test_without_a_token_by_address(self, world: World, limits: Any) -> None:
        stranger = Program()
        assert [stranger.get("me").status_code for _ in range(3)] == [401, 401, 429]
        assert Program(token="swt_guessed").get("me").status_code == 429
        assert Program(world.owner).get("me").status_code == 200, "who has a token is not held up by others at the same address"
        assert Client(REMOTE_ADDR="203.0.113.9").get("/api/v1/me").status_code == 401
        assert stranger.client.get("/api/v1/schema").status_code == 429

    def test_no_limit_no_headers(self, world: World) -> None:
        answer = Program(world.owner).get("me")
        assert [h for h in answer.headers if h.startswith("RateLimit")] == []

    def test_without_the_cache_nobody_is_held_up_and_the_log_says_so(
        self, world: World, limits: Any, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        limits.CACHES = {"default": cache_at("redis://127.0.0.1:1/0")}
        program = Program(world.owner)
        with caplog.at_level(logging.WARNING, "specweb.accounts.rates"):
            assert [program.get("me").status_code for _ in range(5)] == [200] * 5
        assert len([r for r in caplog.records if "doesn't answer" in r.message]) == 1
        clock.now += rates.BLIND_S
        limits.CACHES = {"default": cache_at(limits.BROKER_URL) | {"KEY_PREFIX": str(uuid4())}}
        assert program.get("me")["RateLimit-Remaining"] == "2"


class TestAddresses:
    @pytest.mark.parametrize(
        ("peer", "forwarded", "behind", "said"),
        [
            ("192.0.2.7", "", False, "192.0.2.7"),
            ("192.0.2.7", "198.51.100.1", False, "192.0.2.7"),
            ("10.0.0.1", "6.6.6.6, 198.51.100.1", True, "198.51.100.1"),
            ("10.0.0.1", "198.51.100.1:4711", True, "198.51.100.1"),
            ("10.0.0.1", "[2001:db8:1:2:3:4:5:6]:4711", True, "2001:db8:1:2::/64"),
            ("10.0.0.1", "2001:db8:1:2:3:4:5:6", True, "2001:db8:1:2::/64"),
            ("2001:db8:1:2:3:4:5:6", "", False, "2001:db8:1:2::/64"),
            ("::ffff:192.0.2.7", "", False, "192.0.2.7"),
            ("", "", False, ""),
        ],
    )
    def test_whom_a_request_comes_from(self, rf: Any, settings: Any, peer: str, forwarded: str, behind: bool, said: str) -> None:
        settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if behind else None
        headers = {"X-Forwarded-For": forwarded} if forwarded else {}
        assert rates.address_of(rf.get("/", headers=headers, REMOTE_ADDR=peer)) == said


class TestTheLoginForm:
    def tried(self, name: str, password: str, address: str = "192.0.2.1") -> Any:
        return Client(REMOTE_ADDR=address).post("/login/", {"username": name, "password": password})

    def test_who_guesses_is_slowed_down(self, world: World, limits: Any, clock: Clock) -> None:
        world.owner.set_password("the right password")
        world.owner.save()
        assert [self.tried("owner", f"guess {n}").status_code for n in range(2)] == [200, 200]
        held = self.tried("Owner ", "the right password")
        assert (held.status_code, held["Retry-After"]) == (429, "60")
        assert "Wait 60 s" in held.content.decode()
        clock.now += 60
        assert self.tried("owner", "the right password").status_code == 302

    def test_so_does_the_form_that_renews_a_session(self, world: World, limits: Any) -> None:
        world.owner.set_password("the right password")
        world.owner.save()
        sent = {"do": "login", "username": "owner", "name": "what was typed"}
        seen = [Client().post("/experiments/new", sent | {"password": f"guess {n}"}).status_code for n in range(2)]
        held = Client().post("/experiments/new", sent | {"password": "the right password"})
        assert (seen, held.status_code) == ([403, 403], 429)
        assert "Too many tries" in held.content.decode()
        assert "what was typed" in held.content.decode()

    def test_a_stranger_locks_nobody_out(self, world: World, limits: Any) -> None:
        world.owner.set_password("the right password")
        world.owner.save()
        for n in range(5):
            self.tried("owner", f"guess {n}", "198.51.100.66")
        assert self.tried("owner", "the right password").status_code == 302

    def test_an_address_that_tries_many_names_is_slowed_down(self, world: World, limits: Any) -> None:
        seen = [self.tried(f"name {n}", "x").status_code for n in range(21)]
        assert seen == [200] * 20 + [429]
        assert Client(REMOTE_ADDR="192.0.2.1").get("/login/").status_code == 200


class TestTheCachesAddress:
    @pytest.mark.parametrize(
        ("broker", "where"),
        [
            ("redis://:secret@10.0.0.1:6379/2", "redis://:secret@10.0.0.1:6379/2"),
            ("rediss://10.0.0.1", "rediss://10.0.0.1"),
            ("redis+socket:///run/valkey.sock?virtual_host=3", "unix:///run/valkey.sock?db=3"),
        ],
    )
    def test_is_the_brokers(self, broker: str, where: str) -> None:
        assert cache_at(broker)["LOCATION"] == where

    def test_another_kind_of_broker_leaves_each_process_to_count_for_itself(self) -> None:
        assert "locmem" in str(cache_at("sentinel://10.0.0.1:26379")["BACKEND"])
