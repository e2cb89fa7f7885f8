"""Who may read an experiment, and versions of it that are published and never change."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.utils import timezone
from speccore import workloads
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts.models import AuditEntry, Membership, Role, User
from specweb.experiments.models import Experiment, Host, Job, Visibility, Workload
from specweb.experiments.services.sharing import change_visibility, may_share
from specweb.experiments.services.submission import seed_workload
from specweb.results.models import Analysis, Comparison, Publication, Withdrawal
from specweb.results.services.publishing import ReasonMissing, publish, withdraw
from tests.web import sample
from tests.web.form_client import FormClient
from tests.web.test_account import as_user, text_of

pytestmark = pytest.mark.django_db
SMALL: dict[str, Any] = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "blocks": 3,
}


@pytest.fixture
def people(db: Any) -> sample.People:
    return sample.people()


@pytest.fixture
def run(people: sample.People) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(**SMALL))


def published(run: sample.Run, by: sample.People, /, **more: Any) -> Publication:
    return publish(run.experiment, by.owner, now=timezone.now(), **more)


def body_of(answer: Any) -> bytes:
    return b"".join(answer.streaming_content) if answer.streaming else answer.content


class TestVisibility:
    def test_a_private_one_is_its_submitters_alone(self, people: sample.People, run: sample.Run) -> None:
        assert change_visibility(run.experiment, Visibility.PRIVATE, people.owner)
        for user, seen in ((people.owner, 1), (people.mate, 0), (people.stranger, 0), (User(), 0)):
            assert Experiment.objects.visible_to(user).count() == seen
            assert Job.objects.visible_to(user).count() == seen
            client = as_user(user if user.pk else None)
            assert client.get(f"/experiments/{run.experiment.pk}/").status_code == (200 if seen else 404 if user.pk else 302)
            assert ("Demo pair" in text_of(client.get("/"))) is bool(seen)
            assert ("draft-3" in client.get("/compare/").content.decode()) is bool(seen)

    def test_not_even_another_maintainer_reads_its_name_in_the_log(self, people: sample.People, run: sample.Run) -> None:
        change_visibility(run.experiment, Visibility.PRIVATE, people.owner)
        entry = AuditEntry.objects.get(action="experiment.visibility")
        assert (entry.name, entry.before, entry.after) == ("a private experiment", "team", "private")

    def test_only_its_submitter_hides_it(self, people: sample.People, run: sample.Run) -> None:
        other = User.objects.create_user("other")
        Membership.objects.create(user=other, team=people.team, role=Role.MAINTAINER)
        with pytest.raises(NotPossible, match="only who submitted"):
            change_visibility(run.experiment, Visibility.PRIVATE, other)
        assert change_visibility(run.experiment, Visibility.PUBLIC, other)
        assert not change_visibility(run.experiment, Visibility.PUBLIC, other)

    def test_who_may(self, people: sample.People, run: sample.Run) -> None:
        submitter = User.objects.create_user("submitter")
        Membership.objects.create(user=submitter, team=people.team, role=Role.SUBMITTER)
        assert [may_share(u, run.experiment) for u in (people.owner, submitter, people.mate, people.stranger, User())] == [
            True,
            False,
            False,
            False,
            False,
        ]
        Experiment.objects.update(created_by=submitter)
        run.experiment.refresh_from_db()
        assert may_share(submitter, run.experiment)
        with pytest.raises(NotAllowed):
            change_visibility(run.experiment, Visibility.PUBLIC, people.mate)

    def test_an_unknown_one_is_told(self, people: sample.People, run: sample.Run) -> None:
        answer = as_user(people.owner).post(f"/experiments/{run.experiment.pk}/visibility", {"visibility": "secret"})
        assert (answer.status_code, "'secret'" in text_of(answer)) == (400, True)


class TestPublishing:
    def test_everybody_reads_it_and_nothing_else(self, people: sample.People, run: sample.Run) -> None:
        published(run, people)
        page = Client().get(f"/p/{run.experiment.pk}/", follow=True)
        text = text_of(page)
        assert page.status_code == 200
        comparison = Comparison.objects.current().get()
        assert f"{comparison.speedup:.2f}×" in text
        assert comparison.verdict in text
        assert "xeon" not in page.content.decode()
        assert "owner" not in text
        assert "leads to what it was computed from" not in text
        assert Client().get(f"/experiments/{run.experiment.pk}/").status_code == 302

    def test_it_keeps_its_numbers_whatever_is_computed_later(self, people: sample.People, run: sample.Run) -> None:
        made = published(run, people)
        address = f"/p/{run.experiment.pk}/v1"
        before = Client().get(address).content, Client().get(f"{address}.json").content
        speedup = Comparison.objects.current().get().speedup
        Analysis.objects.update(numbers={"comparisons": [], "checks": [], "answers": [], "attempts_used": []})
        Comparison.objects.update(speedup=99.0)
        Experiment.objects.update(name="another", question="another?")
        Host.every.update(name="another")
        Workload.objects.update(title="another")
        User.objects.filter(pk=people.owner.pk).update(username="another")
        assert (Client().get(address).content, Client().get(f"{address}.json").content) == before
        assert f"{speedup:.2f}×" in before[0].decode()
        assert hashlib.sha256(before[1]).hexdigest() == made.content_hash

    def test_the_database_refuses_every_change(self, people: sample.People, run: sample.Run) -> None:
        made = published(run, people)
        withdraw(made, people.owner, now=timezone.now(), reason="wrong model")
        for change in (
            lambda: Publication.objects.update(content={}),
            lambda: Publication.objects.filter(pk=made.pk).update(reason="x"),
            lambda: Withdrawal.objects.update(reason="never mind"),
            lambda: Withdrawal.objects.all().delete(),
            lambda: connection.cursor().execute("DELETE FROM results_publication"),
            lambda: run.experiment.delete(),
        ):
            with pytest.raises(IntegrityError), transaction.atomic():
                change()
        assert Publication.objects.get().content_hash == made.content_hash

    def test_a_correction_is_a_new_version_with_a_reason(self, people: sample.People, run: sample.Run) -> None:
        published(run, people)
        with pytest.raises(ReasonMissing):
            published(run, people)
        published(run, people, reason="the wrong draft model was named")
        old = text_of(Client().get(f"/p/{run.experiment.pk}/v1"))
        assert "Corrected by v2 : the wrong draft model was named" in old
        new = Client().get(f"/p/{run.experiment.pk}/", follow=True)
        assert new.redirect_chain[-1][0].endswith("/v2")
        assert "Corrected by" not in text_of(new)
        stored = {"published_at": timezone.now(), "content": {}, "content_hash": "x", "reason": ""}
        with pytest.raises(IntegrityError), transaction.atomic():
            Publication.objects.create(experiment=run.experiment, version=3, **stored)

    def test_a_withdrawn_one_leaves_its_reason(self, people: sample.People, run: sample.Run) -> None:
        made = published(run, people)
        attempt = run.attempts[1].pk
        file = f"/p/{run.experiment.pk}/v1/{attempt}/records.jsonl"
        assert Client().get(file).status_code == 200
        with pytest.raises(ReasonMissing):
            withdraw(made, people.owner, now=timezone.now(), reason="  ")
        assert withdraw(made, people.owner, now=timezone.now(), reason="the GPU was shared")
        assert not withdraw(made, people.owner, now=timezone.now(), reason="again")
        gone = Client().get(f"/p/{run.experiment.pk}/", follow=True)
        assert (gone.status_code, "the GPU was shared" in text_of(gone)) == (410, True)
        assert "×" not in text_of(gone)
        assert Client().get(f"/p/{run.experiment.pk}/v1.json").status_code == 410
        assert Client().get(file).status_code == 404

    def test_never_holds_prompts_answers_or_logs(self, people: sample.People, run: sample.Run) -> None:
        published(run, people, hosts=True, people=True)
        attempt = run.attempts[1]
        everything = Client().get(f"/p/{run.experiment.pk}/v1.json").content + Client().get(f"/p/{run.experiment.pk}/v1").content
        assert b"alert(1)" not in everything  # stands in every answer of the sample, and in its logs
        workload = run.experiment.points.get().workload
        prompts = [m["content"] for item in workload.content["items"] for m in item.get("messages", [])] + [
            item["prompt"] for item in workload.content["items"] if item.get("prompt")
        ]
        assert prompts
        assert not any(p.encode() in everything for p in prompts if len(p) > 20)
        for file in attempt.evidence.all():
            answer = Client().get(f"/p/{run.experiment.pk}/v1/{attempt.pk}/{file.name}")
            assert (answer.status_code == 200) is (file.name == "records.jsonl"), file.name
        records = body_of(Client().get(f"/p/{run.experiment.pk}/v1/{attempt.pk}/records.jsonl"))
        assert hashlib.sha256(records).hexdigest() == attempt.evidence.get(name="records.jsonl").blob_id

    def test_names_hosts_and_people_only_where_that_was_chosen(self, people: sample.People, run: sample.Run) -> None:
        Analysis.objects.update(
            numbers=json.loads(json.dumps(Analysis.objects.get().numbers).replace('"sentence": "', '"sentence": "on xeon '))
        )
        published(run, people)
        published(run, people, reason="with names", hosts=True, people=True)
        hidden, shown = (Client().get(f"/p/{run.experiment.pk}/v{v}.json").content.decode() for v in (1, 2))
        assert "xeon" not in hidden
        assert '"owner"' not in hidden
        assert "on the host" in hidden
        assert "on xeon" in shown
        assert json.loads(shown)["submitted_by"] == "owner"

    def test_of_nothing_measured_nothing_is_published(self, people: sample.People) -> None:
        host = sample.host_with_inventory(people.team)
        asked = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host).experiment
        answer = as_user(people.owner).post(f"/experiments/{asked.pk}/publish")
        assert (answer.status_code, "no numbers yet" in text_of(answer)) == (409, True)
        assert not Publication.objects.exists()

    def test_costs_few_statements(self, people: sample.People, run: sample.Run, django_assert_max_num_queries: Any) -> None:
        published(run, people)
        with django_assert_max_num_queries(5):
            Client().get(f"/p/{run.experiment.pk}/v1")
        client = as_user(people.owner)
        with django_assert_max_num_queries(12):
            assert client.get(f"/experiments/{run.experiment.pk}/share").status_code == 200

    def test_unknown_versions_and_experiments_are_not_there(self, people: sample.People, run: sample.Run) -> None:
        assert Client().get(f"/p/{run.experiment.pk}/").status_code == 404
        published(run, people)
        for path in (f"/p/{run.experiment.pk}/v2", f"/p/{run.experiment.pk}/v2.json", "/p/00000000-0000-7000-8000-000000000000/v1"):
            assert Client().get(path).status_code == 404, path
        assert as_user(people.owner).post(f"/p/{run.experiment.pk}/v9/withdraw", {"reason": "x"}).status_code == 404


def test_the_form_submits_for_oneself_alone(people: sample.People) -> None:
    for content in workloads.builtin().values():
        seed_workload(content)
    sample.host_with_inventory(people.team)
    form = FormClient(people.owner)
    form.change(visibility="private").press("preview")
    assert form["visibility"] == "private"  # it stays chosen
    form.press("submit")
    assert [Experiment.objects.visible_to(u).count() for u in (people.owner, people.mate)] == [1, 0]
