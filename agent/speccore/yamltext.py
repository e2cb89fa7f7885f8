"""YAML as people write it, read with every fault in words."""

from __future__ import annotations

from typing import Any

import yaml

#: An experiment or a configuration is a page or two; a file that is larger is another one.
MAX_BYTES = 256 * 1024


def read_yaml(data: bytes) -> Any:
    """The one document in ``data`` (UTF-8; JSON is YAML too). Raises ``ValueError`` that says what is wrong, and where."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, more than the {MAX_BYTES:,} that are read")
    try:
        return yaml.load(data.decode("utf-8-sig"), Loader=_Strict)  # noqa: S506  a SafeLoader
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


class _Strict(yaml.SafeLoader):
    """Safe, and a key that is there twice is a fault: of two values, one would silently not count."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no key of ours; the base class refuses it
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping
