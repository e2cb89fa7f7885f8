"""Who may read an experiment, changed by who may."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts import audit
from specweb.accounts.models import AuditEntry, Role, User
from specweb.accounts.services import role_of
from specweb.experiments.models import Experiment, Visibility


def may_share(user: Any, experiment: Experiment) -> bool:
    """Whether somebody may change who reads an experiment, and publish it: maintainers, and who submitted it and still may submit."""
    role = role_of(user, experiment.team)
    return role == Role.MAINTAINER or (role == Role.SUBMITTER and experiment.created_by_id == user.pk)


def refuse_unless_shares(user: Any, experiment: Experiment) -> None:
    """Raises :class:`NotAllowed`, in words."""
    if not may_share(user, experiment):
        who = "who submitted it, or a maintainer of its team"
        raise NotAllowed("you may not change who reads this experiment", remedy=f"Ask {who}.")


def visibility_was_changed(experiment: Experiment) -> bool:
    """Whether it was submitted with another than it has, as far as the audit log knows (1 statement)."""
    return AuditEntry.objects.filter(action="experiment.visibility", object_id=str(experiment.pk)).exists()


def change_visibility(experiment: Experiment, to: Visibility, by: User) -> bool:
    """Sets who may read it. False if that was so before. Only who submitted it can make it private: others would lose it.

    What was published stays so. Raises :class:`NotAllowed` or :class:`NotPossible`.
    """
    with transaction.atomic():
        row = Experiment.objects.select_for_update(of=("self",), no_key=True).select_related("team").get(pk=experiment.pk)
        refuse_unless_shares(by, row)
        if to == Visibility.PRIVATE and row.created_by_id != by.pk:
            raise NotPossible("only who submitted an experiment can make it private", remedy="Make it visible to the team instead.")
        if row.visibility == to:
            return False
        was, row.visibility = row.visibility, to
        row.save(update_fields=["visibility"])
        audit.record("experiment.visibility", row.pk, row.name_to_maintainers, team=row.team, by=by, before=was, after=to.value)
    experiment.visibility = to
    return True
