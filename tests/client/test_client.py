"""The client against the real views, and against what a network and its proxies make of answers."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.core.cache import cache
from specclient import ApiError, Client, errors
from specclient.models import Ratio, Withheld
from specclient.transport import MAX_ANSWER, PATIENCE_S, checked_url

from specweb.accounts.services import create_token
from specweb.experiments.models import Experiment
from specweb.results.models import Blob, EvidenceFile
from specweb.results.store import open_blob
from tests.client.conftest import Carrier
from tests.web import sample
from tests.web.pages import SMALL

URL = "https://specweb.example.org"
ME = {"user": "ada", "teams": []}
YAML = b"""
name: n
target: {model: demo-target}
engine: {context: 2048}
arms: [{name: "off", mode: "off"}, {name: d, mode: draft, draft_model: demo-draft, draft_limit: 4}]
points: [{workload: count, max_tokens: 64}]
blocks: 3
"""


def refusal(code: str, **details: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": "a message", "blame": "server", "retry": False, "remedy": "a remedy", "details": details}}


class Scripted:
    """A client of a server that answers as the test says, one answer after the other, and what came of it."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []
        self.slept: list[float] = []
        self.said: list[str] = []
        self.client = Client(URL, "sw_secret", transport=httpx.MockTransport(self.answer), sleep=self.slept.append, say=self.said.append)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        it = self.answers.pop(0)
        if isinstance(it, Exception):
            raise it
        status, content, headers = it
        body = {"json": content} if isinstance(content, dict) else {"content": content}
        return httpx.Response(status, headers=headers, request=request, **body)


def ok(content: Any = ME, status: int = 200, **headers: str) -> tuple[int, Any, dict[str, str]]:
    return status, content, {k.replace("_", "-"): v for k, v in headers.items()}


class TestRepeats:
    def test_reading_is_repeated_after_lost_answers_with_growing_waits(self) -> None:
        it = Scripted(httpx.ReadError("cut"), httpx.ConnectTimeout("slow"), ok(b"<h1>Bad gateway</h1>", 502), ok())
        assert it.client.me().user == "ada"
        assert len(it.asked) == 4
        assert it.slept[0] < it.slept[1] < it.slept[2]
        assert len(it.said) == 3

    def test_in_the_end_it_says_that_nobody_answers(self) -> None:
        it = Scripted(*[httpx.ConnectError("refused")] * 4)
        with pytest.raises(errors.Unreachable, match="refused") as told:
            it.client.me()
        assert told.value.code == "server_unreachable"
        assert told.value.remedy_text

    def test_what_may_happen_twice_is_not_repeated(self) -> None:
        it = Scripted(httpx.ReadError("cut"), ok())
        with pytest.raises(errors.Unreachable, match="cut") as told:
            it.client.cancel(str(uuid4()))
        assert len(it.asked) == 1
        assert "look before you send it again" in told.value.remedy_text
        never_sent = Scripted(httpx.ConnectError("refused"), ok(refusal("not_possible"), 409))
        with pytest.raises(errors.NotPossible):
            never_sent.client.cancel(str(uuid4()))

    def test_too_often_waits_as_long_as_the_service_says(self) -> None:
        it = Scripted(ok(refusal("too_many_requests", retry_after_s=7), 429), ok(refusal("too_many_requests"), 429, Retry_After="3"), ok())
        it.client.me()
        assert 7 <= it.slept[0] < 8
        assert 3 <= it.slept[1] < 4
        assert "trying again in 7 s" in it.said[0]

    def test_a_wait_that_is_too_long_is_told_and_not_waited(self) -> None:
        it = Scripted(ok(refusal("too_many_requests", retry_after_s=PATIENCE_S + 60), 429))
        with pytest.raises(errors.TooManyRequests):
            it.client.me()
        assert it.slept == []

    def test_a_proxy_s_pause_is_respected_in_both_forms(self) -> None:
        it = Scripted(ok(b"busy", 503, Retry_After="5"), ok(b"busy", 503, Retry_After="Thu, 01 Jan 2026 00:00:00 GMT"), ok())
        it.client.me()
        assert 5 <= it.slept[0] < 6
        assert it.slept[1] < 1

    def test_a_submission_carries_one_key_through_its_repeats(self) -> None:
        it = Scripted(httpx.ReadError("cut"), ok(b"", 503), ok(refusal("key_reused"), 409))
        with pytest.raises(errors.NotPossible):
            it.client.submit(b"name: x")
        assert len({r.headers["Idempotency-Key"] for r in it.asked}) == 1
        assert len(it.asked) == 3

    def test_the_services_own_failure_is_repeated_only_if_it_says_so(self) -> None:
        failed = refusal("server_error")
        once = Scripted(ok(failed, 500))
        with pytest.raises(errors.ServerFailed):
            once.client.me()
        failed["error"]["retry"] = True
        assert Scripted(ok(failed, 500), ok()).client.me().user == "ada"


class TestWhatIsNoAnswer:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (ok(b"<!doctype html><h1>Log in</h1>", Content_Type="text/html; charset=utf-8"), "it is text/html"),
            (ok(b'{"user": "ada", "te', Content_Type="application/json"), "no JSON of this API"),
            (ok(b"\xff\xfe\x00garbage", Content_Type="application/json"), "no JSON of this API"),
            (ok(b'{"user": NaN}', Content_Type="application/json"), "NaN"),
            (ok(b"[" * 10_000, Content_Type="application/json"), "no JSON of this API"),
            (ok(b"", Content_Type="application/json"), "no JSON of this API"),
            (ok(b"[1]", Content_Type="application/json"), "can't be read"),
            (ok({"user": "ada"}), "can't be read: teams"),
            (ok({"user": "ada", "teams": [{"slug": 3}]}), "can't be read: teams.0.slug"),
            (ok(b"", 302, Location="https://login.example.org/"), "sends on to https://login.example.org/"),
        ],
    )
    def test_it_is_told_as_such_and_the_token_goes_nowhere_else(self, answer: Any, words: str) -> None:
        it = Scripted(answer)
        with pytest.raises(errors.NotTheApi) as told:
            it.client.me()
        assert words in told.value.message
        assert "sw_secret" not in str(told.value)
        assert {r.url.host for r in it.asked} == {"specweb.example.org"}

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 502])
    @pytest.mark.parametrize("body", [b"<h1>no</h1>", b"", b'{"error": 3}', b'{"error": {"code": "x"}}', b"[]"])
    def test_a_refusal_by_somebody_else_is_an_error_all_the_same(self, status: int, body: bytes) -> None:
        it = Scripted(*[ok(body, status)] * 4)
        with pytest.raises(ApiError, match=f"answered HTTP {status} without an error of this API") as told:
            it.client.me()
        assert (told.value.status, told.value.code) == (status, f"http_{status}")

    def test_a_next_page_elsewhere_or_in_a_circle_is_not_followed(self) -> None:
        for after in ("https://evil.example/api/v1/experiments/", "//evil.example/x"):
            it = Scripted(ok({"experiments": [], "next": after}))
            with pytest.raises(errors.NotTheApi, match="to which this token is not sent"):
                list(it.client.experiments())
            assert len(it.asked) == 1
        circle = Scripted(*[ok({"experiments": [], "next": "/api/v1/experiments/?cursor=x"})] * 3)
        with pytest.raises(errors.NotTheApi, match="next page that can't be"):
            list(circle.client.experiments())

    def test_an_answer_that_does_not_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("specclient.transport.MAX_ANSWER", 1000)
        assert MAX_ANSWER > 1000
        with pytest.raises(errors.NotTheApi, match="answers with more than"):
            Scripted(ok(b" " * 1001, Content_Type="application/json")).client.me()


@contextmanager
def server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads each request and answers as ``speak`` does, bytes by bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    if not over.is_set():
                        speak(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            over.set()
            with socket.create_connection(listening.getsockname()):
                pass
            thread.join(5)


@pytest.mark.parametrize(
    ("spoken", "kind", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", errors.Unreachable, "no answer from"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", errors.Unreachable, "no answer from"),
        (b"", errors.Unreachable, "no answer from"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\n<hi>", errors.NotTheApi, "text/html"),
    ],
)
def test_half_an_answer_or_another_program_on_the_port(spoken: bytes, kind: type[Exception], words: str) -> None:
    with server(lambda c: c.sendall(spoken)) as url, Client(url, "sw_x", sleep=lambda s: None) as client, pytest.raises(kind, match=words):
        client.me()


@pytest.mark.parametrize(
    "url", ["", "specweb", "ftp://x", "http://", "http://a b", "http://x/?q", "http://u:p@x", "http://x:99999", "http://x\ny"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(errors.BadInput, match="is no http:// or https:// address"):
        checked_url(url)
    assert checked_url(" https://x/api/v1/ ") == "https://x"
    assert checked_url("https://x/specweb/") == "https://x/specweb"


@pytest.mark.django_db
class TestWithTheService:
    def test_submitted_read_and_steered(self, client: Client, people: sample.People) -> None:
        sample.host_with_inventory(people.team)
        for content in {w.content_hash(): w for w in sample.workloads.builtin().values()}.values():
            sample.seed_workload(content)
        assert client.check(YAML) == []
        assert client.preview(YAML, budget="1h")
        assert not Experiment.objects.exists()
        made = client.submit(YAML, visibility="private")
        assert (made.name, made.visibility, made.is_final) == ("n", "private", False)
        job = made.current_jobs[0].id
        assert client.pause(job).paused
        assert not client.resume(job).paused
        assert client.cancel(job).state == "cancelled"
        again = client.retry(job)
        whole = client.experiment(made.id)
        assert [j.id for j in whole.current_jobs] == [again.id]
        assert (whole.margin, whole.comparisons) == (0.03, [])
        assert "workload: count" in client.experiment_spec(made.id)
        with pytest.raises(errors.NotPossible):
            client.cancel(job)
        with pytest.raises(errors.Invalid) as told:
            client.submit(YAML.replace(b"draft_limit: 4", b"draft_limit: 0"))
        assert [(p.field, p.line) for p in told.value.problems] == [("arms.1.draft_limit", 5)]

    def test_pages_are_read_to_their_end_when_they_are_wanted(self, client: Client, people: sample.People, carrier: Carrier) -> None:
        sample.host_with_inventory(people.team)
        for n in range(5):
            sample.submitted(people.team, people.owner, sample.spec(**SMALL, name=f"number {n}"))
        assert [e.name for e in client.experiments(limit=2)] == [f"number {n}" for n in (4, 3, 2, 1, 0)]
        assert len(carrier.asked) == 3
        assert next(client.experiments(limit=2)).name == "number 4"
        assert len(carrier.asked) == 4
        with pytest.raises(errors.Invalid, match="there is no parameter 'colour'"):
            list(client.experiments(colour="red"))

    def test_numbers_and_their_evidence(self, client: Client, people: sample.People) -> None:
        run = sample.finished(people.team, people.owner, sample.spec(**SMALL))
        found = client.experiment(str(run.experiment.pk))
        (c,) = [c for c in found.comparisons if c.arm == "draft-3"]
        assert isinstance(c.speedup, Ratio)
        assert c.raw["block_values"]
        assert any(isinstance(r, Withheld) or r > 0 for r in (c.acceptance_rate, c.memory_bill_bytes))
        assert client.numbers(c.job, c.arm, c.point)["numbers"]
        assert [r.arm for r in client.compare(mode="draft")] == ["draft-3"]
        assert client.report(c.job).startswith("## ")
        files = list(client.evidence(c.job, name="records.jsonl", limit=2))
        assert len(files) == len(run.plan.trials)
        stored = EvidenceFile.objects.get(attempt_id=files[0].attempt, name="records.jsonl")
        to = io.BytesIO()
        client.download_evidence(files[0], to)
        with open_blob(stored.blob) as f:
            assert to.getvalue() == f.read()
        other = files[0].model_copy(update={"sha256": Blob.objects.exclude(pk=files[0].sha256).first().pk})  # type: ignore[union-attr]
        with pytest.raises(errors.NotTheApi, match="came damaged"):
            client.download_evidence(other, io.BytesIO())

    def test_each_refusal_is_a_class_with_what_to_do(self, people: sample.People, carrier: Carrier) -> None:
        def as_user(user: Any, name: str, **options: Any) -> Client:
            return Client("http://127.0.0.1:8000", create_token(user, name, **options)[1], transport=carrier, sleep=lambda s: None)

        sample.host_with_inventory(people.team)
        made = sample.submitted(people.team, people.owner, sample.spec(**SMALL))
        job = str(made.jobs.get().pk)
        with pytest.raises(errors.NotAuthenticated) as told:
            Client("http://127.0.0.1:8000", "sw_nonsense", transport=carrier).me()
        assert told.value.remedy_text
        with pytest.raises(errors.NotAllowed, match="which may read only"):
            as_user(people.mate, "mate").cancel(job)
        with pytest.raises(errors.NotAllowed) as small:
            as_user(people.owner, "reads", scopes=["read"]).cancel(job)
        assert (small.value.code, small.value.details["needed"]) == ("scope_too_small", "submit")
        with pytest.raises(errors.NotFound):
            as_user(people.stranger, "stranger").cancel(job)
        assert Experiment.objects.get().jobs.get().state == "waiting"
        with pytest.raises(errors.BadInput, match="is no id"):
            as_user(people.owner, "x").experiment("../me")

    def test_the_services_own_limit_is_waited_for(self, people: sample.People, carrier: Carrier, settings: Any, monkeypatch: Any) -> None:
        from specweb.accounts import rates

        settings.CACHES = {"default": settings.CACHES["default"] | {"KEY_PREFIX": str(uuid4())}}
        settings.SPECWEB_REQUESTS_PER_MINUTE = 2
        now = [1_800_000_015.0]
        monkeypatch.setattr(rates, "time", type("Clock", (), {"time": lambda self: now[0], "monotonic": lambda self: now[0]})())
        monkeypatch.setattr(rates, "_blind_until", 0.0)
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            now[0] += seconds

        client = Client("http://127.0.0.1:8000", create_token(people.owner, "often")[1], transport=carrier, sleep=sleep)
        for _ in range(3):
            client.me()
        (waited,) = slept
        assert 45 <= waited < 46
        cache.close()
