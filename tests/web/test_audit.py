"""The audit log: who, what, before and after; never changed; and that no address changes anything without an entry."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from specweb.accounts import audit
from specweb.accounts.models import AuditEntry, Role, User
from specweb.accounts.services import create_token, set_role
from specweb.experiments.models import Host, Job, Workload
from specweb.watching.models import Channel, Watch, WatchState
from tests.web.everything import Everything, everything, is_for_programs
from tests.web.test_account import as_user, text_of
from tests.web.test_visibility import METHODS, PEOPLE, TABLE, WRITES
from tests.web.test_visibility import ask as ask_table
from tests.worlds import World

pytestmark = pytest.mark.django_db

#: Addresses that take a method which changes things and yet leave no entry, each with the reason.
UNRECORDED = {
    "login/": "a login changes no thing of anybody's; it is in the session and in last_login",
    "logout/": "ends the session of who asks",
    "sign-up": "not open here; where it is, its entry is tested with the accounts",
    "account/oidc/link": "notes in the session who asks; the linked login is recorded",
    "experiments/new": "a submit is recorded with the experiment; the walk asks for a preview only",
    "experiments/preview": "stores nothing",
    "password/reset": "mails a link at most",
    "password/reset/<str:uidb64>/<str:token>/": "needs the mailed link; its entry is tested with the accounts",
    "api/v1/experiments/preview": "stores nothing",
    "api/v1/experiments/check": "stores nothing",
    "api/v1/runs/": "needs a whole run; recorded as experiment.upload, as the tests of uploads see",
    "api/v1/archives/": "needs a whole archive; an import is recorded as experiment.import, as the tests of archives see",
    "api/v1/watches/": "names an experiment by its id; recorded as watch.create by what begins those of the pages too",
    "api/v1/runs/blobs/<str:sha256>": "bytes on their way; the run that names them is recorded",
    "api/v1/workloads/": "takes a file; an uploaded one is recorded as workload.add, as a test here sees",
    "jobs/<uuid:job_id>/rest": "needs a failed job with whole blocks; recorded by what records job.more",
    "api/v1/jobs/<uuid:job_id>/rest": "as on the page",
    "reported/new": "a file on its way in, thrown away if nothing comes of it; the import is recorded",
    "reported/draft/<uuid:draft_id>/": "the same; the import is recorded",
    "api/v1/reported/": "needs some tool's file; an import is recorded as report.import, as a test here sees",
    "agent/v1/enrol": "needs a code; an enrolled host is recorded as host.enrol, as a test here sees",
    "agent/v1/poll": "what agents say is kept as leases, moves and evidence",
    "agent/v1/inventory": "kept whole as an inventory of its own",
    "agent/v1/blobs/<str:sha256>": "evidence",
    "agent/v1/attempts/<uuid:attempt_id>/report": "evidence",
    "api/v1/": "no address",
    "agent/v1/": "no address",
    "^(?:api|agent)(?:/|$)": "no address",
}


def _paused(it: Everything) -> None:
    Job.objects.filter(pk=it.running.job.pk).update(pause_requested_at=timezone.now(), pause_requested_by="x")
    Watch.objects.update(state=WatchState.PAUSED)


def _failed(it: Everything) -> None:
    Job.objects.filter(pk=it.running.job.pk).update(state="failed", ended_at=timezone.now())


def _ended(it: Everything) -> None:
    """Of what may go on, the job is the finished one."""
    it.running = it.finished


def _draining(it: Everything) -> None:
    Host.objects.filter(pk=it.host.pk).update(drain_requested_at=timezone.now())


def _disabled(it: Everything) -> None:
    Channel.objects.update(disabled_at=timezone.now())


def _private(it: Everything) -> None:
    Workload.objects.filter(pk=it.workload.pk).update(private=True, owner=it.people["maintainer"])


def _archived(it: Everything) -> None:
    Workload.objects.filter(pk=it.workload.pk).update(archived_at=timezone.now())


def _two_maintainers(it: Everything) -> None:
    viewer = it.people["viewer"]
    assert viewer is not None
    set_role(it.team, viewer, Role.MAINTAINER)


#: What is sent where the table's row sends what is refused in the end.
BODIES = {"jobs/<uuid:job_id>/more": {"blocks": "2"}}
#: What must be so that the request changes something, by the last word of the address.
FIRST: dict[str, Callable[[Everything], None]] = {
    "resume": _paused,
    "retry": _failed,
    "more": _ended,
    "undrain": _draining,
    "enable": _disabled,
    "share": _private,
    "restore": _archived,
    "leave": _two_maintainers,
}


def ask(it: Everything, person: str, method: str, route: str, body: dict[str, str] | None) -> Any:
    return it.client(person, route).post(it.address(route), body) if body else ask_table(it, person, method, route)


def changes() -> list[tuple[str, str]]:
    """(route, method) of every address that takes a method by which something may change."""
    found = []
    for route, row in TABLE.items():
        found += [(route, method) for method in METHODS if method != "GET" and row.expected(method, False) and route not in UNRECORDED]
    return found


def test_no_address_changes_anything_without_an_entry(db: Any) -> None:
    """Each is asked by everybody. Who changed something is named in an entry, and each address changes something for somebody."""
    it, wrong = everything(), []
    finished, running = it.finished, it.running
    for route, method in changes():
        n_recorded = 0
        for person in PEOPLE[:4]:
            with transaction.atomic():
                it.finished, it.running = finished, running
                if prepare := FIRST.get(route.rsplit("/", 1)[-1]):
                    prepare(it)
                last = AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0
                with CaptureQueriesContext(connection) as captured:
                    answer = ask(it, person, method, route, BODIES.get(route))
                    if answer.streaming:
                        list(answer.streaming_content)
                changed = _changed(captured)
                entries = list(AuditEntry.objects.filter(pk__gt=last))
                transaction.set_rollback(True)
            n_recorded += bool(entries)
            if changed and not entries:
                wrong.append(f"{method} /{route} by {person}: {answer.status_code}, and wrote without an entry: {changed[0][:120]}")
            user = it.people[person]
            who = {user.get_username(), f"{it.host.name}"} if user else set()
            wrong += [f"{method} /{route}: the entry {e} names {e.actor!r}" for e in entries if e.actor not in who]
            wrong += [
                f"{method} /{route}: by token, and the entry doesn't say so" for e in entries if is_for_programs(route) != bool(e.token)
            ]
        if not n_recorded:
            wrong.append(f"{method} /{route} never left an entry: record the change in its service, or say in UNRECORDED why it has none")
    if wrong:
        pytest.fail("\n".join(wrong))


OURS = re.compile(WRITES.pattern.replace("accounts|experiments|results", "accounts|experiments|results|reported|watching"))


def _changed(captured: CaptureQueriesContext) -> list[str]:
    """What was added. An UPDATE may have found no row, so of those it counts that the address leaves an entry for somebody."""
    return [q["sql"] for q in captured if OURS.match(q["sql"]) and q["sql"].startswith("INSERT") and "accounts_auditentry" not in q["sql"]]


def test_what_stores_for_everybody_records_it(db: Any) -> None:
    it = everything()
    actions = set(AuditEntry.objects.filter(team_id=it.team.pk).values_list("action", flat=True))
    assert {
        "experiment.submit",
        "experiment.publish",
        "invitation.make",
        "report.import",
        "mapping-template.keep",
        "watch.create",
        "channel.create",
    } <= actions


def test_the_reasons_are_of_addresses_that_there_are() -> None:
    assert sorted(set(UNRECORDED) - set(TABLE)) == []


class TestEntries:
    def test_says_who_by_what_and_from_where(self, world: World) -> None:
        client = Client(headers={"X-Request-Id": "from-the-proxy.7"}, REMOTE_ADDR="203.0.113.9")
        client.force_login(world.owner)
        answer = client.post("/teams/ours/members", {"user": "stranger", "role": "viewer"})
        assert answer["X-Request-Id"] == "from-the-proxy.7"
        entry = AuditEntry.objects.get(action="member.role")
        assert (entry.actor, entry.via, entry.name, entry.team) == ("owner", "page", "stranger", "Ours")
        assert (entry.before, entry.after) == ("not in the team", "viewer")
        assert (entry.request_id, entry.address) == ("from-the-proxy.7", "203.0.113.9")

    def test_keeps_no_address_where_that_is_set(self, world: World, settings: Any) -> None:
        settings.SPECWEB_AUDIT_ADDRESSES = False
        as_user(world.owner).post("/teams/ours/members", {"user": "stranger", "role": "viewer"})
        assert AuditEntry.objects.get(action="member.role").address == ""

    @pytest.mark.parametrize("given", ["x" * 65, "a b", "<script>", ""])
    def test_takes_no_odd_request_id(self, world: World, given: str) -> None:
        told = Client(headers={"X-Request-Id": given}).get("/login/")["X-Request-Id"]
        assert re.fullmatch(r"[0-9a-f]{32}", told)

    def test_a_program_is_named_by_its_token(self, world: World) -> None:
        _, secret = create_token(world.owner, "my laptop")
        Client(headers={"Authorization": f"Bearer {secret}"}).post(
            "/api/v1/teams/", {"name": "New", "slug": "n2"}, content_type="application/json"
        )
        entry = AuditEntry.objects.get(action="team.make")
        assert (entry.actor, entry.via, entry.token) == ("owner", "token", f"my laptop ({secret[:12]}…)")

    def test_a_command_is_told_as_one(self, world: World) -> None:
        call_command("member", "stranger", "ours", "viewer")
        entry = AuditEntry.objects.get(action="member.role")
        assert (entry.actor, entry.via, entry.request_id) == ("", "command", "")

    def test_what_a_command_makes_is_told(self, world: World) -> None:
        call_command("member", "ada", "lab", "maintainer", "--team-name", "The lab", "--login-link")
        call_command("login_link", "--user", "ada")
        found = list(AuditEntry.objects.order_by("id").values_list("action", "name", "team"))
        link = ("account.login-link", "ada", "")
        assert found == [("team.make", "The lab", "The lab"), ("account.make", "ada", ""), ("member.role", "ada", "The lab"), link, link]

    def test_a_host_that_enrols_names_itself(self, world: World) -> None:
        from specweb.experiments.services.hosts import create_enrolment_code

        code = create_enrolment_code(world.team, timezone.now())
        body = {"code": code, "hostname": "new-box", "agent_version": "1"}
        assert Client().post("/agent/v1/enrol", body, content_type="application/json").status_code == 201
        entry = AuditEntry.objects.get(action="host.enrol")
        assert (entry.actor, entry.via, entry.team) == ("new-box", "agent", "Ours")
        assert code not in str(list(AuditEntry.objects.values()))

    def test_an_uploaded_workload_is_recorded(self, world: World) -> None:
        _, secret = create_token(world.owner, "x")
        prompts = "\n".join(f'{{"prompt": "a quite different prompt {n}"}}' for n in range(4))
        client = Client(headers={"Authorization": f"Bearer {secret}"})
        answer = client.post("/api/v1/workloads/?name=mine", prompts, content_type="application/jsonl")
        assert answer.status_code == 201, answer.content
        entry = AuditEntry.objects.get(action="workload.add")
        assert (entry.name, entry.actor, entry.after) == ("mine@1", "owner", "for its owner")

    def test_what_is_undone_leaves_no_entry(self, world: World) -> None:
        n = AuditEntry.objects.count()
        assert as_user(world.owner).post("/teams/ours/leave").status_code == 409
        assert AuditEntry.objects.count() == n

    def test_the_database_refuses_to_change_or_remove_one(self, world: World) -> None:
        audit.record("team.make", 1, "x", team=world.team)
        for change in (lambda: AuditEntry.objects.update(actor="x"), lambda: AuditEntry.objects.all().delete()):
            with pytest.raises(IntegrityError), transaction.atomic():
                change()

    def test_outlives_people_and_things(self, world: World) -> None:
        set_role(world.team, world.stranger, Role.VIEWER)
        set_role(world.team, world.stranger, None)
        world.stranger.memberships.all().delete()
        User.objects.filter(pk=world.stranger.pk).delete()
        assert AuditEntry.objects.filter(name="stranger").count() == 2

    @pytest.mark.parametrize("odd", ["drain", "host.", "Host.drain", "host.drain now"])
    def test_takes_no_odd_action(self, odd: str) -> None:
        with pytest.raises(ValueError, match="write kind"):
            audit.record(odd)


class TestPage:
    def test_maintainers_read_their_teams_and_everybody_themselves(self, world: World) -> None:
        audit.record("host.drain", 1, "our-box", team=world.team, by=world.owner)
        audit.record("host.drain", 2, "their-box", team=world.other_team, by=world.stranger)
        audit.record("token.make", 3, "mates-token", by=world.teammate)
        for user, seen in (
            (world.owner, {"our-box"}),
            (world.teammate, {"mates-token"}),
            (world.stranger, {"their-box"}),
        ):
            text = text_of(as_user(user).get("/audit/"))
            assert {n for n in ("our-box", "their-box", "mates-token") if n in text} == seen
            told = "".join(p.decode() for p in as_user(user).get("/audit.csv").streaming_content)
            assert {n for n in ("our-box", "their-box", "mates-token") if n in told} == seen
        assert Client().get("/audit/").status_code == 302
        assert Client().get("/audit.csv").status_code == 302

    def test_filters_and_pages(self, world: World, django_assert_max_num_queries: Any) -> None:
        for n in range(120):
            audit.record("host.drain" if n % 2 else "team.rename", n, f"thing-{n}", team=world.team, by=world.owner if n % 3 else "box")
        client = as_user(world.owner)
        with django_assert_max_num_queries(7):
            first = client.get("/audit/?action=host").content.decode()
        names = re.findall(r"thing-(\d+)", first)
        assert [int(n) for n in names] == [n for n in range(119, -1, -1) if n % 2][:50]
        second = client.get("/audit/?" + re.search(r'href="\?([^"]*before=[^"]+)"', first)[1].replace("&amp;", "&"))  # type: ignore[index]
        assert [int(n) for n in re.findall(r"thing-(\d+)", second.content.decode())] == [n for n in range(19, -1, -1) if n % 2]
        for query, n in (("actor=box", 40), ("object=7", 1), ("team=Ours", 120), ("action=team.rename", 60), ("since=2100-01-01", 0)):
            rows = list(csv.DictReader(io.StringIO("".join(p.decode() for p in client.get(f"/audit.csv?{query}").streaming_content))))
            assert len(rows) == n, query
        today = timezone.now().date().isoformat()
        assert "thing-119" in text_of(client.get(f"/audit/?since={today}&until={today}"))

    @pytest.mark.parametrize("query", ["since=yesterday", "until=2026-13-01", "since=9999-12-31"])
    def test_an_odd_filter_is_named(self, world: World, query: str) -> None:
        answer = as_user(world.owner).get(f"/audit/?{query}")
        assert (answer.status_code, f"{query.partition('=')[0]}:" in text_of(answer)) == (400, True)
        assert as_user(world.owner).get(f"/audit.csv?{query}").status_code == 400

    def test_other_odd_queries_do_no_harm(self, world: World) -> None:
        for query in ("before=x", "before=" + "9" * 40, "actor=%00", "action=" + "x" * 9000):
            assert as_user(world.owner).get(f"/audit/?{query}").status_code == 200, query

    def test_a_cell_that_a_spreadsheet_would_run_is_text(self, world: World) -> None:
        audit.record("team.rename", 1, "=HYPERLINK(1)", team=world.team, by=world.owner)
        told = "".join(p.decode() for p in as_user(world.owner).get("/audit.csv").streaming_content)
        assert "'=HYPERLINK(1)" in told
