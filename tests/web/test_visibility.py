"""Every address, for everybody: what is answered to whom, that nothing of a team's shows elsewhere, that nobody changes what they may not.

An address that the table doesn't know fails a test, and so does a method that an address takes and its row doesn't name.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from specweb.exports.tables import TABLES
from tests.web.everything import MARKER, POINT, PRIVATE, SLUG, SMALL, Everything, everything, is_for_programs, routes
from tests.web.sample import NASTY, spec

pytestmark = pytest.mark.django_db

PEOPLE = ("maintainer", "submitter", "viewer", "stranger", "anonymous")
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
ALL = "200 200 200 200 200"
TEAM = "200 200 200 404 302"  # a page of the team's: others find nothing, visitors a login form
MINE = "200 200 200 200 302"  # everybody has one of their own
ACTION = "302 302 403 404 302"  # a button of the team's submitters
HOST = "302 403 403 404 302"  # one of its maintainers
SENT = "302 302 302 302 302"
MAINTAIN = "200 403 403 404 401"
NOWHERE = "404 404 404 404 404"


@dataclass(frozen=True)
class Row:
    """Expected statuses for :data:`PEOPLE`, of a team's thing and in ``public`` of a public one where these differ.

    ``body`` is what a maintainer would send.
    """

    get: str = ""
    post: str = ""
    put: str = ""
    patch: str = ""
    delete: str = ""
    public: dict[str, str] = field(default_factory=dict)
    query: str = ""
    body: dict[str, Any] = field(default_factory=dict)

    def expected(self, method: str, public: bool) -> str:
        plain = {"GET": self.get, "POST": self.post, "PUT": self.put, "PATCH": self.patch, "DELETE": self.delete}.get(method, "")
        return self.public.get(method, plain) if public else plain


def readable(**more: Any) -> Row:
    """A page about an experiment: for everybody where that is public."""
    return Row(get=TEAM, public={"GET": ALL}, **more)


def button() -> Row:
    return Row(post=ACTION, public={"POST": "302 302 403 403 302"})


PROMPTS = {"team": SLUG, "name": f"{MARKER}-own", "text": "\n".join(json.dumps({"prompt": f"{n} {MARKER}"}) for n in range(4))}
CHANNEL = {"kind": "slack", "name": f"{MARKER} new", "target": "https://hooks.example.org/x", "events": ["alert"]}
NEW_PASSWORD = {"new_password1": "a long enough password", "new_password2": "a long enough password"}
PAGES = {
    "healthz": Row(get=ALL),
    "": Row(get=ALL),
    "running": Row(get=ALL),
    "login/": Row(get="302 302 302 302 200", post="302 302 302 302 200", put="302 302 302 302 200"),
    "login/once/<str:secret>": Row(get=SENT),
    "logout/": Row(post=SENT),
    "account/": Row(get=MINE),
    "account/tokens": Row(post=MINE, body={"name": "new"}),
    "account/tokens/<int:token_id>/revoke": Row(post=SENT),
    "account/password": Row(post=SENT, body=NEW_PASSWORD),
    "account/sessions/end": Row(post=SENT),
    "oidc/login/": Row(get=NOWHERE),  # where no provider is configured
    "oidc/callback/": Row(get=NOWHERE),
    "account/oidc/link": Row(post="404 404 404 404 302"),
    "audit/": Row(get=MINE),
    "audit.csv": Row(get=MINE),
    "account/email": Row(post=SENT, body={"email": "new@example.org"}),
    "account/email/confirm/<str:token>": Row(get=SENT),
    "password/reset": Row(get=ALL, post=ALL, body={"email": "new@example.org"}),
    "password/reset/sent": Row(get=ALL),
    "password/reset/<str:uidb64>/<str:token>/": Row(get=ALL, post=ALL),
    "sign-up": Row(get=NOWHERE, post=NOWHERE),  # where it isn't open to everybody
    # Whoever has the secret may see what they are invited to and use it; a visitor's form lacks a name.
    "join/<str:secret>": Row(get=ALL, post="302 302 302 302 400"),
    "teams/new": Row(get=MINE, post=SENT, body={"name": "New", "slug": "newone"}),
    "teams/<slug:slug>/rename": Row(post=HOST, body={"name": f"{MARKER} other"}),
    "teams/<slug:slug>/leave": Row(post="409 302 302 404 302"),  # the last maintainer stays
    "teams/<slug:slug>/invitations": Row(post="200 403 403 404 302", body={"role": "viewer"}),
    "teams/<slug:slug>/invitations/<int:invitation_id>/withdraw": Row(post=HOST),
    "teams/<slug:slug>/": Row(get=TEAM),
    "teams/<slug:slug>/members": Row(post=HOST, body={"user": "stranger", "role": "viewer"}),
    "experiments/new": Row(get="200 200 403 200 302", post="200 200 403 200 403", body={"team": SLUG, "do": "preview"}),
    "experiments/presets": Row(get="200 200 403 200 302"),
    "experiments/preview": Row(post="200 200 403 403 403", body={"team": SLUG}),
    "experiments/<uuid:experiment_id>/": readable(),
    "experiments/<uuid:experiment_id>/runs": readable(),
    "experiments/<uuid:experiment_id>/report.md": readable(),
    "experiments/<uuid:experiment_id>/archive": readable(),
    "experiments/<uuid:experiment_id>/import": Row(get="404 404 404 404 302", public={"GET": NOWHERE}),  # it was measured here
    "exports/<str:table>": Row(get=ALL),
    "experiments/<uuid:experiment_id>/share": Row(get="200 403 403 404 302", public={"GET": "200 403 403 403 302"}),
    "experiments/<uuid:experiment_id>/visibility": Row(post=HOST, public={"POST": "302 403 403 403 302"}, body={"visibility": "public"}),
    "experiments/<uuid:experiment_id>/publish": Row(post=HOST, public={"POST": "302 403 403 403 302"}, body={"reason": f"{MARKER} wrong"}),
    # What is published is everybody's, whoever may read the experiment.
    "p/<uuid:experiment_id>/": Row(get=SENT),
    "p/<uuid:experiment_id>/v<int:version>": Row(get=ALL),
    "p/<uuid:experiment_id>/v<int:version>.json": Row(get=ALL),
    "p/<uuid:experiment_id>/v<int:version>/<uuid:attempt_id>/<str:name>": Row(get=ALL),
    "p/<uuid:experiment_id>/v<int:version>/withdraw": Row(
        post=HOST, public={"POST": "302 403 403 403 302"}, body={"reason": f"{MARKER} wrong"}
    ),
    "compare/": Row(get=ALL),
    "compare/charts/": Row(get=ALL),
    "compare/history/": readable(),
    "compare/two/": readable(),
    "models/": Row(get=MINE),
    "models/<str:model_hash>/": Row(get=TEAM),
    "hardware/": Row(get=MINE),
    "hosts/": Row(get=MINE),
    "hosts/enrol": Row(get="200 403 403 200 302", post="200 403 403 404 302", body={"team": SLUG}),
    "hosts/enrol/<int:code_id>/withdraw": Row(post=HOST),
    "hosts/<uuid:host_id>/": Row(get=TEAM),
    "hosts/<uuid:host_id>/revoke": Row(get="200 403 403 404 302", post=HOST),
    "hosts/<uuid:host_id>/drain": Row(post=HOST),
    "hosts/<uuid:host_id>/undrain": Row(post=HOST),
    "workloads/": Row(get=MINE),
    "workloads/new": Row(get="200 200 403 200 302", post="302 302 403 404 302", body=PROMPTS),
    "workloads/<int:workload_id>/": Row(get=TEAM),
    "workloads/<int:workload_id>/file": Row(get=TEAM),
    "workloads/<int:workload_id>/share": Row(post=HOST),
    "workloads/<int:workload_id>/archive": Row(post=HOST),
    "workloads/<int:workload_id>/restore": Row(post=HOST),
    "workloads/<int:workload_id>/delete": Row(post=HOST),
    "reported/": Row(get=ALL),
    "reported/new": Row(get="200 200 403 200 302", post="302 302 403 404 302", body={"team": SLUG, "text": f"card,speed\n{MARKER},1"}),
    "reported/draft/<uuid:draft_id>/": Row(get="200 404 404 404 302", post="302 404 404 404 302", body={"do": "discard"}),
    "reported/beside": Row(get=ALL),
    "reported/templates/<int:template_id>/delete": Row(post=HOST),
    "reported/<uuid:report_id>/": Row(get=TEAM),
    "reported/<uuid:report_id>/file": Row(get=TEAM),
    "reported/<uuid:report_id>/visibility": Row(post=HOST, body={"visibility": "public"}),
    "reported/<uuid:report_id>/delete": Row(post=HOST),
    "watches/": Row(get=MINE),
    "watches/<uuid:watch_id>/": Row(get=TEAM),
    "watches/<uuid:watch_id>/pause": Row(post=ACTION),
    "watches/<uuid:watch_id>/resume": Row(post=ACTION),
    "watches/<uuid:watch_id>/stop": Row(post=ACTION),
    "alerts/<uuid:alert_id>/acknowledge": Row(post=ACTION, body={"note": f"{MARKER} seen"}),
    "experiments/<uuid:experiment_id>/watch": Row(
        get="200 200 403 404 302",
        post=ACTION,
        public={"GET": "200 200 403 403 302", "POST": "302 302 403 403 302"},
        body={"labels": "room=b"},
    ),
    "notices/": Row(get=MINE),
    "notices/channels": Row(post="200 403 403 404 302", body={"team": SLUG, **CHANNEL}),
    "notices/channels/<uuid:channel_id>/test": Row(post=HOST),
    "notices/channels/<uuid:channel_id>/enable": Row(post=HOST),
    "notices/channels/<uuid:channel_id>/delete": Row(post=HOST),
    "runtimes/": Row(get=MINE),
    "runtimes/<str:manifest_hash>/": Row(get=TEAM),
    "jobs/<uuid:job_id>/cancel": button(),
    "jobs/<uuid:job_id>/pause": button(),
    "jobs/<uuid:job_id>/resume": button(),
    "jobs/<uuid:job_id>/retry": button(),
    "jobs/<uuid:job_id>/more": button(),
    "jobs/<uuid:job_id>/rest": button(),
    "jobs/<uuid:job_id>/progress": Row(get="200 200 200 404 401", public={"GET": ALL}),
    "jobs/<uuid:job_id>/numbers": readable(query=f"?arm={MARKER}-3&point={POINT}"),
    "jobs/<uuid:job_id>/evidence": readable(),
    "attempts/<uuid:attempt_id>/": readable(),
    "jobs/<uuid:job_id>/order.json": readable(),
    "attempts/<uuid:attempt_id>/series/<str:what>.json": readable(),
    "attempts/<uuid:attempt_id>/diff": readable(),
    "attempts/<uuid:attempt_id>/evidence/<str:name>": readable(),
    "attempts/<uuid:attempt_id>/raw/<str:name>": readable(),
}

OWN = "200 200 200 200 401"  # what one's token shows is one's own
READ = "200 200 200 404 401"
STEER = "200 200 403 404 401"
IDLE = "409 409 403 404 401"  # the job that runs is neither paused nor has it failed
NOBODY = "401 401 401 401 401"
EXPERIMENT = spec(**SMALL).model_dump(mode="json")
PROGRAMS = {
    "api/v1/schema": Row(get=ALL),
    "api/v1/docs/": Row(get=ALL),
    "api/v1/experiments/check": Row(post="200 200 403 400 401", query=f"?team={SLUG}", body=EXPERIMENT),
    "api/v1/presets/": Row(get=OWN),
    "api/v1/jobs/<uuid:job_id>": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/numbers": Row(get=READ, public={"GET": OWN}, query=f"?arm={MARKER}-3&point={POINT}"),
    "api/v1/jobs/<uuid:job_id>/integrity": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/analyses": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/analyses/<int:analysis_id>": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/trials": Row(get=READ, public={"GET": OWN}),
    "api/v1/attempts/<uuid:attempt_id>": Row(get=READ, public={"GET": OWN}),
    "api/v1/attempts/<uuid:attempt_id>/diff": Row(get=READ, public={"GET": OWN}),
    "api/v1/compare/": Row(get=OWN),
    "api/v1/compare/choices": Row(get=OWN),
    "api/v1/comparisons/": Row(get=OWN),
    "api/v1/best": Row(get=OWN),
    "api/v1/models/": Row(get=OWN),
    "api/v1/models/<str:model_hash>": Row(get=READ),
    "api/v1/hardware/": Row(get=OWN),
    "api/v1/runtimes/": Row(get=OWN),
    "api/v1/runtimes/<str:manifest_hash>": Row(get=READ),
    "api/v1/hosts/enrol/<int:code_id>/withdraw": Row(post=MAINTAIN),
    "api/v1/hosts/enrol": Row(get=OWN, post="201 403 403 400 401", query=f"?team={SLUG}"),
    "api/v1/hosts/<uuid:host_id>": Row(get=READ),
    "api/v1/hosts/<uuid:host_id>/drain": Row(post=MAINTAIN),
    "api/v1/hosts/<uuid:host_id>/undrain": Row(post="409 403 403 404 401"),
    "api/v1/hosts/<uuid:host_id>/revoke": Row(post=MAINTAIN),
    "api/v1/workloads/<int:workload_id>": Row(get=READ, delete="204 403 403 404 401"),
    "api/v1/workloads/<int:workload_id>/file": Row(get=READ),
    "api/v1/workloads/<int:workload_id>/share": Row(post="409 403 403 404 401"),
    "api/v1/workloads/<int:workload_id>/archive": Row(post=MAINTAIN),
    "api/v1/workloads/<int:workload_id>/restore": Row(post="409 403 403 404 401"),
    "api/v1/tokens/": Row(get=OWN),
    "api/v1/tokens/<int:token_id>/revoke": Row(post="200 404 404 404 401"),
    "api/v1/me": Row(get=OWN),
    "api/v1/experiments/": Row(get=OWN, post="201 201 403 400 401", query=f"?team={SLUG}", body=EXPERIMENT),
    "api/v1/experiments/preview": Row(post="200 200 403 400 401", query=f"?team={SLUG}", body=EXPERIMENT),
    "api/v1/experiments/<uuid:experiment_id>": Row(get=READ, public={"GET": OWN}),
    "api/v1/experiments/<uuid:experiment_id>/spec.yaml": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/cancel": Row(post=STEER, public={"POST": "200 200 403 403 401"}),
    "api/v1/jobs/<uuid:job_id>/pause": Row(post=STEER, public={"POST": "200 200 403 403 401"}),
    "api/v1/jobs/<uuid:job_id>/resume": Row(post=IDLE, public={"POST": "409 409 403 403 401"}),
    "api/v1/jobs/<uuid:job_id>/retry": Row(post=IDLE, public={"POST": "409 409 403 403 401"}),
    "api/v1/jobs/<uuid:job_id>/more": Row(post=IDLE, public={"POST": "409 409 403 403 401"}, query="?blocks=2"),
    "api/v1/jobs/<uuid:job_id>/rest": Row(post=IDLE, public={"POST": "409 409 403 403 401"}),
    "api/v1/jobs/<uuid:job_id>/spec.yaml": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/report.md": Row(get=READ, public={"GET": OWN}),
    "api/v1/jobs/<uuid:job_id>/evidence": Row(get=READ, public={"GET": OWN}),
    "api/v1/attempts/<uuid:attempt_id>/evidence/<str:name>": Row(get=READ, public={"GET": OWN}),
    "api/v1/hosts/": Row(get=OWN),
    "api/v1/workloads/": Row(get=OWN, post="415 415 403 400 401", query=f"?team={SLUG}"),  # JSON is no file of prompts
    "api/v1/runs/": Row(post="400 400 400 400 401"),  # no run at all; what is one, and of whom, is tested with the upload
    "api/v1/runs/blobs/<str:sha256>": Row(put="422 422 403 400 401", query=f"?team={SLUG}"),
    "api/v1/reported/": Row(get=OWN, post="422 422 403 400 401", query=f"?team={SLUG}"),  # no tool's file
    "api/v1/reported/templates": Row(get=OWN),
    "api/v1/reported/templates/<int:template_id>": Row(delete="204 403 403 404 401"),
    "api/v1/reported/<uuid:report_id>/visibility": Row(put="200 403 403 404 401", body={"visibility": "public"}),
    "api/v1/reported/<uuid:report_id>": Row(get=READ, delete="204 403 403 404 401"),
    "api/v1/reported/<uuid:report_id>/file": Row(get=READ),
    "api/v1/experiments/<uuid:experiment_id>/visibility": Row(
        put=MAINTAIN, public={"PUT": "200 403 403 403 401"}, body={"visibility": "public"}
    ),
    "api/v1/experiments/<uuid:experiment_id>/publications": Row(
        get=OWN, post="201 403 403 404 401", public={"POST": "201 403 403 403 401"}, body={"reason": f"{MARKER} wrong"}
    ),
    "api/v1/experiments/<uuid:experiment_id>/publications/<int:version>": Row(get=OWN),
    "api/v1/experiments/<uuid:experiment_id>/publications/<int:version>/withdraw": Row(
        post=MAINTAIN, public={"POST": "200 403 403 403 401"}, body={"reason": f"{MARKER} wrong"}
    ),
    "api/v1/teams/": Row(get=OWN, post="201 201 201 201 401", body={"name": "New", "slug": "newone"}),
    "api/v1/teams/<slug:slug>": Row(get=READ, patch=MAINTAIN, body={"name": f"{MARKER} other"}),
    "api/v1/teams/<slug:slug>/members/<str:user>": Row(put=MAINTAIN, delete="200 403 200 404 401", body={"role": "submitter"}),
    "api/v1/teams/<slug:slug>/invitations": Row(get=MAINTAIN, post="201 403 403 404 401", body={"role": "viewer"}),
    "api/v1/teams/<slug:slug>/invitations/<int:invitation_id>": Row(delete=MAINTAIN),
    "api/v1/audit": Row(get=OWN),
    "api/v1/watches/": Row(get=OWN, post="400 400 400 400 401"),  # no experiment is named; who may watch which has its own test
    "api/v1/watches/<uuid:watch_id>": Row(get=READ),
    "api/v1/watches/<uuid:watch_id>/pause": Row(post=STEER),
    "api/v1/watches/<uuid:watch_id>/resume": Row(post=IDLE),
    "api/v1/watches/<uuid:watch_id>/stop": Row(post=STEER),
    "api/v1/alerts/": Row(get=OWN),
    "api/v1/alerts/<uuid:alert_id>/acknowledge": Row(post=STEER),
    "api/v1/channels/": Row(get=OWN, post="201 403 403 400 401", body={"team": SLUG, **CHANNEL}),
    "api/v1/channels/<uuid:channel_id>": Row(delete="204 403 403 404 401"),
    "api/v1/channels/<uuid:channel_id>/test": Row(post="202 403 403 404 401"),
    "api/v1/channels/<uuid:channel_id>/enable": Row(post="409 403 403 404 401"),
    "api/v1/channels/<uuid:channel_id>/deliveries": Row(get=READ),
    **{f"api/v1/exports/{table}": Row(get=OWN) for table in TABLES},
    "api/v1/experiments/<uuid:experiment_id>/archive": Row(get=READ, public={"GET": OWN}),
    "api/v1/experiments/<uuid:experiment_id>/import": Row(get="404 404 404 404 401"),  # none of these was imported
    "api/v1/archives/": Row(post="422 422 403 400 401", query=f"?team={SLUG}"),  # no archive
    "api/v1/": Row(get=NOWHERE, post=NOWHERE, put=NOWHERE),
    "agent/v1/enrol": Row(post="400 400 400 400 400"),
    "agent/v1/poll": Row(post=NOBODY),  # a person's token is none of an agent's
    "agent/v1/inventory": Row(post=NOBODY),
    "agent/v1/workloads/<str:content_hash>": Row(get=NOBODY),
    "agent/v1/blobs/<str:sha256>": Row(put=NOBODY),
    "agent/v1/attempts/<uuid:attempt_id>/report": Row(post=NOBODY),
    "^(?:api|agent)(?:/|$)": Row(get=NOWHERE, post=NOWHERE, put=NOWHERE),
    "agent/v1/": Row(get=NOWHERE, post=NOWHERE, put=NOWHERE),
}
TABLE = PAGES | PROGRAMS
#: What a request may write whatever becomes of it: when somebody last came.
STAMPS = re.compile(r'UPDATE "accounts_(apitoken" SET "last_used_at"|user" SET "last_login") = [^,]* WHERE')
WRITES = re.compile(r'(INSERT INTO|UPDATE|DELETE FROM) "(accounts|experiments|results|reported|watching)_')


@pytest.fixture
def it(db: Any) -> Everything:
    return everything()


def ask(it: Everything, person: str, method: str, route: str, **options: Any) -> Any:
    row, client = TABLE[route], it.client(person, route)
    address = it.address(route) + row.query
    if method == "POST" and not is_for_programs(route):
        return client.post(address, row.body, **options)
    body = json.dumps(row.body) if method != "GET" else ""
    return client.generic(method, address, body, content_type="application/json", **options)


def content_of(answer: Any) -> str:
    return (b"".join(answer.streaming_content) if answer.streaming else answer.content).decode("utf-8", "replace")


def writes(captured: CaptureQueriesContext) -> list[str]:
    """Statements that changed a row of our own."""
    return [q["sql"][:200] for q in captured if WRITES.match(q["sql"]) and not STAMPS.match(q["sql"])]


def is_refused(answer: Any) -> bool:
    """Who asked may not. A conflict is another matter: they may, and a swap that finds nothing to change says so."""
    sent_to_login = answer.status_code == 302 and answer["Location"].startswith("/login/")
    return sent_to_login or (answer.status_code >= 400 and answer.status_code != 409)


def test_every_address_has_a_row_here() -> None:
    assert sorted(routes()) == sorted(TABLE)


@pytest.mark.parametrize("public", [False, True], ids=["of a team", "public"])
def test_who_is_answered_what(it: Everything, public: bool) -> None:
    """And that who is refused has written nothing, and who is no member has read nothing of the team's."""
    if public:
        it.make_public()
    wrong = []
    for route, row in TABLE.items():
        for method in METHODS:
            for person, status in zip(PEOPLE, row.expected(method, public).split(), strict=False):
                with transaction.atomic(), CaptureQueriesContext(connection) as captured:
                    answer = ask(it, person, method, route)
                    text, case = content_of(answer), f"{method} /{route} by {person}: {answer.status_code}"
                    transaction.set_rollback(True)
                if str(answer.status_code) != status:
                    wrong.append(f"{case}, expected {status}")
                if is_refused(answer) and (written := writes(captured)):
                    wrong.append(f"{case}, and yet it wrote {written}")
                if person in ("stranger", "anonymous"):
                    wrong += [f"{case}, and the answer holds {word!r}" for word in _hidden(it, route, public) if word in text]
    assert wrong == []


def _hidden(it: Everything, route: str, public: bool) -> list[str]:
    """What no stranger may read in an answer; the team's short name may come back to who sent it."""
    row = TABLE[route]
    if public or route.startswith(("join/", "p/")) or "/publications" in route:  # whoever has the link may read it
        return [PRIVATE, "alert(1)"]
    own = [MARKER] if SLUG in f"{it.address(route)}{row.query}{row.body}" else [MARKER, SLUG]
    return [PRIVATE, "alert(1)", *own]


def test_no_address_takes_another_method(it: Everything) -> None:
    """Asked by who may do most."""
    wrong = []
    for route, row in TABLE.items():
        for method in METHODS:
            if not row.expected(method, False):
                with transaction.atomic(), CaptureQueriesContext(connection) as captured:
                    answer = ask(it, "maintainer", method, route)
                    transaction.set_rollback(True)
                if answer.status_code not in (401, 404, 405) and route != "login/":  # who is logged in is sent on from there
                    wrong.append(f"{method} /{route}: {answer.status_code}")
                wrong += [f"{method} /{route} wrote {w}" for w in writes(captured)]
    assert wrong == []


def test_members_do_see_what_is_looked_for(it: Everything) -> None:
    """Else the test above would find nothing to hide."""
    assert MARKER in content_of(ask(it, "viewer", "GET", "experiments/<uuid:experiment_id>/"))
    assert PRIVATE in content_of(ask(it, "viewer", "GET", "hosts/<uuid:host_id>/"))
    assert PRIVATE in content_of(ask(it, "viewer", "GET", "jobs/<uuid:job_id>/progress"))
    attempt = it.finished.attempts[1].pk
    for page in ("evidence", "raw"):
        assert "alert(1)" in content_of(it.client("viewer", "").get(f"/attempts/{attempt}/{page}/texts.jsonl")), NASTY


@pytest.mark.parametrize("person", ["viewer", "stranger", "anonymous"])
def test_prompts_and_answers_stay_with_the_team(it: Everything, person: str) -> None:
    it.make_public()
    attempt = it.finished.attempts[1].pk
    for path in (
        f"attempts/{attempt}/evidence/texts.jsonl",
        f"attempts/{attempt}/raw/texts.jsonl",
        f"api/v1/attempts/{attempt}/evidence/texts.jsonl",
    ):
        answer = it.client(person, path).get(f"/{path}")
        assert (answer.status_code == 200) is (person == "viewer"), path
        assert ("alert(1)" in content_of(answer)) is (person == "viewer"), path


def test_a_form_of_another_site_changes_nothing(it: Everything) -> None:
    """A browser with a login, and no token of ours in the form."""
    for route, row in PAGES.items():
        if row.post:
            client = Client(enforce_csrf_checks=True)
            if route != "login/":
                client.force_login(it.people["maintainer"])
            with CaptureQueriesContext(connection) as captured:
                answer = client.post(it.address(route), row.body)
            assert (answer.status_code, writes(captured)) == (403, []), route


def test_a_browsers_login_is_none_for_programs(it: Everything) -> None:
    client = Client()
    client.force_login(it.people["maintainer"])
    for route in PROGRAMS:
        if route.startswith("api/") and TABLE[route].get != ALL:
            for method in ("GET", "POST", "PUT"):
                with CaptureQueriesContext(connection) as captured:
                    answer = client.generic(method, it.address(route), json.dumps(TABLE[route].body), content_type="application/json")
                assert (answer.status_code, writes(captured)) == (404 if route == "api/v1/" else 401, []), route


def test_who_left_the_team_or_whose_account_is_closed_sees_nothing(it: Everything) -> None:
    """With a login and a token from before."""
    experiment, program = "experiments/<uuid:experiment_id>/", "api/v1/experiments/<uuid:experiment_id>"
    viewer, submitter = it.people["viewer"], it.people["submitter"]
    assert viewer is not None
    assert submitter is not None
    page, api = it.client("viewer", experiment), it.client("viewer", program)
    closed_page, closed_api = it.client("submitter", experiment), it.client("submitter", program)
    viewer.memberships.all().delete()
    submitter.is_active = False
    submitter.save()
    assert page.get(it.address(experiment)).status_code == 404
    assert api.get(it.address(program)).status_code == 404
    assert closed_page.get(it.address(experiment)).status_code == 302
    assert closed_api.get(it.address(program)).status_code == 401
