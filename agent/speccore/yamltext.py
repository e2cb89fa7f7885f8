"""YAML as people write it: read with every fault in words and its line, and written so that it reads well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from .spec import ExperimentSpec

#: An experiment or a configuration is a page or two; a file that is larger is another one.
MAX_BYTES = 256 * 1024
#: Values, after each alias is written out: a few aliases of aliases stand for billions.
MAX_NODES = 20_000
MAX_DEPTH = 20


class YamlFault(ValueError):
    """Text that is no YAML as it is read here. ``line`` counts from 1; None where the whole file is meant."""

    def __init__(self, words: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {words}" if line else words)
        self.words = words
        self.line = line


@dataclass(frozen=True)
class Document:
    data: Any
    root: yaml.Node | None

    def line_of(self, field: str) -> int | None:
        """The line of a dotted field such as ``arms.1.draft_limit``, or of the nearest thing around it that is there."""
        node, line = self.root, None
        steps = field.split(".") if field else []
        while node is not None and steps:
            node, mark = _step(node, steps.pop(0))
            line = mark.line + 1 if mark else line
        return line


def read_yaml(data: bytes) -> Any:
    """The one document in ``data`` (UTF-8; JSON is YAML too). Raises :class:`YamlFault`."""
    return read_document(data).data


def read_document(data: bytes) -> Document:
    """The same with the lines. ``yes``, ``on`` and the like are truth values; dates, octal and base-60 numbers stay text."""
    if len(data) > MAX_BYTES:
        raise YamlFault(f"it has {len(data):,} bytes, more than the {MAX_BYTES:,} that are read")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise YamlFault("it is no UTF-8 text: save the file as UTF-8", line) from None
    try:
        loader = _Reader(text)
        root = loader.get_single_node()
        _Size().of(root)
        return Document(None if root is None else loader.construct_document(root), root)
    except YamlFault:
        raise
    except RecursionError:
        raise YamlFault("it is nested too deeply") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlFault(f"it holds the control character U+{int(error.character):04X}: remove it", line) from None
    except yaml.MarkedYAMLError as error:
        raise _of_error(error) from None


def spec_to_yaml(spec: ExperimentSpec) -> str:
    """The experiment as a person would write it: defaults left out, an arm and a point a line. :func:`read_yaml` gives it back."""
    data = spec.model_dump(mode="json", exclude_defaults=True)
    flags = data.get("engine", {}).pop("extra", {})  # where 1 and 1.0 are two texts
    data = _plain_numbers(data)
    if flags:
        data["engine"]["extra"] = flags
    return data_to_yaml(data)


def _plain_numbers(value: Any) -> Any:
    """60.0 as 60, which is what was typed."""
    if isinstance(value, dict):
        return {k: _plain_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain_numbers(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def data_to_yaml(data: dict[str, Any]) -> str:
    """The same for a draft that need not be complete or right yet. Keys keep their order."""
    laid_out = {k: [_Inline(v) if isinstance(v, dict) else v for v in part] if isinstance(part, list) else part for k, part in data.items()}
    return yaml.dump(laid_out, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=140)


#: Part of what the library says of a common slip, and what a person can do about it.
_HINTS = {
    "mapping values are not allowed here": "a second ': ' stands on the line, or the line is indented too far; put a text with ': ' in quotes",
    "found character '\\t'": "a tab stands where spaces are due",
    "could not find expected ':'": "a key lacks its ':', or a text over several lines lacks its quotes",
}


def _of_error(error: yaml.MarkedYAMLError) -> YamlFault:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    if error.context and "expected a single document" in error.context:
        return YamlFault("it holds more than one document: keep what stands before the second ---", line)
    for told, words in _HINTS.items():
        if told in (error.problem or ""):
            return YamlFault(words, line)
    parts = [error.problem or "", f"({error.context})" if error.context else "", error.note or ""]
    return YamlFault(" ".join(p for p in parts if p) or "it can't be read", line)


_NUMBERS = {
    "tag:yaml.org,2002:int": re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,17})$"),
    "tag:yaml.org,2002:float": re.compile(
        r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?|[-+]?[0-9]+[eE][-+]?[0-9]{1,3}|[-+]?\.inf|\.nan)$"
    ),
}
#: What YAML 1.1 makes of a plain word and nobody means: 2026-01-02, 010 (eight), 12:30 (seven hundred and fifty), = .
_NOT_MEANT = {*_NUMBERS, "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"}


class _Reader(yaml.SafeLoader):
    """Safe, and strict where a slip would go unseen: a key that is there twice, a tag, a key that is no word."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NOT_MEANT]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0
    n_nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) not in (None, "!"):
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")[:80]
            raise YamlFault(f"the tag {tag} is not read: write a plain value", event.start_mark.line + 1)
        if self.depth > MAX_DEPTH:
            raise YamlFault(f"it is nested more than {MAX_DEPTH} deep", event.start_mark.line + 1)
        self.depth += 1
        self.n_nodes += 1
        if self.n_nodes > MAX_NODES:
            raise YamlFault(f"it holds more than {MAX_NODES:,} values")
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def compose_mapping_node(self, anchor: Any) -> Any:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise YamlFault("a key must be a plain word, not a list or mapping", line)
            if key.value in seen:
                raise YamlFault(f"the key {key.value[:80]!r} is there twice", line)
            seen.add(key.value)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge keys (<<) as YAML means them: own keys before merged ones, an earlier mapping before a later one.

        Our own, since PyYAML 6.0.4 lets an overridden value win where a merged mapping itself merges.
        """
        own = [(key, value) for key, value in node.value if key.tag != "tag:yaml.org,2002:merge"]
        found = {key.value: (key, value) for key, value in own}
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                continue
            for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(part, yaml.MappingNode):
                    raise YamlFault("<<: takes a mapping, or a list of mappings", key.start_mark.line + 1)
                self.flatten_mapping(part)
                for merged, meant in part.value:
                    found.setdefault(merged.value, (merged, meant))
        node.value = list(found.values())


class _Size:
    """Counts what a document stands for once every alias is written out. Raises :class:`YamlFault` where that is too much."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.open: set[int] = set()

    def of(self, node: yaml.Node | None) -> int:
        if not isinstance(node, yaml.CollectionNode):
            return 1
        if id(node) in self.open:
            raise YamlFault("an alias (*) stands inside what it names", node.start_mark.line + 1)
        if id(node) not in self.sizes:
            self.open.add(id(node))
            self.sizes[id(node)] = 1 + sum(self.of(child) for child in _children(node))
            self.open.discard(id(node))
        if self.sizes[id(node)] > MAX_NODES:
            words = f"it stands for more than {MAX_NODES:,} values once its aliases (*) are written out"
            raise YamlFault(words, node.start_mark.line + 1)
        return self.sizes[id(node)]


def _children(node: yaml.CollectionNode) -> Iterator[yaml.Node]:
    for child in node.value:
        yield from child if isinstance(child, tuple) else (child,)


def _step(node: yaml.Node, step: str) -> tuple[yaml.Node | None, Any]:
    """What stands under a key or index of a node, and the mark where it begins."""
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        entry = node.value[int(step)]
        return entry, entry.start_mark
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return value, key.start_mark
    return None, None


class _Inline(dict[str, Any]):
    """A mapping that is written on one line."""


class _Writer(yaml.SafeDumper):
    """Quotes also what :class:`_Reader` alone would take for a number."""

    yaml_implicit_resolvers = {first: list(resolvers) for first, resolvers in yaml.SafeDumper.yaml_implicit_resolvers.items()}

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _inline(writer: yaml.SafeDumper, data: _Inline) -> yaml.Node:
    return writer.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)


for _tag, _pattern in _NUMBERS.items():
    _Reader.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))
    _Writer.add_implicit_resolver(_tag, _pattern, list("-+.0123456789"))
_Writer.add_representer(_Inline, _inline)
