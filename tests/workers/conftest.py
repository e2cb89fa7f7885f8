"""The same world as the web tests have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test.utils import override_settings


@pytest.fixture(autouse=True)
def evidence_folder(tmp_path: Path) -> Iterator[Path]:
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "evidence"):
        yield tmp_path / "evidence"
