"""An engine that can't read a model is refused by the model's form, before anything is started."""

from __future__ import annotations

import pytest
from speccore.inventory import Capabilities, ModelInfo, RuntimeInfo
from speccore.model_formats import refusals


def model(alias: str, form: str) -> ModelInfo:
    return ModelInfo(alias=alias, manifest_hash=alias, path=f"/models/{alias}", format=form, size_bytes=1)


def runtime(engine: str, kind: str = "process") -> RuntimeInfo:
    return RuntimeInfo.model_validate(
        {"engine": engine, "version": "1", "manifest_hash": "r", "executable": "/e", "kind": kind}
        | {"capabilities": Capabilities(dialect="none", flags={})}
    )


@pytest.mark.parametrize(("engine", "reads", "not_read"), [("llama-server", "gguf", "hf"), ("vllm", "hf", "gguf")])
def test_each_engine_reads_its_own_form(engine: str, reads: str, not_read: str) -> None:
    good, bad = model("good", reads), model("bad", not_read)
    assert refusals(good, {"draft-3": good}, runtime(engine)) == {}
    found = refusals(bad, {"draft-3": bad, "draft-8": good}, runtime(engine))
    assert set(found) == {"", "draft-3"}
    assert found[""].code == "model_format"
    assert found[""].message.startswith(f"{engine} reads a ")
    assert found["draft-3"].message.startswith("arm 'draft-3': ")
    assert found["draft-3"].remedy


def test_a_server_that_stands_already_has_loaded_what_it_has() -> None:
    assert refusals(model("m", "gguf"), {}, runtime("vllm", "attached")) == {}


def test_a_helper_that_names_its_target_is_no_target_itself() -> None:
    """vLLM would load the model that such a folder names, wherever it lies, and speculate in the baseline too."""
    helper = model("head", "hf").model_copy(update={"drafts_for": "/elsewhere/big"})
    found = refusals(helper, {}, runtime("vllm"))
    assert "drafts for /elsewhere/big: vLLM would load that in its place" in found[""].message
    assert found[""].remedy
    assert refusals(model("m", "hf"), {"eagle": helper}, runtime("vllm")) == {}
