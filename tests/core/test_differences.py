"""What trials differ in is told by its name and by the part that differs, however long the whole is."""

from __future__ import annotations

import json

from speccore.differences import difference

LONG = {"cache_type": "f16", "flag": "x" * 100, "threads": 3}
BUILD, OTHER_BUILD = "ab" * 32, "cd" * 32


def test_settings_tell_only_what_differs() -> None:
    values = {"b1-off": json.dumps(LONG | {"context": 512}), "b2-off": json.dumps(LONG | {"context": 512})}
    values["b1-draft"] = json.dumps(LONG | {"context": 1024, "gpu_layers": 7})
    said = "engine settings: context 512, gpu layers unset in b1-off against context 1024, gpu layers 7 in b1-draft"
    assert difference("engine_settings", values) == said


def test_commands_tell_the_flag_that_differs() -> None:
    one = ["llama-server", "--model", "m" * 60, "--ctx-size", "512", "--port", "1"]
    for other, said in (
        ([*one[:4], "1024", *one[5:]], "command: --ctx-size 512 in a against --ctx-size 1024 in b"),
        ([*one, "--mlock"], "command: nothing in a against --mlock in b"),
        ([*one[:3], *one[5:]], "command: --ctx-size 512 in a against nothing in b"),
    ):
        assert difference("command", {"a": json.dumps(one), "b": json.dumps(other)}) == said


def test_a_hash_is_shown_as_pages_show_it_and_nothing_by_that_word() -> None:
    assert difference("runtime_hash", {"a": BUILD, "b": OTHER_BUILD}) == "engine build: abababababab in a against cdcdcdcdcdcd in b"
    assert difference("workload:count", {"a": BUILD, "b": ""}) == "workload count: abababababab in a against nothing in b"
