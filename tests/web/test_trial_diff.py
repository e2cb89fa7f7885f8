"""The difference of two trials: what differs and only that, a ratio inside one pair key only, and for whom."""

from __future__ import annotations

import html
import re
import uuid
from pathlib import Path

import pytest
from django.urls import reverse
from speccore.metrics import METRICS

from specweb.experiments.models import Visibility
from specweb.results.models import Attempt
from tests.web import sample
from tests.web.pages import as_user, small


@pytest.fixture
def people(db, settings, tmp_path: Path) -> sample.People:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    return sample.people()


def of(run: sample.Run, arm: str, block: int = 1) -> Attempt:
    return next(a for a in run.attempts if (a.trial.arm.name, a.trial.block) == (arm, block))


def answer_of(user, a: Attempt, b: object = "", more: str = ""):
    return as_user(user).get(reverse("trial-diff", args=[a.pk]) + (f"?with={getattr(b, 'pk', b)}{more}" if b else ""))


def page(user, a: Attempt, b: object = "", more: str = "") -> str:
    answer = answer_of(user, a, b, more)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def rows(text: str) -> dict[str, list[str]]:
    """What stands beside each name."""
    found = re.findall(r"<tr[^>]*><th scope=\"row\"[^>]*>(.*?)</th>(.*?)</tr>", text, re.S)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", cells, re.S) for name, cells in found}


def test_a_pair_of_a_block_differs_in_its_arm_and_has_ratios(people):
    run = small(people)
    a, b = of(run, "off"), of(run, "draft-3")
    text = page(people.owner, a, b)
    found = rows(text)
    assert found["arm"] == ["off", "draft-3"]
    assert found["arm.mode"] == ["off", "draft"]
    assert found["arm.draft_limit"] == ["—", "3"]
    assert "block" not in found  # equal, and not asked for
    assert "--port" not in found  # of each start its own
    flags = [name for name in found if name.startswith("--spec") or name.startswith("--draft") or name == "-md"]
    assert flags
    assert all(found[f][0] == "—" for f in flags)
    speeds = found[f"{METRICS['decode_tokens_per_s'].name}, tokens/s"]
    assert re.fullmatch(r"\d+\.\d+×", speeds[2])
    assert "B ÷ A of one start each" in text


def test_all_of_it_is_shown_on_request(people):
    run = small(people)
    a, b = of(run, "off"), of(run, "draft-3")
    less, more = rows(page(people.owner, a, b)), rows(page(people.owner, a, b, "&all=1"))
    assert more["block"] == ["1", "1"]
    assert set(less) < set(more)
    assert all(more[name] == less[name] for name in less)


def test_there_is_no_ratio_across_pair_keys(people):
    run = small(people)
    a, b = of(run, "off"), of(run, "draft-3")
    kept = b.measurement
    kept.numbers["pair_fields"]["boot_id"] = "another"
    kept.save()
    text = page(people.owner, a, b)
    assert "No ratio: what must be equal in a pair differs (start of the machine)." in text
    assert not re.search(r"\d×<", text)
    Attempt.objects.filter(pk=b.pk).update(measurement=None)
    assert "No ratio: of one of the two nothing was read." in page(people.owner, a, b)


def test_a_withheld_number_stays_its_reason(people):
    run = small(people)
    a, b = of(run, "off"), of(run, "draft-3")
    kept = b.measurement
    for probe in kept.numbers["probes"]:
        probe["e2e_s"] = {"withheld": "the stream was cut", "reason_code": "cut"}
    kept.save()
    found = rows(page(people.owner, a, b))[f"{METRICS['e2e_s'].name}, s"]
    assert "cut" in found[1]
    assert found[2] == ""


def test_what_it_can_be_held_against_is_listed(people):
    run = small(people)
    a = of(run, "off")
    text = page(people.owner, a)
    listed = set(re.findall(r'href="\?with=([0-9a-f-]{36})"', text))
    assert listed == {str(of(run, "draft-3").pk), str(of(run, "off", 2).pk), str(of(run, "off", 3).pk)}
    assert reverse("trial-diff", args=[a.pk]) in html.unescape(as_user(people.owner).get(reverse("attempt", args=[a.pk])).content.decode())


def test_an_address_is_taken_for_the_other_trial_and_nonsense_is_told(people):
    run = small(people)
    a, b = of(run, "off"), of(run, "draft-3")
    assert rows(page(people.owner, a, f"https://here{reverse('attempt', args=[b.pk])}"))["arm"] == ["off", "draft-3"]
    assert "“<b>x</b>” names no trial" in page(people.owner, a, "<b>x</b>")
    assert "<b>x</b>" not in answer_of(people.owner, a, "<b>x</b>").content.decode()
    assert "the same attempt" in page(people.owner, a, a)
    assert answer_of(people.owner, a, uuid.uuid4()).status_code == 404


def test_both_trials_must_be_readable(people):
    ours, public = small(people), small(people, Visibility.PUBLIC, name="public")
    a, b = of(public, "off"), of(ours, "off")
    for user, expected in ((people.owner, 200), (people.mate, 200), (people.stranger, 404), (None, 302)):
        assert answer_of(user, a, b).status_code == expected, user
        assert answer_of(user, b, a).status_code == expected, user
        assert answer_of(user, a).status_code == 200
    found = rows(page(people.owner, a, b))
    assert found["experiment"][0] == "public"


def test_it_takes_few_statements(people, django_assert_max_num_queries):
    run, other = small(people), small(people, name="other")
    client = as_user(people.owner)
    for b in (of(run, "draft-3"), of(other, "off")):
        with django_assert_max_num_queries(10 if b.trial.job_id == run.job.pk else 13):
            assert client.get(reverse("trial-diff", args=[of(run, "off").pk]) + f"?with={b.pk}").status_code == 200
