"""Every address of the service, and a team with one of everything, so that tests can ask all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from speccore.importers.mapping import Column, Mapping
from speccore.jobstate import JobState
from speccore.protocol import Running

from specweb.accounts.invitations import invite
from specweb.accounts.models import ApiToken, Invitation, Membership, Role, Team, User
from specweb.accounts.services import create_token
from specweb.experiments.models import EnrolmentCode, Experiment, Host, Job, Visibility, Workload
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.experiments.services.submission import seed_workload
from specweb.reported.models import MappingTemplate
from specweb.reported.services import About, import_file, keep_draft, keep_template
from specweb.results.models import Listing
from specweb.results.services.publishing import publish
from specweb.watching.models import Alert
from specweb.watching.services.channels import create_channel
from specweb.watching.services.notices import send_test
from specweb.watching.services.watches import watch
from tests.remembered import remembered
from tests.web import sample
from tests.worlds import workload

#: Stands in every name that the team gave: its own, of its people, hosts, experiments, arms, workloads.
MARKER = "zqours"
#: The team's short name, which requests may hold themselves.
SLUG = "zqslug"
#: Stands in what is for the team even where an experiment is public: a host's troubles, an engine's live log.
PRIVATE = "zqprivate"
SMALL: dict[str, Any] = {
    "name": f"{MARKER} name",
    "question": f"{MARKER} question?",
    "arms": [{"name": "off", "mode": "off"}, {"name": f"{MARKER}-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "warmup": {"mode": "fixed"},
    "blocks": 3,
}
POINT = "count/c1/ctx0/t0"


def routes() -> Iterator[str]:
    """Each address as the URL configuration writes it, e.g. ``jobs/<uuid:job_id>/cancel``."""

    def walk(patterns: list[Any], before: str) -> Iterator[str]:
        for pattern in patterns:
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, before + str(pattern.pattern))
            elif isinstance(pattern, URLPattern):
                yield before + str(pattern.pattern)

    return walk(get_resolver().url_patterns, "")


@dataclass
class Everything:
    """A team with its people, a host, a finished experiment and one that runs; a stranger has a team of their own."""

    team: Team
    people: dict[str, User | None]
    tokens: dict[str, str]
    host: Host
    finished: sample.Run
    running: sample.Run
    token: ApiToken
    workload: Workload
    invitation: Invitation
    invitation_secret: str
    reports: tuple[Any, Any, Any]  # a report, a file on its way in, a kept mapping
    code: EnrolmentCode
    watching: tuple[Any, Any, Any]  # a watch, an alert of it, a channel

    def address(self, route: str) -> str:
        """The route filled in with the team's things. What is steered is the job that runs, what is read the finished one."""
        steered = route.rsplit("/", 1)[-1] in ("cancel", "pause", "resume", "retry", "more", "rest", "progress")
        run = self.running if steered else self.finished
        values = {
            "experiment_id": run.experiment.pk,
            "job_id": run.job.pk,
            "attempt_id": self.finished.attempts[1].pk,
            "name": "records.jsonl",
            "what": "samples",
            "table": "comparisons",
            "host_id": self.host.pk,
            "manifest_hash": "a" * 64,
            "model_hash": "b" * 64,
            "slug": self.team.slug,
            "token_id": self.token.pk,
            "workload_id": self.workload.pk,
            "analysis_id": self.finished.job.analyses.last().pk,
            "content_hash": "0" * 64,
            "sha256": "0" * 64,
            "secret": self.invitation_secret if route.startswith("join/") else "once_unknown",
            "version": 1,
            "user": f"{MARKER}-viewer",
            "report_id": self.reports[0],
            "draft_id": self.reports[1],
            "template_id": self.reports[2],
            "invitation_id": self.invitation.pk,
            "code_id": self.code.pk,
            "watch_id": self.watching[0],
            "alert_id": self.watching[1],
            "channel_id": self.watching[2],
            "uidb64": "MQ",
            "token": "unknown",
        }
        return "/" + re.sub(r"<\w+:(\w+)>", lambda found: str(values[found[1]]), route) + self._rows_asked(route)

    def _rows_asked(self, route: str) -> str:
        """The query of an address that names rows of Compare: those of the finished experiment."""
        if route not in ("compare/history/", "compare/two/"):
            return ""
        row = Listing.objects.filter(experiment=self.finished.experiment).earliest("pk")
        asked = {"question": row.question_key, "hardware": row.hardware} if route == "compare/history/" else {"row": str(row.pk)}
        return f"?{urlencode(asked)}"

    def client(self, person: str, route: str) -> Client:
        """As a browser on pages, with a token where programs and agents ask."""
        token = self.tokens.get(person)
        headers = {"Authorization": f"Bearer {token}"} if token and is_for_programs(route) else None
        client = Client(raise_request_exception=False, headers=headers)
        user = self.people[person]
        if user is not None and not is_for_programs(route):
            client.force_login(user)
        return client

    def make_public(self) -> None:
        Experiment.objects.filter(team=self.team).update(visibility=Visibility.PUBLIC)


def is_for_programs(route: str) -> bool:
    return route.startswith(("api/", "agent/"))


@remembered
def everything() -> Everything:
    team, other = Team.objects.create(slug=SLUG, name=f"{MARKER} team"), Team.objects.create(slug="theirs", name="Their team")
    people: dict[str, User | None] = {"anonymous": None}
    for role in Role:
        people[role.value] = user = User.objects.create_user(f"{MARKER}-{role}")
        Membership.objects.create(user=user, team=team, role=role)
    people["stranger"] = User.objects.create_user("stranger")
    Membership.objects.create(user=people["stranger"], team=other, role=Role.MAINTAINER)
    tokens = {
        name: create_token(user, "its token" if name == "stranger" else f"{MARKER} token")[1] for name, user in people.items() if user
    }
    owner = people["maintainer"]
    assert owner is not None
    own = seed_workload(workload(f"{MARKER}-workload"), team)
    host = sample.host_with_inventory(team, f"{MARKER}-box")
    finished = sample.finished(team, owner, sample.spec(**SMALL))
    running = sample.claimed(sample.submitted(team, owner, sample.spec(**SMALL)), host)
    sample.play(running, n_trials=1)
    _troubles(running, host)
    publish(finished.experiment, owner, now=timezone.now(), hosts=True, people=True)
    made = invite(team, owner, role="viewer", now=timezone.now(), uses=9)
    create_enrolment_code(team, timezone.now())
    code = EnrolmentCode.objects.get(team=team)
    invited, secret = made.invitation, made.url.rpartition("/")[2]
    api_token = ApiToken.objects.get(user=owner)
    reported = _reported(team, owner)
    return Everything(
        team, people, tokens, host, finished, running, api_token, own, invited, secret, reported, code, _watching(finished, owner)
    )


def _reported(team: Team, owner: User, marker: str = MARKER, *, drafts: bool = True) -> tuple[Any, Any, Any]:
    columns = (Column("card", "hardware"), Column("speed", "number", f"{marker} speed", "tokens/s"))
    table = f"card,speed\n{marker} card,12\n".encode()
    done = import_file(table, team, owner, About(file_name=f"{marker}.csv"), mapping=Mapping(columns))
    assert done.report is not None
    keep_template(team, owner, f"{marker} template", Mapping(columns))
    draft = keep_draft(table, team, owner, {"file_name": f"{marker}.csv", "tool": "table"}, timezone.now()) if drafts else None
    return done.report.pk, draft and draft.pk, MappingTemplate.objects.get(name=f"{marker} template").pk


def _watching(run: sample.Run, owner: User, marker: str = MARKER) -> tuple[Any, Any, Any]:
    found = watch(run.experiment, owner, host=run.lease.host)
    level = {"estimate": 1.0, "low": 0.9, "high": 1.1, "n": 5}
    builds = {"build_before": f"{marker} old", "build_after": f"{marker} new"}
    jobs = {"before_jobs": [str(run.job.pk)], "after_jobs": [str(run.job.pk)], "found_with_job": str(run.job.pk)}
    told = {"host": run.lease.host, "arm": f"{marker}-3", "point": POINT, "metric": "ratio", "better": False, "shape": "step"}
    numbers = {"before": level, "after": level, "change": level, "p": 1e-9} | builds | jobs
    alert = Alert.objects.create(watch=found, job_before=run.job, job_after=run.job, numbers=numbers, created_at=timezone.now(), **told)
    channel = create_channel(
        run.experiment.team, owner, kind="webhook", name=f"{marker} chat", target=f"https://hooks.example.org/{marker}", events=["alert"]
    )
    send_test(channel, timezone.now(), f"{marker} person")
    return found.pk, alert.pk, channel.pk


def _troubles(run: sample.Run, host: Host) -> None:
    said = Running(job_id=str(run.job.pk), lease=run.lease.n, phase="probing", note=f"{PRIVATE} note", log_tail=[f"{PRIVATE} log"])
    Job.objects.filter(pk=run.job.pk, state=JobState.RUNNING.value).update(progress=said.model_dump(mode="json"))
    problem = {"code": "disk_full", "message": f"{PRIVATE} disk", "blame": "host"}
    Host.objects.filter(pk=host.pk).update(problem=problem, problem_at=timezone.now())


def more_of_everything(it: Everything, n: int) -> None:
    """``n`` more of each thing that a page may list."""
    owner = it.people["maintainer"]
    assert owner is not None
    for i in range(n):
        sample.host_with_inventory(it.team, f"more-{i}")
        create_token(owner, f"more {i}")
        invite(it.team, owner, role="viewer", now=timezone.now())
        team = Team.objects.create(slug=f"more-{i}", name=f"More {i}")
        Membership.objects.create(user=owner, team=team, role=Role.MAINTAINER)
        Membership.objects.create(user=User.objects.create(username=f"more-{i}"), team=it.team, role=Role.MAINTAINER)
        seed_workload(workload(f"more-{i}"), it.team)
        _reported(it.team, owner, f"more-{i}", drafts=i < 3)  # more than a few put the oldest out
        sample.submitted(it.team, owner, sample.spec(**SMALL | {"name": f"more {i}", "placement": {"count": 2}}))
        Job.objects.create(experiment=it.finished.experiment, reason="another host's")
