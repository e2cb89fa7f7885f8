"""Beginnings of Python code: what somebody wrote so far, for many subjects in eight forms."""

from __future__ import annotations

from collections.abc import Iterator

#: noun, plural, class, two fields, a function with its arguments, and what that function does.
SUBJECTS = (
    ("invoice", "invoices", "Invoice", "customer", "amount", "total_due(invoices, today)", "Add up what is overdue at a given day."),
    ("route", "routes", "Route", "stops", "length_km", "shortest_route(routes, start, end)", "Return the shortest route, or None."),
    ("sensor", "sensors", "Sensor", "location", "reading", "average_reading(sensors, since)", "Average all readings after a moment."),
    ("ticket", "tickets", "Ticket", "title", "priority", "next_ticket(tickets)", "Pick the most urgent ticket that nobody works on."),
    ("recipe", "recipes", "Recipe", "ingredients", "servings", "scale_recipe(recipe, servings)", "Change the amounts for more guests."),
    ("backup", "backups", "Backup", "folder", "created", "expired_backups(backups, keep)", "List the backups that can be deleted."),
    ("packet", "packets", "Packet", "source", "payload", "checksum(payload)", "Compute the 16-bit checksum of some bytes."),
    (
        "account",
        "accounts",
        "Account",
        "owner",
        "balance",
        "transfer(source, target, amount)",
        "Move money, or raise if there is too little.",
    ),
    ("matrix", "matrices", "Matrix", "rows", "columns", "multiply(left, right)", "Return the product of two matrices as lists."),
    ("player", "players", "Player", "nickname", "score", "rank_players(players)", "Give equal scores the same rank."),
    ("document", "documents", "Document", "author", "text", "most_common_words(text, n)", "Count words without regard to case."),
    ("download", "downloads", "Download", "url", "n_bytes", "resume_download(url, path)", "Go on where an earlier download broke off."),
    ("calendar", "calendars", "Calendar", "events", "timezone", "free_hours(events, day)", "Find the hours of a day with no event."),
    ("lexer", "lexers", "Lexer", "source", "position", "read_number(source, position)", "Read digits and return the end as well."),
    ("shipment", "shipments", "Shipment", "weight_kg", "country", "shipping_cost(weight_kg, country)", "Look the price up by weight."),
    ("pixel", "pixels", "Pixel", "red", "green", "to_grey(red, green, blue)", "Weigh the colours as the eye does."),
    ("job", "jobs", "Job", "command", "attempts", "run_with_retries(command, attempts)", "Start a program again when it fails."),
    ("segment", "segments", "Segment", "first", "last", "merge_segments(segments)", "Join segments that overlap or touch."),
    ("password", "passwords", "Password", "salt", "digest", "is_strong(password)", "Ask for length, digits and both cases."),
    ("station", "stations", "Station", "name", "elevation_m", "nearest_station(lat, lon, stations)", "Use the great-circle distance."),
    ("message", "messages", "Message", "sender", "body", "unread_messages(messages, user)", "Newest first, at most a page of them."),
    ("vector", "vectors", "Vector", "x", "y", "angle_between(a, b)", "Return the angle of two vectors in degrees."),
    ("lease", "leases", "Lease", "holder", "expires_at", "renew_lease(lease, now)", "Lengthen a lease that has not run out."),
    ("chapter", "chapters", "Chapter", "heading", "paragraphs", "table_of_contents(chapters)", "Number the headings of two levels."),
    ("order", "orders", "Order", "items", "discount", "apply_discount(order, code)", "Lower the price by a code, once."),
    ("cell", "cells", "Cell", "row", "column", "live_neighbours(cells, row, column)", "Count the eight cells around one."),
    ("plugin", "plugins", "Plugin", "version", "enabled", "load_plugins(folder)", "Import every module of a folder by name."),
)


def prompts() -> Iterator[tuple[str, str]]:
    """(id, prompt), form by form."""
    for form, write in _FORMS.items():
        yield from ((f"{subject[0]}-{form}", write(*subject)) for subject in SUBJECTS)


def _function(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f'def {function}:\n    """{does}"""\n'


def _class(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f"class {name}:\n    def __init__(self, {one}, {two}):\n        self.{one} = {one}\n"


def _store(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return (
        f'class {name}Store:\n    """Keeps {plural} by their {one}."""\n\n    def __init__(self):\n        self._{plural} = {{}}\n\n'
        f"    def add(self, {noun}):\n"
    )


def _test(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f"import unittest\n\nclass {name}Test(unittest.TestCase):\n    def test_{two}_of_{noun}(self):\n"


def _reader(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f'def read_{plural}(path):\n    """Read {plural} from a file, one to a line: {one}, then {two}."""\n    {plural} = []\n'


def _parser(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f'def {noun}_parser():\n    parser = argparse.ArgumentParser(description="Shows {plural}.")\n    parser.add_argument("--{one}"'


def _iterator(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f'def {plural}_by_{one}({plural}):\n    """Yield each {one} with its {plural}, in order of the {two}."""\n    groups = {{}}\n'


def _text(noun: str, plural: str, name: str, one: str, two: str, function: str, does: str) -> str:
    return f'class {name}Formatter:\n    """Turns {plural} into lines of text."""\n\n    width = 72\n\n    def format(self, {noun}):\n'


_FORMS = {
    "function": _function,
    "class": _class,
    "store": _store,
    "test": _test,
    "reader": _reader,
    "parser": _parser,
    "groups": _iterator,
    "formatter": _text,
}
