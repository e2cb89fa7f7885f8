"""What the web tests share: one world, and evidence kept in a folder of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test.utils import override_settings

from tests.worlds import World, make_world


@pytest.fixture(autouse=True)
def evidence_folder(tmp_path: Path) -> Iterator[None]:
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "evidence"):
        yield


@pytest.fixture
def world(db: Any) -> World:
    return make_world()
