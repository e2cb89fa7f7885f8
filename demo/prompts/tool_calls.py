"""Requests, the tools at hand, and the one call that answers each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_TOOLS = """\
get_weather(city: string, day: "today" or "tomorrow")
set_timer(minutes: number, label: string)
convert(amount: number, from: string, to: string)   units or currencies by their usual short names, such as km, USD
send_message(to: string, text: string)
search_flights(origin: string, destination: string, date: string)   cities by name, date as YYYY-MM-DD
create_event(title: string, date: string, hour: number)   date as YYYY-MM-DD, hour from 0 to 23
play_music(artist: string, volume: number)   volume from 0 to 100
read_file(path: string, first_line: number, last_line: number)
"""

_REQUESTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("What will the weather be like in Oslo tomorrow?", "get_weather", {"city": "Oslo", "day": "tomorrow"}),
    ("Do I need an umbrella in Lisbon today?", "get_weather", {"city": "Lisbon", "day": "today"}),
    ("Is it going to snow in Sapporo tomorrow?", "get_weather", {"city": "Sapporo", "day": "tomorrow"}),
    ("How hot is it in Nairobi today?", "get_weather", {"city": "Nairobi", "day": "today"}),
    ("Tell me tomorrow's weather for Quito.", "get_weather", {"city": "Quito", "day": "tomorrow"}),
    ("Weather in Tallinn, please, for today.", "get_weather", {"city": "Tallinn", "day": "today"}),
    ('Set a timer of 12 minutes and call it "eggs".', "set_timer", {"minutes": 12, "label": "eggs"}),
    ('Remind me in 45 minutes, label "laundry".', "set_timer", {"minutes": 45, "label": "laundry"}),
    ('Start a 3 minute timer named "tea".', "set_timer", {"minutes": 3, "label": "tea"}),
    ('I need a timer for an hour and a half, named "dough".', "set_timer", {"minutes": 90, "label": "dough"}),
    ('Wake me in 20 minutes; the label is "nap".', "set_timer", {"minutes": 20, "label": "nap"}),
    ('Timer "parking", two hours.', "set_timer", {"minutes": 120, "label": "parking"}),
    ("How many miles (mi) are 42 km?", "convert", {"amount": 42, "from": "km", "to": "mi"}),
    ("Change 250 USD into EUR.", "convert", {"amount": 250, "from": "USD", "to": "EUR"}),
    ("What are 7.5 kg in lb?", "convert", {"amount": 7.5, "from": "kg", "to": "lb"}),
    ("Convert 1800 JPY to GBP for me.", "convert", {"amount": 1800, "from": "JPY", "to": "GBP"}),
    ("How much is 60 in in cm?", "convert", {"amount": 60, "from": "in", "to": "cm"}),
    ("Turn 3 gal into l.", "convert", {"amount": 3, "from": "gal", "to": "l"}),
    ('Write to Amir: "I am ten minutes late".', "send_message", {"to": "Amir", "text": "I am ten minutes late"}),
    ('Send "The keys are under the mat" to Beate.', "send_message", {"to": "Beate", "text": "The keys are under the mat"}),
    ('Text Carlos the words "Happy birthday!"', "send_message", {"to": "Carlos", "text": "Happy birthday!"}),
    ('Please tell Dunja: "Lunch at one?"', "send_message", {"to": "Dunja", "text": "Lunch at one?"}),
    ('A message to Emeka, saying "Call the plumber".', "send_message", {"to": "Emeka", "text": "Call the plumber"}),
    ('Let Freya know: "The parcel has come".', "send_message", {"to": "Freya", "text": "The parcel has come"}),
    (
        "Find flights from Vienna to Athens on 2031-04-12.",
        "search_flights",
        {"origin": "Vienna", "destination": "Athens", "date": "2031-04-12"},
    ),
    (
        "Which flights go from Lima to Bogota on 2031-09-30?",
        "search_flights",
        {"origin": "Lima", "destination": "Bogota", "date": "2031-09-30"},
    ),
    (
        "I want to fly to Hanoi from Seoul on 2031-01-08.",
        "search_flights",
        {"origin": "Seoul", "destination": "Hanoi", "date": "2031-01-08"},
    ),
    ("Flights Dublin to Porto, 2031-06-21.", "search_flights", {"origin": "Dublin", "destination": "Porto", "date": "2031-06-21"}),
    (
        "On 2031-11-05 I have to be in Cairo; I start in Tunis. Flights?",
        "search_flights",
        {"origin": "Tunis", "destination": "Cairo", "date": "2031-11-05"},
    ),
    (
        "Search for a flight out of Perth to Darwin on 2031-02-14.",
        "search_flights",
        {"origin": "Perth", "destination": "Darwin", "date": "2031-02-14"},
    ),
    ('Put "Dentist" into my calendar, 2031-03-17 at 9.', "create_event", {"title": "Dentist", "date": "2031-03-17", "hour": 9}),
    ('An event "Choir" on 2031-10-02, 7 in the evening.', "create_event", {"title": "Choir", "date": "2031-10-02", "hour": 19}),
    ('Block 2 pm on 2031-05-25 for "Review".', "create_event", {"title": "Review", "date": "2031-05-25", "hour": 14}),
    ('Plan "Market" for 2031-07-06 at six in the morning.', "create_event", {"title": "Market", "date": "2031-07-06", "hour": 6}),
    (
        "Note \"Parents' evening\" for 2031-09-11, 18 o'clock.",
        "create_event",
        {"title": "Parents' evening", "date": "2031-09-11", "hour": 18},
    ),
    ('New appointment: "Tyres", 2031-11-20, 11 am.', "create_event", {"title": "Tyres", "date": "2031-11-20", "hour": 11}),
    ("Play something by Nina Simone at volume 30.", "play_music", {"artist": "Nina Simone", "volume": 30}),
    ("Put on Kraftwerk, volume 55.", "play_music", {"artist": "Kraftwerk", "volume": 55}),
    ("I would like to hear Cesaria Evora quietly, at 15.", "play_music", {"artist": "Cesaria Evora", "volume": 15}),
    ("Music by Fela Kuti, please, as loud as it goes.", "play_music", {"artist": "Fela Kuti", "volume": 100}),
    ("Bach at volume 40.", "play_music", {"artist": "Bach", "volume": 40}),
    ("Turn on Björk with the volume at 65.", "play_music", {"artist": "Björk", "volume": 65}),
    ("Show me lines 10 to 25 of src/main.ts.", "read_file", {"path": "src/main.ts", "first_line": 10, "last_line": 25}),
    ("What stands in the first 5 lines of README.md?", "read_file", {"path": "README.md", "first_line": 1, "last_line": 5}),
    ("Read line 88 of lib/parse.py.", "read_file", {"path": "lib/parse.py", "first_line": 88, "last_line": 88}),
    ("Open config/prod.yaml from line 3 through line 9.", "read_file", {"path": "config/prod.yaml", "first_line": 3, "last_line": 9}),
    ("Lines 200 to 240 of server.log.", "read_file", {"path": "server.log", "first_line": 200, "last_line": 240}),
    ("Print tests/test_api.py, lines 50-60.", "read_file", {"path": "tests/test_api.py", "first_line": 50, "last_line": 60}),
)


def pieces() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(id, prompt, expected call)."""
    for n, (request, name, arguments) in enumerate(_REQUESTS, start=1):
        asked = 'The one call that answers it, as a JSON object with "name" and "arguments" and nothing else:\n'
        yield f"{name.replace('_', '-')}-{n}", f"{request}\n\nTools:\n{_TOOLS}\n{asked}", {"name": name, "arguments": arguments}
