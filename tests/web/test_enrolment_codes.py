"""Enrolment codes that nobody used yet: listed for who may make them, and withdrawn so that no machine enrols."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from specweb.accounts.models import AuditEntry, Role
from specweb.experiments.models import EnrolmentCode, Host
from specweb.experiments.services.hosts import CODE_LIFE, create_enrolment_code
from tests.web import sample
from tests.web.pages import as_user, now, with_role

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def listed(user: Any) -> list[int]:
    page = as_user(user).get(reverse("host-enrol")).content.decode()
    return [int(n) for n in re.findall(r"hosts/enrol/(\d+)/withdraw", page)]


def enrol(code: str) -> int:
    body = {"code": code, "hostname": "gpu-box", "agent_version": "1"}
    return Client().post("/agent/v1/enrol", body, content_type="application/json").status_code


def withdraw(user: Any, code: int) -> Any:
    return as_user(user).post(reverse("enrolment-code-withdraw", args=[code]), follow=user is not None)


def test_what_could_still_be_used_is_listed_and_its_secret_is_not(people):
    secrets = [create_enrolment_code(people.team, now()) for _ in range(2)]
    create_enrolment_code(people.team, now() - CODE_LIFE - timedelta(minutes=1))  # too old
    create_enrolment_code(people.other, now())
    one, two, *_ = EnrolmentCode.objects.order_by("pk").values_list("pk", flat=True)
    assert listed(people.owner) == [two, one]
    assert enrol(secrets[1]) == 201
    assert listed(people.owner) == [one]
    assert not any(secret in as_user(people.owner).get(reverse("host-enrol")).content.decode() for secret in secrets)


def test_with_a_withdrawn_code_no_machine_enrols_and_the_audit_log_knows(people):
    secret = create_enrolment_code(people.team, now())
    code = EnrolmentCode.objects.get()
    page = withdraw(people.owner, code.pk).content.decode()
    assert f"Enrolment code {code.pk} of Our team is withdrawn" in page
    assert listed(people.owner) == []
    assert enrol(secret) == 403
    assert not Host.objects.exists()
    told = AuditEntry.objects.get(action="enrolment-code.withdraw")
    assert (told.team_id, told.object_id) == (people.team.pk, str(code.pk))


def test_a_code_that_a_machine_has_used_stays_as_history(people):
    secret = create_enrolment_code(people.team, now())
    code = EnrolmentCode.objects.get()
    assert enrol(secret) == 201
    assert "was used or withdrawn before" in withdraw(people.owner, code.pk).content.decode()
    assert EnrolmentCode.objects.get().host == Host.objects.get()


def test_only_maintainers_of_its_team_withdraw_a_code(people):
    create_enrolment_code(people.team, now())
    code = EnrolmentCode.objects.get()
    refused = ((people.mate, 403), (with_role(people.team, Role.SUBMITTER), 403), (people.stranger, 404))
    for user, expected in refused:
        assert withdraw(user, code.pk).status_code == expected
    answer = withdraw(None, code.pk)
    assert (answer.status_code, answer["Location"].startswith("/login/")) == (302, True)
    assert as_user(people.owner).get(reverse("enrolment-code-withdraw", args=[code.pk])).status_code == 405
    assert withdraw(people.owner, code.pk + 1).status_code == 404
    assert EnrolmentCode.objects.filter(pk=code.pk, used_at=None).exists()
