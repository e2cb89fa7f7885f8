"""docs/api.md as a reader would follow it: each command is run by a shell, each answer has the shape that the page shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from speccore.spec import parse_spec
from speccore.yamltext import read_yaml

from specweb.accounts.models import Membership, Role, Team, User
from specweb.accounts.services import create_token
from specweb.api.errors import STATUS
from specweb.experiments.services.submission import seed_workload
from tests.web import sample

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


@dataclass(frozen=True)
class Block:
    kind: str
    text: str


BLOCKS = [Block(kind, text) for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
EXPERIMENT = next(b.text for b in BLOCKS if b.kind == "yaml")


def differences(shown: Any, real: Any, where: str = "") -> list[str]:
    """Where an answer is not of the shape that the page shows: other keys, other types; null fits everything."""
    if shown is None or real is None:
        return []
    if type(shown) is not type(real):
        return [f"{where}: {type(shown).__name__} shown, {type(real).__name__} is real"]
    if isinstance(shown, dict):
        found = [f"{where}.{k}: only on one side" for k in set(shown) ^ set(real)]
        return found + [d for k in set(shown) & set(real) for d in differences(shown[k], real[k], f"{where}.{k}")]
    if isinstance(shown, list):
        if bool(shown) != bool(real):
            return [f"{where}: {len(shown)} shown, {len(real)} are real"]
        return [d for r in real for d in differences(shown[0], r, f"{where}[]")]
    return []


@pytest.mark.django_db(transaction=True)
def test_every_command_does_what_the_page_says(live_server: Any, settings: Any, tmp_path: Path) -> None:
    settings.SPECWEB_BASE_URL = live_server.url
    lab, ada = Team.objects.create(slug="lab", name="The lab"), User.objects.create(username="ada")
    Membership.objects.create(user=ada, team=lab, role=Role.SUBMITTER)
    sample.host_with_inventory(lab)
    for content in {w.content_hash(): w for w in sample.workloads.builtin().values()}.values():
        seed_workload(content)
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    environment = {
        "PATH": os.environ["PATH"],
        "SPECWEB": live_server.url,
        "SPECWEB_TOKEN": create_token(ada, "docs")[1],
        "no_proxy": "*",
    }
    n_run = 0
    for block, after in zip(BLOCKS, [*BLOCKS[1:], Block("", "")], strict=True):
        if block.kind != "sh":
            continue
        done = subprocess.run(["sh", "-c", block.text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, (block.text, done.stderr)
        if block.text.rstrip().endswith("spec.yaml"):
            assert parse_spec(read_yaml(done.stdout.encode()))[0] == parse_spec(read_yaml(EXPERIMENT.encode()))[0]
        else:
            told = json.loads(done.stdout)
            assert ("error" in told) == ("sed" in block.text), told
            if after.kind == "json":
                assert differences(json.loads(after.text), told) == []
            if told.get("jobs"):
                environment |= {"EXPERIMENT": told["id"], "JOB": told["jobs"][0]["id"]}
        n_run += 1
    assert n_run == sum(b.kind == "sh" for b in BLOCKS) >= 10


def test_the_comparison_sees_what_differs() -> None:
    assert sorted(differences({"a": 1}, {"b": 1})) == [".a: only on one side", ".b: only on one side"]
    assert differences({"a": [{"b": 1}]}, {"a": [{"b": 1}, {"b": "x"}]}) == [".a[].b: int shown, str is real"]
    assert differences([1], []) == [": 1 shown, 0 are real"]
    assert differences({"a": None, "b": "x"}, {"a": 3, "b": None}) == []


def test_the_table_of_refusals_is_right() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for status, codes in rows:
        for code in re.findall(r"`(\w+)`", codes):
            assert STATUS.get(code, 422 if code == "spec_invalid" else int(status)) == int(status), code
