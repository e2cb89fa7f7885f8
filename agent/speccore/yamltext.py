"""YAML as people write it, read with every fault in words."""

from __future__ import annotations

from typing import Any

import yaml

from .spec import ExperimentSpec

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


def spec_to_yaml(spec: ExperimentSpec) -> str:
    """The experiment as a person would write it: defaults left out, an arm and a point a line. :func:`read_yaml` gives it back."""
    return data_to_yaml(spec.model_dump(mode="json", exclude_defaults=True))


def data_to_yaml(data: dict[str, Any]) -> str:
    """The same for a draft that need not be complete or right yet. Keys keep their order."""
    laid_out = {k: [_Inline(v) if isinstance(v, dict) else v for v in part] if isinstance(part, list) else part for k, part in data.items()}
    return yaml.dump(laid_out, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=140)


class _Inline(dict[str, Any]):
    """A mapping that is written on one line."""


class _Writer(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _inline(writer: yaml.SafeDumper, data: _Inline) -> yaml.Node:
    return writer.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)


_Writer.add_representer(_Inline, _inline)
