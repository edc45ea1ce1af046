"""YAML as plain data: texts, numbers, true and false, null, lists, and mappings of texts. Limits are in `limits`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ctta.base.errors import ConfigError
from ctta.base.limits import WHOLE_NUMBER, YAML_BYTES, YAML_DEPTH, YAML_NODES
from ctta.base.text import one_line, quoted, shorten

PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
TAG = "tag:yaml.org,2002:"


def read(path: Path) -> Any:
    """Read a file."""
    try:
        if not path.exists():
            raise ConfigError(f"There is no file {path}. Give the path of a YAML file.")
        if not path.is_file():
            raise ConfigError(f"{path} is no file. Give the path of a YAML file.")
        with path.open("rb") as file:
            content = file.read(YAML_BYTES + 1)
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8 (byte {error.start}). Give the path of a YAML file.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Give the path of a YAML file.") from error
    if len(content) > YAML_BYTES:
        raise ConfigError(f"{path} is longer than {YAML_BYTES:,} bytes, the limit. Give the path of a YAML file.")
    return parse(text, str(path))


def parse(text: str, where: str) -> Any:
    """Read a text; `where` it stands is named in errors."""
    if len(text) > YAML_BYTES:
        raise ConfigError(f"{shorten(where)} is longer than {YAML_BYTES:,} bytes, the limit.")
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{where} is not YAML as it is expected{place}: {_short(error)}.") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not YAML: {_short(error)}.") from error


def _short(error: yaml.YAMLError) -> str:
    words = (error.context, error.problem) if isinstance(error, yaml.MarkedYAMLError) else (str(error).split("\n")[0],)
    return shorten(one_line(", ".join(filter(None, words)))).rstrip(".")


def _refused(problem: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(None, None, problem, place.start_mark)


class _Loader(yaml.SafeLoader):
    """Only plain data, each key once, and not too much of it."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = self.nodes = 0
        self.sizes: dict[int, int] = {}  # nodes in a node, by its id

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        alias, before = self.check_event(yaml.AliasEvent), self.nodes
        place = self.peek_event()  # type: ignore[no-untyped-call]
        self.depth, self.nodes = self.depth + 1, self.nodes + 1
        if self.depth > YAML_DEPTH:
            raise _refused(f"more than {YAML_DEPTH} levels inside each other, the limit", place)
        node = super().compose_node(parent, index)
        if alias and id(node) not in self.sizes:
            raise _refused("an alias stands for what it is part of", place)
        self.nodes += self.sizes[id(node)] if alias else 0
        if self.nodes > YAML_NODES:
            raise _refused(f"more than {YAML_NODES:,} values, the limit", place)
        self.sizes.setdefault(id(node), self.nodes - before)
        self.depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if key.tag not in (f"{TAG}str", f"{TAG}merge"):
                what = quoted(key.value) if isinstance(key, yaml.ScalarNode) else "it"
                raise _refused(f"a key must be a text: put {what} into quotes, or correct it", key)
            if key.value in keys:
                raise _refused(f"the key {quoted(key.value)} is given twice", key)
            keys.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            value = super().construct_object(node, deep)
        except (ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
            kind = node.tag.removeprefix(TAG)
            raise _refused(f"{quoted(node.value)} is not of kind {kind}", node) from error
        if type(value) is int and abs(value) > WHOLE_NUMBER:
            raise _refused(f"{quoted(value)} has more digits than {WHOLE_NUMBER}, the limit", node)
        if isinstance(value, str) and any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
            raise _refused(f"{quoted(value)} holds something that is no character", node)
        return value


_kept = {f"{TAG}{name}" for name in PLAIN} | {None}
_Loader.yaml_constructors = {tag: make for tag, make in yaml.SafeLoader.yaml_constructors.items() if tag in _kept}
_Loader.yaml_implicit_resolvers = {  # a date is a text
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (*_kept, f"{TAG}merge")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
