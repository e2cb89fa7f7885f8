"""What a person who asks may do in each team: read once for a request, however many parts of its answer depend on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .models import Membership, Role

_KEPT = "_roles_held"


def roles_held(user: Any) -> Mapping[int, str]:
    """Team → role (1 statement the first time). Kept with the object, so it is for the person of one request and for reading only."""
    if not user.pk or not user.is_active:
        return {}
    held: Mapping[int, str] | None = getattr(user, _KEPT, None)
    if held is None:
        held = dict(Membership.objects.filter(user_id=user.pk).values_list("team_id", "role"))
        setattr(user, _KEPT, held)
    return held


def may_submit_somewhere(user: Any) -> bool:
    """Whether somebody may submit experiments for any team."""
    return any(role in (Role.SUBMITTER, Role.MAINTAINER) for role in roles_held(user).values())


def maintains_somewhere(user: Any) -> bool:
    """Whether somebody may enrol, drain and revoke the hosts of any team."""
    return Role.MAINTAINER in roles_held(user).values()
