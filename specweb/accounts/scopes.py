"""What a person's token may be used for, beside what its owner may do."""

from __future__ import annotations

from django.db import models


class Scope(models.TextChoices):
    READ = "read", "read"
    SUBMIT = "submit", "submit"
    MANAGE = "manage", "manage"

    @property
    def may(self) -> str:
        """What the scope allows, in words; never more than the token's owner may."""
        return {
            "read": "read experiments, numbers, evidence, hosts",
            "submit": "submit experiments and runs, upload workloads, cancel, pause, resume and retry jobs",
            "manage": "add, drain and revoke hosts, share, archive and delete workloads, change teams, revoke tokens",
        }[self.value]


def all_scopes() -> list[str]:
    return [str(s) for s in Scope.values]
