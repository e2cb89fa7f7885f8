"""Somebody with the experiment form open: reads its fields from the page as a browser would, changes some and presses a button."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

Pairs = list[tuple[str, str]]


class _Fields(HTMLParser):
    """The fields of the form with this id, or of the first form that posts to the experiment form's address."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: Pairs = []
        self.inside = False
        self.area: str | None = None
        self.text = ""
        self.select: str | None = None
        self.options: list[tuple[str, bool]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {k: v or "" for k, v in attrs}
        if tag == "form":
            self.inside = of.get("action") == reverse("experiment-new")
        if not self.inside:
            return
        if tag == "input" and of.get("name") and of.get("type") != "file" and (of.get("type") != "checkbox" or "checked" in of):
            self.pairs.append((of["name"], of.get("value", "")))
        elif tag == "textarea":
            self.area, self.text = of["name"], ""
        elif tag == "select":
            self.select, self.options = of["name"], []
        elif tag == "option" and self.select:
            self.options.append((of.get("value", ""), "selected" in of))

    def handle_data(self, data: str) -> None:
        if self.area:
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.inside = False
        elif tag == "textarea" and self.area:
            self.pairs.append((self.area, self.text.removeprefix("\n")))
            self.area = None
        elif tag == "select" and self.select:
            chosen = [value for value, selected in self.options if selected] or [value for value, _ in self.options][:1]
            self.pairs += [(self.select, value) for value in chosen]
            self.select = None


def fields_in(page: str) -> Pairs:
    parser = _Fields()
    parser.feed(page)
    return parser.pairs


class FormClient:
    """``page`` is the newest answer's text; ``fields`` are those of its form."""

    def __init__(self, user: Any, query: str = "", **options: Any) -> None:
        self.client = Client(**options)
        if user is not None:
            self.client.force_login(user)
        self.take(self.client.get(reverse("experiment-new") + query))

    def take(self, answer: HttpResponse) -> HttpResponse:
        self.answer, self.page = answer, answer.content.decode()
        self.fields = fields_in(self.page) or getattr(self, "fields", [])
        return answer

    def __getitem__(self, name: str) -> str:
        return next(text for field, text in self.fields if field == name)

    def values(self, ending: str, beginning: str = "") -> list[str]:
        return [text for name, text in self.fields if name.endswith(ending) and name.startswith(beginning)]

    def change(self, **texts: str) -> FormClient:
        """Types: ``arms__1__draft_limit="0"``; a field that isn't there yet is added, as a tick is."""
        for name, text in texts.items():
            name = name.replace("__", "-")
            kept = [(n, t if n != name else text) for n, t in self.fields]
            self.fields = kept if any(n == name for n, _ in kept) else [*kept, (name, text)]
        return self

    def data(self, action: str, **files: Any) -> dict[str, Any]:
        sent: dict[str, Any] = {}
        for name, text in self.fields:
            sent.setdefault(name, []).append(text)
        return sent | {"do": action} | files

    def press(self, action: str, *, htmx: bool = False, **files: Any) -> HttpResponse:
        headers = {"HX-Request": "true"} if htmx else {}
        return self.take(self.client.post(reverse("experiment-new"), self.data(action, **files), headers=headers))

    def look(self) -> str:
        """What the preview says of what is typed."""
        answer = self.client.post(reverse("experiment-preview"), self.data(""), headers={"HX-Request": "true"})
        assert answer.status_code == 200
        return answer.content.decode()
