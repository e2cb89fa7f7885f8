"""Short notes of daily work, each with the JSON that a careful reader takes out of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Piece = tuple[str, str, dict[str, Any]]  # note, keys with their types, expected

_ORDERS = (
    ("Ines Moreau", "desk lamps", 4, 39.5, "Lyon"),
    ("Tariq Aziz", "bicycle bells", 120, 2.8, "Rotterdam"),
    ("Hanne Dahl", "wool blankets", 15, 64, "Bergen"),
    ("Olu Adeyemi", "solar panels", 8, 310, "Ibadan"),
    ("Petra Novak", "glass jars", 600, 0.75, "Brno"),
    ("Kenji Mori", "tea kettles", 12, 58.2, "Nagoya"),
    ("Lucia Romano", "garden chairs", 24, 45, "Bari"),
    ("Stefan Huber", "snow chains", 40, 82.9, "Graz"),
    ("Aylin Kaya", "paper lamps", 75, 11.4, "Izmir"),
    ("Marta Soler", "oak boards", 30, 27.6, "Girona"),
)
_BOOKINGS = (
    ("Rossi", 2, 3, "2031-05-04", True),
    ("Lindqvist", 5, 7, "2031-07-19", False),
    ("Okonkwo", 1, 1, "2031-02-28", False),
    ("Tanaka", 4, 2, "2031-11-02", True),
    ("Becker", 3, 10, "2031-08-15", True),
    ("Silva", 2, 5, "2031-12-27", False),
    ("Novotny", 6, 4, "2031-06-01", True),
    ("Haddad", 2, 14, "2031-03-09", False),
    ("Murphy", 1, 6, "2031-10-22", True),
    ("Petrov", 3, 8, "2031-04-30", False),
)
_READINGS = (
    ("north pier", 11.5, 1013, "rain", 7),
    ("airfield", 23, 1021, "clear", 2),
    ("upper dam", -4.5, 998, "snow", 11),
    ("old mill", 17.2, 1009, "fog", 0),
    ("lighthouse", 9, 987, "storm", 24),
    ("botanic garden", 28.4, 1016, "clear", 3),
    ("quarry", 2.1, 1004, "sleet", 8),
    ("ridge hut", -12, 979, "snow", 19),
    ("harbour office", 14.8, 1011, "rain", 5),
    ("salt flats", 31.5, 1018, "haze", 6),
)
_FAULTS = (
    ("pump 7", "bearing worn", 3, ["A-114", "A-115"], False),
    ("lift 2", "door sensor dirty", 1, ["L-20"], True),
    ("press 11", "hydraulic leak", 5, ["H-3", "H-9", "S-41"], False),
    ("oven 4", "thermostat stuck", 2, ["T-77"], True),
    ("crane 1", "rope frayed", 4, ["R-5"], False),
    ("fan 9", "belt slipping", 1, ["B-12", "B-13"], True),
    ("mixer 3", "gear noise", 2, [], True),
    ("valve 16", "seal cracked", 3, ["S-2"], False),
    ("robot 6", "encoder drift", 4, ["E-8", "E-10"], True),
    ("boiler 5", "pressure drops", 5, ["P-12", "V-6"], False),
)
_BOOKS = (
    ("Slow Rivers", "Maja Lund", 1998, 214, ["water", "maps"]),
    ("The Quiet Engine", "Robert Oyelaran", 2011, 368, ["machines"]),
    ("Salt and Iron", "Giulia Conti", 1975, 152, ["trade", "sea", "war"]),
    ("A Field Guide to Clouds", "Tom Hale", 2004, 96, ["weather"]),
    ("Letters from Tartu", "Kadri Sepp", 1962, 240, ["history", "post"]),
    ("Bread by Hand", "Nadia Rahal", 2019, 184, ["food"]),
    ("Under the Vault", "Emil Kraus", 1987, 301, ["building", "stone"]),
    ("Counting Birds", "Aroha Ngata", 2008, 128, ["birds", "numbers"]),
    ("The Night Ferry", "Isla Munro", 1954, 276, ["sea", "novel"]),
    ("Wool Roads", "Tenzin Dorje", 1993, 198, ["trade", "cloth"]),
)


def pieces() -> Iterator[tuple[str, str, Any]]:
    """(id, prompt, expected value)."""
    for kind, table in (("order", _orders()), ("booking", _bookings()), ("reading", _readings()), ("fault", _faults()), ("book", _books())):
        for n, (note, keys, expected) in enumerate(table, start=1):
            yield f"{kind}-{n}", f"{note}\n\nThe same as a JSON object with the keys {keys}. Nothing but the JSON:\n", expected


def _orders() -> Iterator[Piece]:
    for customer, article, n, price, city in _ORDERS:
        note = f"{customer} rang this morning and wants {n} {article} at {price:g} euros each, to be sent to {city}."
        yield (
            note,
            "customer, article, count (number), unit_price (number), city",
            {"customer": customer, "article": article, "count": n, "unit_price": price, "city": city},
        )


def _bookings() -> Iterator[Piece]:
    for name, guests, nights, day, breakfast in _BOOKINGS:
        said = "with breakfast" if breakfast else "without breakfast"
        note = (
            f"{name}, {guests} {'guest' if guests == 1 else 'guests'}, {nights} {'night' if nights == 1 else 'nights'} from {day}, {said}."
        )
        yield (
            note,
            "name, guests (number), nights (number), arrival (date as written), breakfast (true or false)",
            {"name": name, "guests": guests, "nights": nights, "arrival": day, "breakfast": breakfast},
        )


def _readings() -> Iterator[Piece]:
    for place, celsius, hectopascal, sky, knots in _READINGS:
        note = f"Station {place}: {celsius:g} degrees, pressure {hectopascal} hPa, {sky}, wind {knots} knots."
        yield (
            note,
            "station (without the word Station), temperature (number), pressure (number), sky, wind (number)",
            {"station": place, "temperature": celsius, "pressure": hectopascal, "sky": sky, "wind": knots},
        )


def _faults() -> Iterator[Piece]:
    for machine, fault, urgency, parts, running in _FAULTS:
        asked = f"Parts: {', '.join(parts)}." if parts else "No parts are needed."
        note = f"{machine} again: {fault}, urgency {urgency} of 5. {asked} It {'still runs' if running else 'stands still'}."
        yield (
            note,
            "machine, fault, urgency (number), parts (list of texts), running (true or false)",
            {"machine": machine, "fault": fault, "urgency": urgency, "parts": parts, "running": running},
        )


def _books() -> Iterator[Piece]:
    for title, author, year, pages, subjects in _BOOKS:
        note = f'"{title}" by {author} came out in {year}; {pages} pages. Subjects: {", ".join(subjects)}.'
        yield (
            note,
            "title, author, year (number), pages (number), subjects (list of texts)",
            {"title": title, "author": author, "year": year, "pages": pages, "subjects": subjects},
        )
