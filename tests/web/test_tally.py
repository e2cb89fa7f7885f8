"""Who may read a listing and how many there are of each kind: kept by the database, whoever changes what."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Count, Q

from specweb.accounts.models import User
from specweb.experiments.models import Experiment, Job
from specweb.results import best_queries, compare_queries
from specweb.results.models import Listing, ListingTally
from specweb.results.services.listings import tally_anew
from specweb.results.tally_models import ListingTally as Tally
from tests.web import measured, sample
from tests.web.test_compare import other_host, run

pytestmark = pytest.mark.django_db
KIND = ("team_id", "visibility", "target_hash", "target", "engine", "workload", "concurrency", "occupied_context", "hardware", "mode")


@pytest.fixture
def who(db: None) -> sample.People:
    return sample.people()


def counted() -> dict[tuple[Any, ...], int]:
    """What is told, checked against the listings themselves."""
    told = {tuple(row): n for *row, n in ListingTally.objects.filter(n__gt=0).values_list(*KIND, "n")}
    there = {tuple(row): n for *row, n in Listing.objects.order_by().values_list(*KIND).annotate(n=Count("pk"))}
    assert told == there
    best = Listing.objects.order_by().values_list(*KIND).annotate(n=Count("pk", filter=Q(comparison__recommended=True)))
    assert {tuple(row): n for *row, n in ListingTally.objects.filter(n__gt=0).values_list(*KIND, "n_best")} == {
        tuple(row): n for *row, n in best
    }
    for listing in Listing.objects.select_related("comparison"):
        assert (listing.recommended, listing.lower_end) == (listing.comparison.recommended, listing.comparison.ci_low)
    return told


def choices_of(user: User) -> int:
    return sum(compare_queries.choices(user).combinations.values())


def test_what_comes_changes_and_goes_is_counted(who: sample.People) -> None:
    assert counted() == {}
    first = run(who, sample.host_with_inventory(who.team), points=[{"workload": "count"}, {"workload": "free-text"}])
    second = run(who, other_host(who.team))
    assert Listing.objects.filter(recommended=True, lower_end__gt=1).exists()
    assert sum(counted().values()) == 3
    assert measured.compare_job(first.pk, first.created_at, again=True)  # superseded ones go as new ones come
    assert sum(counted().values()) == 3
    Listing.objects.filter(comparison__job=second).update(hardware="another")
    assert {row[8] for row in counted()} >= {"another"}
    Listing.objects.filter(comparison__job=first).delete()
    assert sum(counted().values()) == 1
    before = counted()
    Tally.objects.all().delete()
    tally_anew()
    assert counted() == before


def test_who_may_read_follows_the_experiment_however_it_is_changed(who: sample.People) -> None:
    job = run(who, sample.host_with_inventory(who.team))
    seen = {name: choices_of(user) for name, user in (("owner", who.owner), ("mate", who.mate), ("stranger", who.stranger))}
    assert seen == {"owner": 1, "mate": 1, "stranger": 0}
    for visibility, expected in (("private", (1, 0, 0)), ("public", (1, 1, 1)), ("team", (1, 1, 0))):
        Experiment.objects.filter(pk=job.experiment_id).update(visibility=visibility)
        for user, n in zip((who.owner, who.mate, who.stranger), expected, strict=True):
            assert choices_of(user) == n, (visibility, user)
            visible = Experiment.objects.visible_to(user).filter(pk=job.experiment_id).count()
            assert Listing.objects.visible_to(user).count() == n == visible
        counted()
    Experiment.objects.filter(pk=job.experiment_id).update(team=who.other)
    assert choices_of(who.stranger) == 1
    assert choices_of(who.mate) == 0


def test_a_listing_that_comes_after_the_change_is_its_experiments_too(who: sample.People) -> None:
    job = run(who, sample.host_with_inventory(who.team))
    stale = Job.objects.select_related("experiment").get(pk=job.pk)
    Experiment.objects.filter(pk=job.experiment_id).update(visibility="public")
    assert stale.experiment.visibility == "team"
    assert measured.compare_job(job.pk, job.created_at, again=True)
    assert choices_of(who.stranger) == 1


def test_a_private_result_is_its_submitters_and_nobodys_once_they_are_gone(who: sample.People) -> None:
    job = run(who, sample.host_with_inventory(who.team))
    Experiment.objects.filter(pk=job.experiment_id).update(visibility="private", created_by=who.mate)
    assert (choices_of(who.mate), choices_of(who.owner)) == (1, 0)
    who.mate.delete()
    assert choices_of(who.owner) == 0
    assert Listing.objects.count() == 1


@pytest.mark.parametrize("module", [compare_queries, best_queries], ids=["compare", "best"])
def test_what_is_compared_anew_while_a_page_is_read_leaves_a_gap_and_no_fault(who: sample.People, monkeypatch: Any, module: Any) -> None:
    run(who, sample.host_with_inventory(who.team))
    read = module._listed

    def meanwhile(keys: Any) -> Any:
        Listing.objects.all().delete()
        return read(keys)

    monkeypatch.setattr(module, "_listed", meanwhile)
    asked = compare_queries.choices(who.owner)
    found = best_queries.best_arms(who.owner, Q()) if module is best_queries else compare_queries.rows(who.owner, asked, {}, 0, 50)
    assert found == []
    assert not Listing.objects.exists()
