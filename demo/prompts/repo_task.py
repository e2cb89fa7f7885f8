"""Tasks in a small repository: an issue is read, mended and tested by calls of tools, each written as text, with scripted waits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

#: Seconds that each tool takes, as such tools do: a look at a file is quick, a test run is not.
WAITS_S = {"search": 0.2, "read_file": 0.05, "edit_file": 0.05, "run_tests": 1.5}

TOOLS = """The repository is mended by calls of tools, one in each answer, as a JSON object with "name" and "arguments" and nothing else:
search(text: string)   lines that hold the text
read_file(path: string)
edit_file(path: string, old: string, new: string)   old stands in the file exactly once
run_tests(folder: string)
"""
CALL = "\nThe next call:\n"
REPORT = '\nNo further call. A JSON object with "files" (those that were changed) and "passed" (the number of tests), and nothing else:\n'


@dataclass(frozen=True)
class Fault:
    """One thing to mend. ``found_by``: what is searched for first; unset: the issue names the file."""

    name: str
    issue: str
    path: str
    source: str
    old: str
    new: str
    passed: int
    found_by: str = ""
    shown: bool = False  # the issue shows the file itself, so that nothing need be read
    forgets: bool = False  # before the report the context is rebuilt from a summary


FAULTS = (
    Fault(
        "bill",
        "Splitting a bill of 100 cents among three gives 33, 33 and 33, and a cent is lost. What can't be divided should go to those who "
        "come first.",
        "money/split.py",
        '''def split(total, people):
    """Cents for each person, in the order given."""
    if not people:
        raise ValueError("nobody is there to pay")
    each = total // len(people)
    return {person: each for person in people}


def owed(parts, paid):
    return {person: part - paid.get(person, 0) for person, part in parts.items()}
''',
        "    return {person: each for person in people}",
        "    left = total - each * len(people)\n    return {person: each + (i < left) for i, person in enumerate(people)}",
        14,
    ),
    Fault(
        "gauge",
        "A gauge that was not read for a day stops the whole report with a KeyError. Its line should say that there is no reading.",
        "report/levels.py",
        """from report.words import centimetres

GAUGES = ("Orrest", "Skerne", "Holm", "Dunmere")


def line(gauge, readings):
    level = readings[gauge]
    return f"{gauge}: {centimetres(level)}"


def report(day, readings):
    head = f"Levels of {day}"
    return "\\n".join([head, *(line(gauge, readings) for gauge in GAUGES)])
""",
        "    level = readings[gauge]\n",
        '    level = readings.get(gauge)\n    if level is None:\n        return f"{gauge}: no reading"\n',
        9,
        found_by="KeyError",
    ),
    Fault(
        "timetable",
        "Trains that leave after midnight are sorted before those of the evening. The day of the timetable begins at four in the morning.",
        "trains/order.py",
        '''def minutes(clock):
    hour, minute = clock.split(":")
    return int(hour) * 60 + int(minute)


def in_order(trains):
    """Trains as they leave, from the first of the day to the last."""
    return sorted(trains, key=lambda train: minutes(train["leaves"]))


def next_train(trains, clock):
    later = [t for t in trains if minutes(t["leaves"]) >= minutes(clock)]
    return in_order(later)[0] if later else None
''',
        '    return sorted(trains, key=lambda train: minutes(train["leaves"]))',
        '    return sorted(trains, key=lambda train: (minutes(train["leaves"]) - 4 * 60) % (24 * 60))',
        21,
        forgets=True,
    ),
    Fault(
        "kettle",
        "The model of the kettle boils past 100 degrees if it is left on long enough in one step. It should switch itself off there.",
        "kitchen/kettle.py",
        """class Kettle:
    def __init__(self, litres, degrees=12.0):
        self.litres = litres
        self.degrees = degrees
        self.is_on = False

    def put_on(self):
        self.is_on = True

    def wait(self, seconds, watts=1800):
        if self.is_on:
            self.degrees += watts * seconds / (4186 * self.litres)
        return self.degrees
""",
        "            self.degrees += watts * seconds / (4186 * self.litres)\n",
        "            self.degrees = min(100.0, self.degrees + watts * seconds / (4186 * self.litres))\n"
        "            self.is_on = self.degrees < 100.0\n",
        11,
        shown=True,
    ),
    Fault(
        "loans",
        "A book that is given back on the day it is due counts as late. It is late from the day after.",
        "library/loans.py",
        '''from datetime import date


def is_late(loan, today):
    """Whether a loan is over its date; one that was given back is judged by that day."""
    ended = loan.returned or today
    return ended >= loan.due


def late_loans(loans, today):
    return [loan for loan in loans if is_late(loan, today)]


def oldest(loans):
    return min(loans, key=lambda loan: loan.due, default=None)
''',
        "    return ended >= loan.due",
        "    return ended > loan.due",
        17,
        found_by="def is_late",
    ),
    Fault(
        "beds",
        "Beds with a month list are watered in all months. A bed without a list is watered all year, one with a list only in its months.",
        "garden/watering.py",
        '''def due(bed, now):
    """Whether a bed is to be watered at this hour and minute."""
    return now.strftime("%H:%M") in bed["at"]


def litres(beds, now):
    return sum(bed["litres"] for bed in beds if due(bed, now))


def names(beds, now):
    return sorted(bed["name"] for bed in beds if due(bed, now))
''',
        '    return now.strftime("%H:%M") in bed["at"]',
        '    in_season = now.month in bed.get("months", range(1, 13))\n    return in_season and now.strftime("%H:%M") in bed["at"]',
        8,
        shown=True,
    ),
    Fault(
        "ring",
        "The mean of a ring of samples drifts away from the truth after millions of them, since small errors of the running sum add up. "
        "Add up what is there instead.",
        "signal/ring.py",
        '''class Ring:
    """The last samples, as many as fit."""

    def __init__(self, size):
        self.cells = []
        self.size = size
        self.total = 0.0

    def push(self, sample):
        self.cells.append(sample)
        self.total += sample
        if len(self.cells) > self.size:
            self.total -= self.cells.pop(0)

    def mean(self):
        if not self.cells:
            raise ValueError("no samples")
        return self.total / len(self.cells)
''',
        "        return self.total / len(self.cells)",
        "        return sum(self.cells) / len(self.cells)",
        12,
        found_by="self.total",
        forgets=True,
    ),
    Fault(
        "words",
        "Counting words tells Slack and slack apart, and counts an empty word where two spaces follow each other.",
        "ledger/words.py",
        '''def counts(lines):
    """How often each word for the water was used."""
    found = {}
    for line in lines:
        for word in line.split(" "):
            found[word] = found.get(word, 0) + 1
    return found


def commonest(lines, n=3):
    ranked = sorted(counts(lines).items(), key=lambda pair: (-pair[1], pair[0]))
    return [word for word, _ in ranked[:n]]
''',
        '        for word in line.split(" "):',
        "        for word in line.lower().split():",
        15,
    ),
    Fault(
        "seats",
        "Booking seat 0 is taken without a word. Seats are numbered from 1 to the size of the carriage, and others should be refused.",
        "trains/seats.py",
        """class Carriage:
    def __init__(self, size):
        self.size = size
        self.taken = {}

    def book(self, seat, name):
        if seat in self.taken:
            raise ValueError(f"seat {seat} is taken by {self.taken[seat]}")
        self.taken[seat] = name

    def free(self):
        return [seat for seat in range(1, self.size + 1) if seat not in self.taken]
""",
        "        if seat in self.taken:\n",
        '        if not 1 <= seat <= self.size:\n            raise ValueError(f"there is no seat {seat}")\n        if seat in self.taken:\n',
        10,
    ),
    Fault(
        "csv",
        "A name with a comma in it breaks the export into one column too many. Such a field belongs in quotes, and quotes in it are doubled.",
        "export/rows.py",
        '''def row(fields):
    """One line of the export."""
    return ",".join(str(field) for field in fields)


def table(head, rows):
    return "\\r\\n".join([row(head), *(row(r) for r in rows)]) + "\\r\\n"
''',
        '    return ",".join(str(field) for field in fields)',
        '    return ",".join(quoted(str(field)) for field in fields)',
        19,
        found_by="def row",
    ),
)

#: Kept for warm-up: short tasks of the same shape.
WARMUP = (
    ("spelling", "In docs/pump.txt the word drian should be drain.", "docs/pump.txt", "drian", "drain", 3),
    ("version", "setup.cfg still says version 4.1; it should be 4.2.", "setup.cfg", "version = 4.1", "version = 4.2", 6),
    ("limit", "The log is kept for 7 days; keep it for 14, in conf/log.ini.", "conf/log.ini", "days = 7", "days = 14", 4),
    ("title", "The page about Holm has the title Home, in pages/holm.html.", "pages/holm.html", "<h1>Home</h1>", "<h1>Holm</h1>", 8),
    ("port", "The service listens on 8000 and the proxy asks 8001: mend conf/proxy.ini.", "conf/proxy.ini", "8001", "8000", 5),
    ("unit", "Temperatures are in C and the label says F, in panel/labels.json.", "panel/labels.json", '"F"', '"C"', 7),
    ("greeting", "The welcome text misses a space after the comma, in text/welcome.txt.", "text/welcome.txt", "Hello,all", "Hello, all", 2),
    (
        "sort",
        "Names are sorted downwards in the list of members: see members/list.py.",
        "members/list.py",
        "reverse=True",
        "reverse=False",
        9,
    ),
)


def tasks() -> list[dict[str, Any]]:
    return [{"id": f"repo-{fault.name}", "turns": _turns(fault)} for fault in FAULTS]


def warmup() -> list[dict[str, Any]]:
    found = []
    for name, issue, path, old, new, passed in WARMUP:
        edit = {"path": path, "old": old, "new": new}
        turns = [
            _asks(f"{issue}\n\n{TOOLS}{CALL}", "edit_file", edit),
            {"prompt": f"\n{path} was changed. All {passed} tests pass.\n{REPORT}", **_json({"files": [path], "passed": passed})},
        ]
        found.append({"id": f"repo-{name}", "turns": turns})
    return found


def _turns(fault: Fault) -> list[dict[str, Any]]:
    folder = fault.path.split("/")[0]
    says = f"{fault.issue}\n\n{TOOLS}"
    turns: list[dict[str, Any]] = []
    if fault.shown:
        says += f"\n{fault.path}:\n{fault.source}"
    elif fault.found_by:
        turns.append(
            _asks(f"{says}\nFirst of all, where does {json.dumps(fault.found_by)} stand?\n{CALL}", "search", {"text": fault.found_by})
        )
        says = f"\n{fault.path}: {fault.found_by}\n"
    if not fault.shown:
        where = "" if fault.found_by else f"\nIt is in {fault.path}, which has to be read first.\n"
        turns.append(_asks(f"{says}{where}{CALL}", "read_file", {"path": fault.path}))
        says = f"\n{fault.path}:\n{fault.source}"
    # Another edit than this one may be as right: it is history for the next turn, and no check.
    turns.append(_asks(f"{says}{CALL}", "edit_file", {"path": fault.path, "old": fault.old, "new": fault.new}, checked=False))
    turns.append(_asks(f"\n{fault.path} was changed. Its tests are in the folder {folder}.\n{CALL}", "run_tests", {"folder": folder}))
    turns[-1]["tool_wait_s"] = WAITS_S["run_tests"]
    report: dict[str, Any] = {"prompt": f"\nAll {fault.passed} tests pass.\n{REPORT}"}
    if fault.forgets:
        report["rebuild"] = (
            f"What was done so far: {fault.issue} In {fault.path} one place was changed, then the tests of {folder} were run.\n"
        )
    turns.append(report | _json({"files": [fault.path], "passed": fault.passed}))
    return turns


def _asks(prompt: str, tool: str, arguments: dict[str, Any], *, checked: bool = True) -> dict[str, Any]:
    call = {"name": tool, "arguments": arguments}
    turn = {"prompt": prompt, "answer": f"{json.dumps(call)}\n", "tool_wait_s": WAITS_S[tool]}
    return turn | ({"check": {"kind": "tool", "expected": call}} if checked else {})


def _json(expected: dict[str, Any]) -> dict[str, Any]:
    return {"check": {"kind": "json", "expected": expected}}
