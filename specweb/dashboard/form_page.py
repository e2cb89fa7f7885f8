"""The experiment form as its template shows it: each field with its text, its faults and what it suggests. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from speccore.spec import SpecProblem

from . import form_fields as fields
from .form_choices import Choices, HostChoice, Offer
from .form_data import HOSTS, Typed, labels_twice, place_of, read_typed, unreadable, words_of
from .form_fields import ROWS, Field, mode_class
from .form_rows import MOST

#: The id of the list of faults.
SUMMARY = "f-faults"
#: Names of the fields beside the experiment itself.
META = ("key", "team", "visibility", "view", "yaml", "kept", "before", "budget")


@dataclass(frozen=True)
class Sent:
    """All that a form sends. ``view`` is form or yaml; ``kept`` is the YAML that the form was last read from, ``before`` what it replaced."""

    typed: Typed = field(default_factory=Typed)
    key: str = ""
    team: str = ""
    visibility: str = "team"
    view: str = "form"
    yaml: str = ""
    kept: str = ""
    before: str = ""
    budget: str = ""  # the time that one has, as typed: beside the preview, no part of the experiment

    @property
    def submission_key(self) -> uuid.UUID | None:
        try:
            return uuid.UUID(self.key)
        except ValueError:
            return None


def read_sent(pairs: Sequence[tuple[str, str]]) -> Sent:
    meta = {name: text.replace("\r\n", "\n") for name, text in pairs if name in META}
    sent = Sent(read_typed(pairs), **meta)
    return replace(
        sent,
        key=str(sent.submission_key or uuid.uuid4()),
        view="yaml" if sent.view == "yaml" else "form",
        visibility=sent.visibility if sent.visibility in ("private", "public") else "team",
    )


@dataclass(frozen=True)
class Fault:
    """``name`` is the field that it stands beside; empty: the whole."""

    name: str
    message: str
    where: str = ""
    line: int | None = None  # of the text in YAML

    @property
    def href(self) -> str:
        return f"#f-{self.name}" if self.name else ""


@dataclass(frozen=True)
class Reply:
    """What a button did: the form as it stands now, what is wrong with it, where the keyboard goes on, a sentence about it."""

    sent: Sent
    faults: list[Fault] = field(default_factory=list)
    focus: str = ""
    notice: str = ""


def faults_of(problems: Iterable[SpecProblem], sent: Sent) -> list[Fault]:
    """The problems beside the fields of the view that is open."""
    found = []
    for p in problems:
        told = not p.value or (p.value[0] in "'\"" and p.value in p.message)
        given = "" if told else f" (given: {p.value})"
        if sent.view == "yaml":
            where = " · ".join(w for w in (f"line {p.line}" if p.line else "", p.field) if w)
            found.append(Fault("yaml", p.message + given, where, p.line))
        else:
            name = place_of(p.field, sent.typed)
            found.append(Fault(name, p.message + given, words_of(name) or p.field))
    return found


def own_faults(sent: Sent) -> list[Fault]:
    """What only the form can see."""
    twice = [(name, f"the label {key!r} is there twice: keep one of them") for name, key in labels_twice(sent.typed) if key]
    return [Fault(name, words, words_of(name)) for name, words in [*twice, *unreadable(sent.typed)]]


@dataclass(frozen=True)
class Bound:
    """A field with what stands in it. ``described_by`` lists the ids of its help and its faults."""

    field: Field
    name: str
    value: str
    faults: list[str]
    groups: list[tuple[str, list[Offer]]]
    known: bool  # what was chosen is on offer
    focus: bool
    in_row: bool

    @property
    def id(self) -> str:
        return f"f-{self.name}"

    @property
    def help_id(self) -> str:
        return f"{self.id}-help" if not self.in_row else f"help-{self.name.split('-')[0]}-{self.field.name}"

    @property
    def described_by(self) -> str:
        return f"{self.help_id} {self.id}-fault"


@dataclass(frozen=True)
class Button:
    """What it does with its row; ``sign`` stands for the words where there is little room."""

    action: str
    words: str
    sign: str = ""
    off: bool = False
    focus: bool = False


@dataclass(frozen=True)
class RowView:
    group: str
    index: int
    title: str
    first: list[Bound]
    more: list[Bound]
    more_open: bool
    sweep: Bound | None
    kind: str  # class by what its mode needs
    buttons: list[Button]


@dataclass(frozen=True)
class Form:
    """Everything of one rendering; templates only lay it out."""

    single: dict[str, list[Bound]]
    rows: dict[str, list[RowView]]  # by the group's name as a template can say it
    group_faults: dict[str, list[str]]
    hosts: list[HostChoice]
    faults: list[Fault]
    engine_open: bool
    sampling_open: bool
    datalists: list[tuple[str, list[Offer]]]
    helps: dict[str, list[Field]]
    extra_help: dict[str, str]
    modes: list[tuple[str, str]]


SWEEP = Field(
    "sweep",
    "Sweep over values",
    "Draft limits with commas between: one arm for each takes this arm’s place. Other fields by name, semicolons between: "
    "1, 2, 4; p_min: 0, 0.5. They are draft_model, p_min, draft_device, draft_kv_type_k and draft_kv_type_v.",
    default="such as 1, 2, 4; p_min: 0, 0.5",
)


def form_of(sent: Sent, offered: Choices, faults: Sequence[Fault], focus: str) -> Form:
    bind = _Binder(sent.typed, offered, faults, focus)
    single = {name: [bind.single(f) for f in getattr(fields, name.upper())] for name in _SINGLE}
    rows = {group: bind.rows(group) for group in ROWS}
    names = {b.name for part in single.values() for b in part} | {b.name for views in rows.values() for v in views for b in _bounds(v)}
    return Form(
        single=single,
        rows={group.replace("-", "_"): views for group, views in rows.items()},
        group_faults={group.replace("-", "_"): bind.faults.get(group, []) for group in (*ROWS, HOSTS)},
        hosts=_host_choices(sent.typed.hosts, offered.hosts),
        # A link that leads nowhere helps nobody.
        faults=[f if f.name in names or f.name in (*ROWS, HOSTS, "yaml", "team") else replace(f, name="") for f in faults],
        engine_open=any(b.value or b.faults for b in single["engine_more"]) or bool(rows["engine-extra"]),
        sampling_open=any(b.value or b.faults for b in single["sampling_test"]),
        datalists=[(name, offers) for name, offers in offered.lists.items() if name not in _CHOSEN],
        helps={"arms": [*ROWS["arms"], SWEEP], "points": list(ROWS["points"])},
        extra_help={f.name: f.help for f in fields.EXTRA},
        modes=[(mode, mode_class(mode)) for mode in fields.MODE_WORDS],
    )


_SINGLE = ("question", "target", "runtime", "engine", "engine_more", "plan", "requirements", "sampling_test", "placement")
#: Lists that one chooses from; the others suggest.
_CHOSEN = frozenset(f.offers for f in (*fields.SINGLE, *(f for part in ROWS.values() for f in part)) if f.kind == "choice")
_FIRST = {"arms": fields.ARM, "points": fields.POINT, "engine-extra": fields.EXTRA, "placement-labels": fields.LABEL}


class _Binder:
    def __init__(self, typed: Typed, offered: Choices, faults: Sequence[Fault], focus: str) -> None:
        self.typed, self.lists, self.focus = typed, offered.lists, focus
        self.faults: dict[str, list[str]] = {}
        for fault in faults:
            self.faults.setdefault(fault.name, []).append(fault.message)

    def single(self, f: Field) -> Bound:
        return self._bound(f, f.name, self.typed.single.get(f.name, ""), in_row=False)

    def rows(self, group: str) -> list[RowView]:
        return [self._row(group, i, row) for i, row in enumerate(self.typed.rows[group])]

    def _row(self, group: str, i: int, row: Mapping[str, str]) -> RowView:
        def bound(f: Field) -> Bound:
            return self._bound(f, f"{group}-{i}-{f.name}", row.get(f.name, ""), in_row=True)

        first = [bound(f) for f in _FIRST[group]]
        more = [bound(f) for f in ROWS[group] if f not in _FIRST[group]]
        sweep = bound(SWEEP) if group == "arms" else None
        said = [*more, *([sweep] if sweep else [])]
        return RowView(
            group=group,
            index=i,
            title=f"{fields.ROW_WORDS[group]} {i + 1}",
            first=first,
            more=more,
            more_open=any(b.value or b.faults or b.focus for b in said),
            sweep=sweep,
            kind=mode_class(row.get("mode", "")) if group == "arms" else "",
            buttons=self._buttons(group, i),
        )

    def _buttons(self, group: str, i: int) -> list[Button]:
        last = len(self.typed.rows[group]) - 1
        made = [("duplicate", "Duplicate", "", False), ("up", "Move up", "↑", i == 0), ("down", "Move down", "↓", i == last)]
        wanted = [*(made if group in MOST else []), ("remove", "Remove", "", False)]
        return [
            Button(f"{verb}-{group}-{i}", words, sign, off, self.focus == f"do-{verb}-{group}-{i}") for verb, words, sign, off in wanted
        ]

    def _bound(self, f: Field, name: str, value: str, *, in_row: bool) -> Bound:
        offers = self.lists.get(f.offers, [])
        groups = [(head, list(part)) for head, part in groupby(offers, key=lambda o: o.group)]
        known = not value or any(o.value == value for o in offers)
        return Bound(f, name, value, self.faults.get(name, []), groups, known, self.focus == f"f-{name}", in_row)


def _bounds(row: RowView) -> list[Bound]:
    return [*row.first, *row.more, *([row.sweep] if row.sweep else [])]


def _host_choices(ticked: Sequence[str], hosts: Sequence[HostChoice]) -> list[HostChoice]:
    """The team's hosts, and what was ticked although the team has no such host."""
    names = {h.name for h in hosts}
    strange = [HostChoice(name, "", "", ticked=True, known=False) for name in ticked if name not in names]
    return [replace(h, ticked=h.name in ticked) for h in hosts] + strange
