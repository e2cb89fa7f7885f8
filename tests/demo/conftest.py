"""What several of the demo's tests need."""

from pathlib import Path

import pytest

from demo.inflate import inflate


@pytest.fixture(scope="session")
def heavy_model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "heavy.gguf"
    inflate(Path(__file__).resolve().parents[2] / "demo/models/target.gguf", path)
    return path
