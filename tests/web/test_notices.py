"""Notices: who may add a channel, what is sent and signed, what is tried again, and where nothing ever goes."""

from __future__ import annotations

import json
import re
import smtplib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.urls import reverse
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts.models import AuditEntry, Membership
from specweb.experiments.models import Experiment, Host
from specweb.experiments.services.jobs import request_cancel
from specweb.experiments.services.submission import submit
from specweb.watching import outside
from specweb.watching.models import Channel, Delivery
from specweb.watching.notice_models import Event
from specweb.watching.services import sending
from specweb.watching.services.channels import create_channel, delete_channel, enable_channel, test_channel
from specweb.watching.services.looking import look_at_ended
from specweb.watching.services.notices import tell, tell_of_ended, tell_of_lost_hosts
from specweb.watching.services.sending import deliver, due
from tests.web import sample
from tests.web.watched import SMALL, add_history, watched

send_a_test = test_channel
del test_channel  # it is none
pytestmark = pytest.mark.django_db
DOCS = Path(__file__).resolve().parents[2] / "docs" / "watch.md"


class Receiver(ThreadingHTTPServer):
    """A real HTTP server that keeps what it gets and answers with the status that it is told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.status, self.slowly, self.location, self.size = 200, 0.0, "", 2

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?a=b"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.got.append((self.path, dict(self.headers), body))
        self.send_response(server.status)
        if server.location:
            self.send_header("Location", server.location)
        self.send_header("Content-Length", str(server.size))
        self.end_headers()
        try:
            for _ in range(server.size):
                self.wfile.write(b"o")
                self.wfile.flush()
                time.sleep(server.slowly)
        except OSError:
            return

    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    settings.SPECWEB_NOTICE_ALLOW = [f"127.0.0.1:{server.server_address[1]}"]
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def people(db: Any) -> sample.People:
    return sample.people()


def channel(people: sample.People, target: str, kind: str = "webhook", events: tuple[str, ...] = ("alert", "finished", "lost")) -> Channel:
    return create_channel(people.team, people.owner, kind=kind, name=f"to {kind}", target=target, events=events)


def told(people: sample.People, key: str = "k") -> Delivery:
    tell(people.team, Event.ALERT, key, "worse", {"event": "alert", "text": "it is worse – much"}, datetime.now(UTC))
    return Delivery.objects.latest("pk")


def tried(delivery: Delivery, after: timedelta = timedelta()) -> Delivery:
    deliver(delivery.pk, datetime.now(UTC) + after)
    delivery.refresh_from_db()
    return delivery


def check_of_the_docs() -> Any:
    """The snippet that docs/watch.md gives to receivers."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["is_ours"]


def test_a_webhook_is_posted_signed_as_the_documentation_says(people: sample.People, receiver: Receiver) -> None:
    made = channel(people, receiver.url)
    done = tried(told(people))
    assert (done.state, done.status, done.n_tries, done.error) == ("sent", 200, 1, "")
    ((path, headers, body),) = receiver.got
    assert path == "/hook?a=b"
    assert json.loads(body) == {"event": "alert", "text": "it is worse – much"}
    assert headers["X-SpecWeb-Delivery"] == str(done.pk)
    is_ours = check_of_the_docs()
    assert is_ours(made.secret, headers, body)
    assert not is_ours(made.secret, headers, body + b" ")
    assert not is_ours("whsec_other", headers, body)
    old = {**headers, "X-SpecWeb-Timestamp": str(int(headers["X-SpecWeb-Timestamp"]) - 400)}
    assert not is_ours(made.secret, old, body)


def test_a_slack_compatible_body_is_text_alone(people: sample.People, receiver: Receiver) -> None:
    channel(people, receiver.url, "slack")
    tried(told(people))
    assert json.loads(receiver.got[0][2]) == {"text": "it is worse – much"}


def test_nothing_is_told_twice_or_to_who_did_not_ask(people: sample.People, receiver: Receiver) -> None:
    channel(people, receiver.url, events=("lost",))
    assert tell(people.team, Event.ALERT, "k", "s", {}, datetime.now(UTC)) == 0
    channel(people, receiver.url, "slack", events=("alert",))
    for _ in range(2):
        tell(people.team, Event.ALERT, "k", "s", {}, datetime.now(UTC))
    assert Delivery.objects.count() == 1
    delivery = Delivery.objects.get()
    assert deliver(delivery.pk, datetime.now(UTC))
    assert not deliver(delivery.pk, datetime.now(UTC))
    assert len(receiver.got) == 1


def test_what_may_come_right_is_tried_again_later_and_given_up_at_last(people: sample.People, receiver: Receiver) -> None:
    channel(people, receiver.url)
    receiver.status = 503
    delivery, after = told(people), timedelta()
    for n in range(1, len(sending.AGAIN_AFTER) + 1):
        tried(delivery, after)
        assert (delivery.state, delivery.n_tries, delivery.status) == ("waiting", n, 503)
        assert delivery.pk not in due(datetime.now(UTC) + after)
        after += sending.AGAIN_AFTER[n - 1] + timedelta(seconds=5)
        assert delivery.pk in due(datetime.now(UTC) + after)
    tried(delivery, after)
    assert (delivery.state, delivery.error) == ("failed", "it answered 503: oo")
    assert len(receiver.got) == 1 + len(sending.AGAIN_AFTER)


def test_a_receiver_that_is_not_there_is_tried_again(people: sample.People, settings: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings.SPECWEB_NOTICE_ALLOW = ["127.0.0.1"]
    channel(people, f"http://127.0.0.1:{port}/")
    done = tried(told(people))
    assert (done.state, done.status) == ("waiting", None)
    assert "ConnectionRefusedError" in done.error


@pytest.mark.parametrize("status", [400, 403, 404, 302])
def test_what_no_later_try_mends_is_given_up_at_once(people: sample.People, receiver: Receiver, status: int) -> None:
    channel(people, receiver.url)
    receiver.status, receiver.location = status, receiver.url if status == 302 else ""
    done = tried(told(people))
    assert (done.state, done.status, done.n_tries) == ("failed", status, 1)
    assert len(receiver.got) == 1  # a redirect is not followed


def test_a_channel_that_never_takes_any_is_disabled_with_a_note_and_can_be_enabled(people: sample.People, receiver: Receiver) -> None:
    made = channel(people, receiver.url)
    receiver.status = 404
    for n in range(sending.MOST_FAILED):
        tried(told(people, f"k{n}"))
    made.refresh_from_db()
    assert made.disabled_at is not None
    assert made.disabled_reason.startswith("5 notices in a row were given up; the last: it answered 404")
    assert AuditEntry.objects.filter(action="channel.disable").count() == 1
    assert tell(people.team, Event.ALERT, "later", "s", {}, datetime.now(UTC)) == 0
    receiver.status = 200
    test = send_a_test(made, people.owner, datetime.now(UTC))
    assert tried(test).state == "sent"  # a test goes out all the same
    assert enable_channel(made, people.owner)
    assert tried(told(people, "again")).state == "sent"


def test_a_success_between_keeps_a_channel_and_gone_ends_it_at_once(people: sample.People, receiver: Receiver) -> None:
    made = channel(people, receiver.url)
    for n, status in enumerate([404] * 4 + [200] + [404] * 4):
        receiver.status = status
        tried(told(people, f"k{n}"))
    made.refresh_from_db()
    assert made.disabled_at is None
    receiver.status = 410
    tried(told(people, "gone"))
    made.refresh_from_db()
    assert "gone for good" in made.disabled_reason


def test_time_and_size_of_an_answer_are_bounded(receiver: Receiver) -> None:
    receiver.size, receiver.slowly = 3000, 0.2  # ten minutes of drops, each in time
    with pytest.raises(outside.Failed, match="no answer within"):
        outside.post(receiver.url, b"{}", {}, allowed=["127.0.0.1"], whole_s=0.5)
    receiver.size, receiver.slowly = outside.MOST_ANSWER * 4, 0
    assert len(outside.post(receiver.url, b"{}", {}, allowed=["127.0.0.1"]).text) <= 2000


INSIDE = [
    "127.0.0.1",
    "127.8.9.1",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.9",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "192.88.99.1",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "3fff::1",
    "5f00::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("address", INSIDE)
def test_no_notice_goes_inside_whatever_name_leads_there(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    reached = []
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, port, **_: [(2, 1, 6, "", ("93.184.215.14", port)), (2, 1, 6, "", (address, port))]
    )
    monkeypatch.setattr(socket, "create_connection", lambda *a, **k: reached.append(a))
    with pytest.raises(outside.Refused, match="no address on the public Internet"):
        outside.post("https://innocent.example.org/x", b"{}", {})
    literal = f"[{address}]" if ":" in address else address
    with pytest.raises(outside.Refused):
        outside.post(f"https://{literal}/x", b"{}", {})
    assert reached == []


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "2606:4700:4700::1111"])
def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """A name server that answers otherwise the second time is not asked a second time."""
    asked, reached = [], []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(2, 1, 6, "", (address if len(asked) == 1 else "127.0.0.1", port))]

    def connect(where: tuple[str, int], *_: Any) -> Any:
        reached.append(where)
        raise ConnectionRefusedError("as far as here")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(outside.Failed):
        outside.post("https://rebinding.example.org/x", b"{}", {})
    assert (asked, reached) == (["rebinding.example.org"], [(address, 443)])


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://example.org/x", "only https"),
        ("ftp://example.org/x", "not of the form"),
        ("file:///etc/passwd", "not of the form"),
        ("https://user:pw@example.org/", "user name"),
        ("https://example.org:22/", "port 22"),
        ("https://example.org:99999/", "can't be read"),
        ("https://exa mple.org/", "characters"),
        ("https://example.org\\@127.0.0.1/", "characters"),
        ("https:///x", "not of the form"),
        ("https://127.0.0.1/", "public Internet"),
        ("https://[::1]/", "public Internet"),
        ("https://example.org/" + "x" * 600, "longer"),
    ],
)
def test_odd_addresses_are_refused_before_anything_is_stored(people: sample.People, url: str, words: str) -> None:
    with pytest.raises(NotPossible, match=words):
        channel(people, url)
    assert not Channel.objects.exists()


def test_numbers_that_are_addresses_in_disguise_are_resolved_and_refused() -> None:
    for host in ("2130706433", "0x7f.1", "127.1"):
        with pytest.raises((outside.Refused, outside.Failed)):
            outside.resolved(outside.checked_url(f"https://{host}/", []), [])


def test_a_host_that_the_installation_names_may_be_inside(settings: Any) -> None:
    parts = outside.checked_url("http://10.0.0.5:8080/x", ["10.0.0.5:8080"])
    assert outside.resolved(parts, ["10.0.0.5:8080"]) == "10.0.0.5"
    for url in ("http://10.0.0.5:8081/x", "http://10.0.0.6:8080/x"):
        with pytest.raises(outside.Refused):
            outside.checked_url(url, ["10.0.0.5:8080"])


def test_mail_goes_to_confirmed_members_and_allowed_domains_alone(people: sample.People, settings: Any) -> None:
    with pytest.raises(NotPossible, match="no mail"):
        channel(people, "owner@example.org", "email")
    settings.EMAIL_HOST = "mail.example.org"
    people.owner.email = "owner@example.org"
    people.owner.save()
    with pytest.raises(NotPossible, match="no confirmed address"):
        channel(people, "owner@example.org", "email")
    people.owner.email_confirmed_at = datetime.now(UTC)
    people.owner.save()
    assert channel(people, "owner@example.org", "email").secret == ""
    with pytest.raises(NotPossible, match="no e-mail address"):
        create_channel(people.team, people.owner, kind="email", name="x", target="a@b@c\nBcc: d@e", events=["alert"])
    settings.SPECWEB_NOTICE_MAIL_DOMAINS = ["lists.example.org"]
    create_channel(people.team, people.owner, kind="email", name="list", target="perf@lists.example.org", events=["lost"])
    assert tried(told(people)).state == "sent"
    (sent,) = mail.outbox
    assert (sent.to, sent.subject) == (["owner@example.org"], "[SpecWeb] worse")
    assert "it is worse" in sent.body
    assert sent.extra_headers["Auto-Submitted"] == "auto-generated"


def test_who_left_the_team_gets_no_mail_of_it_any_more(people: sample.People, settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example.org"
    people.mate.email, people.mate.email_confirmed_at = "mate@example.org", datetime.now(UTC)
    people.mate.save()
    channel(people, "mate@example.org", "email")
    assert tried(told(people)).state == "sent"
    Membership.objects.filter(user=people.mate, team=people.team).delete()
    later = tried(told(people, "k2"))
    assert (later.state, len(mail.outbox)) == ("failed", 1)
    assert "member" in later.error


@pytest.mark.parametrize(("code", "state"), [(550, "failed"), (450, "waiting")])
def test_a_mail_server_s_lasting_and_passing_refusals(
    people: sample.People, settings: Any, monkeypatch: pytest.MonkeyPatch, code: int, state: str
) -> None:
    settings.EMAIL_HOST, settings.SPECWEB_NOTICE_MAIL_DOMAINS = "mail.example.org", ["example.org"]
    channel(people, "list@example.org", "email")

    def refuse(*_: Any, **__: Any) -> None:
        raise smtplib.SMTPRecipientsRefused({"list@example.org": (code, b"no")})

    monkeypatch.setattr("django.core.mail.backends.locmem.EmailBackend.send_messages", refuse)
    done = tried(told(people))
    assert (done.state, done.error) == (state, f"the mail server refuses the address ({code})")


def test_who_may_add_test_and_remove_a_channel(people: sample.People, receiver: Receiver) -> None:
    made = channel(people, receiver.url)
    for user in (people.mate, people.stranger):
        for act in (
            lambda u: create_channel(people.team, u, kind="slack", name="n", target=receiver.url, events=["alert"]),
            lambda u: send_a_test(made, u, datetime.now(UTC)),
            lambda u: enable_channel(made, u),
            lambda u: delete_channel(made, u),
        ):
            with pytest.raises(NotAllowed):
                act(user)
    for _ in range(5):
        send_a_test(made, people.owner, datetime.now(UTC))
    with pytest.raises(NotPossible, match="5 tests"):
        send_a_test(made, people.owner, datetime.now(UTC))
    delete_channel(made, people.owner)
    assert not Delivery.objects.exists()
    kinds = set(AuditEntry.objects.filter(kind="channel").values_list("action", flat=True))
    assert kinds == {"channel.create", "channel.test", "channel.delete"}


def test_an_address_and_a_secret_are_shown_once(client: Any, people: sample.People) -> None:
    client.force_login(people.owner)
    fields = {"team": "ours", "kind": "webhook", "name": "chat", "target": "https://hooks.example.org/T0/verysecret", "events": ["alert"]}
    first = client.post(reverse("channel-new"), fields)
    made = Channel.objects.get()
    assert made.secret in first.content.decode()
    assert "no-store" in first["Cache-Control"]
    later = client.get(reverse("notices")).content.decode()
    assert "hooks.example.org" in later
    assert made.secret not in later
    assert "verysecret" not in later
    entry = AuditEntry.objects.get(action="channel.create")
    assert "verysecret" not in entry.after
    assert made.secret not in entry.after


def test_an_alert_reaches_a_channel_with_what_it_says_and_a_private_experiment_s_does_not(receiver: Receiver, db: Any) -> None:
    it = watched()
    channel(it.people, receiver.url)
    add_history(it, [2.0] * 12 + [1.6] * 8)
    (alert,) = look_at_ended(datetime.now(UTC))
    tried(Delivery.objects.get())
    body = json.loads(receiver.got[0][2])
    assert body["alerts"][0]["id"] == str(alert.pk)
    assert body["alerts"][0]["build_after"] == "build 13"
    assert "speed-up worse" in body["text"]
    assert reverse("watch", args=[it.watch.pk]) in body["url"]
    Experiment.objects.update(visibility="private")
    add_history(it, [2.4] * 8, start=21)
    assert look_at_ended(datetime.now(UTC))
    assert Delivery.objects.count() == 1


def test_ended_experiments_and_silent_hosts_are_told_once(people: sample.People, receiver: Receiver) -> None:
    host = sample.host_with_inventory(people.team)
    now = datetime.now(UTC)
    tell_of_ended(now)
    channel(people, receiver.url)
    for name, visibility in (("shown", "team"), ("hidden", "private")):
        asked = sample.submitted(people.team, people.owner, sample.spec(**{**SMALL, "name": name}), visibility)  # type: ignore[arg-type]
        request_cancel(asked.jobs.get(), now=datetime.now(UTC), by="owner")
    submit(sample.spec(**SMALL), people.team, people.owner)  # it has not ended
    for _ in range(2):
        tell_of_ended(datetime.now(UTC))
    (delivery,) = Delivery.objects.all()
    assert (delivery.event, delivery.subject) == ("finished", "shown ended: cancelled")
    silent = timedelta(minutes=15)
    Host.objects.filter(pk=host.pk).update(last_seen_at=datetime.now(UTC) + timedelta(seconds=1))
    for later in (timedelta(minutes=10), timedelta(minutes=20), timedelta(minutes=30)):
        tell_of_lost_hosts(now + later, silent_for=silent)
    assert [d.event for d in Delivery.objects.order_by("pk")] == ["finished", "lost"]
