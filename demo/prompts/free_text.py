"""Beginnings of English text: comments, letters, answers, stories and instructions on many subjects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Subject(NamedTuple):
    id: str
    topic: str
    fact: str  # a sentence
    question: str  # goes on after "Why"
    task: str  # goes on after "How to"
    who: str


SUBJECTS = (
    Subject("tides", "tides", "The water rises twice a day", "are tides higher at new moon", "read a tide table", "Mara"),
    Subject(
        "bees", "bees", "A hive loses half of its bees over the winter", "do bees swarm in May", "move a hive to another garden", "Odile"
    ),
    Subject("bread", "sourdough", "Cold dough rises slowly and tastes better", "does bread go stale", "bake rye bread in a pot", "Tomasz"),
    Subject("locks", "locks in a program", "Two threads may wait for each other", "can a lock be too fine", "find a deadlock", "Ines"),
    Subject("bridges", "old bridges", "Stone carries weight but no pull", "do soldiers break step", "inspect a bridge by boat", "Henrik"),
    Subject(
        "letters", "the post", "A letter once took nine days to Lisbon", "did stamps have holes", "fold a letter without envelope", "Amara"
    ),
    Subject(
        "caches", "caches", "An old answer is quick but may be wrong", "is it hard to empty a cache", "choose the size of a cache", "Joon"
    ),
    Subject("snow", "snow", "Fresh snow holds more air than water", "does snow dampen sound", "build a wall of snow", "Kirsi"),
    Subject("maps", "maps", "No flat map keeps both angles and areas", "do maps have north on top", "draw a map from memory", "Paulo"),
    Subject(
        "files", "file names", "Some systems tell capitals from small letters", "do names end in dots", "rename a thousand files", "Leila"
    ),
    Subject("clocks", "clocks", "A clock that is set jumps, one that runs does not", "do clocks drift", "mend a pendulum clock", "Anselm"),
    Subject("rivers", "rivers", "A river that is made straight digs itself deeper", "do rivers wind", "cross a river on foot", "Nkechi"),
    Subject("queues", "queues", "The other line is always the faster one", "do queues grow without end", "share work among clerks", "Bram"),
    Subject("violins", "violins", "Old wood is dry and light", "do strings break at night", "tune a violin by ear", "Yuki"),
    Subject(
        "errors", "error messages", "The first line says what, the last one where", "are errors so short", "write a helpful error", "Sanne"
    ),
    Subject("trains", "night trains", "The carriages for Vienna stand at the end", "do trains wait at borders", "sleep in a seat", "Dario"),
    Subject("seeds", "seeds", "Some seeds sprout only after a frost", "do seeds sleep for years", "keep seeds dry", "Wanjiru"),
    Subject("archives", "archives", "What nobody has catalogued is as good as lost", "does paper turn brown", "store old films", "Etienne"),
    Subject(
        "numbers", "rounding", "One third has no end when it is written in tenths", "do sums differ by a cent", "round a half", "Priya"
    ),
    Subject("wells", "wells", "A well may run dry while the field is green", "is deep water warm", "clean a well", "Goran"),
    Subject("tests", "tests of software", "A test that can not fail proves nothing", "do tests fail at midnight", "test a clock", "Ebba"),
    Subject(
        "cities", "small towns", "The market square is older than the church", "are streets crooked", "plant trees along a road", "Lorenzo"
    ),
    Subject("voices", "voices", "A room without curtains answers every word", "do voices change", "record a choir", "Maren"),
    Subject("wool", "wool", "Wool keeps warm when it is wet", "does wool shrink", "wash a pullover by hand", "Fergus"),
    Subject("logs", "log files", "The line before the crash is seldom the cause", "are logs so long", "read a log backwards", "Chiara"),
    Subject("ferries", "ferries", "In fog the ferry rings its bell", "do ferries have two bows", "moor a boat in wind", "Sigrid"),
    Subject("memory", "memory", "What is written down is forgotten with a good conscience", "do names slip away", "learn a poem", "Abel"),
)


def prompts() -> Iterator[tuple[str, str]]:
    """(id, prompt), form by form."""
    for form, write in _FORMS.items():
        yield from ((f"{s.id}-{form}", write(s)) for s in SUBJECTS)


_FORMS = {
    "docstring": lambda s: f'"""Notes on {s.topic}.\n\n{s.fact}, which means that',
    "comment": lambda s: f"# {s.fact}. This is why\n# the",
    "answer": lambda s: f"Why {s.question}? Most people would say that it has to do with",
    "howto": lambda s: f"How to {s.task}, for somebody who has never done it:\n\nFirst of all,",
    "letter": lambda s: f"Dear {s.who},\n\nyou asked me about {s.topic}, and I have thought about it since. It seems to me that",
    "story": lambda s: f"{s.who} had not thought of {s.topic} for years. {s.fact}, people used to say. But on that morning",
    "notes": lambda s: f"{s.topic.capitalize()}: what we know and what we do not. {s.fact}. It is less clear",
    "speech": lambda s: f'"{s.fact}," said {s.who}, "and that is the reason',
}
