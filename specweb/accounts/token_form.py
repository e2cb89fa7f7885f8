"""The form of a new token: its name, what it may be used for, and for how long."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.http import QueryDict

from .scopes import Scope
from .services import TOKEN_LIFE, AccountError

NEVER = "never"
#: What can be chosen, as the form says it.
LIVES = {"7": "7 days", "30": "30 days", "90": "90 days", "180": "180 days", "365": "a year", NEVER: "never: until you revoke it"}


@dataclass(frozen=True)
class TokenForm:
    """What was asked for, or what stands there before anything was."""

    name: str = ""
    scopes: list[str] = field(default_factory=lambda: [Scope.READ.value])
    expires: str = str(TOKEN_LIFE.days)
    error: str = ""

    @property
    def life(self) -> timedelta | None:
        """Raises :class:`AccountError` for one that can't be chosen."""
        if self.expires not in LIVES:
            raise AccountError(f"{self.expires[:40]!r} is no time that can be chosen: {', '.join(LIVES)}.")
        return None if self.expires == NEVER else timedelta(days=int(self.expires))

    def context(self) -> dict[str, Any]:
        """What the template shows."""
        return {
            "token_form": self,
            "scope_choices": [(s.value, s.may, s.value in self.scopes) for s in Scope],
            "life_choices": [(value, words, value == self.expires) for value, words in LIVES.items()],
        }


def read(post: QueryDict) -> TokenForm:
    """What a form holds; one with nothing but a name asks for all scopes, for as long as is usual."""
    if "expires" not in post:
        return TokenForm(post.get("name", ""), list(Scope.values))
    return TokenForm(post.get("name", ""), post.getlist("scope"), post.get("expires", ""))
