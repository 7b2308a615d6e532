"""Request bodies: JSON and YAML, of limited size, as plain values. Aliases and tags of YAML are refused."""

import json
from collections.abc import Mapping
from typing import IO, Any

import yaml
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from controlplane.api.problems import Problem

MAX_BODY_BYTES = 1024 * 1024
"""Largest document that is accepted; the parameters of a model are not one."""


class JsonParser(BaseParser):
    """RFC 8259, strictly: no NaN, no Infinity."""

    media_type = "application/json"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The document in the body."""
        text = _text(stream)
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the body is not JSON: {_first_line(error)}") from None


class YamlParser(BaseParser):
    """YAML 1.1 as far as it says what JSON can say."""

    media_type = "application/yaml"

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """The document in the body."""
        return load_yaml(_text(stream))


def load_yaml(text: str) -> Any:
    """The one document in ``text``.

    Raises:
        ParseError: if it is not YAML, or uses aliases or tags.
    """
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ParseError(f"the body is not YAML: {_first_line(error)}") from None


class _PlainLoader(yaml.SafeLoader):
    """Reads only what JSON has too; an alias could make a small text a huge document."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases are not accepted; write the value again", mark)
        return super().compose_node(parent, index)


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":value"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
"""2026-01-01 is text: a date has no JSON."""


def _text(stream: IO[Any]) -> str:
    raw = stream.read(MAX_BODY_BYTES + 1)
    if len(raw) > MAX_BODY_BYTES:
        raise Problem(413, f"the body is larger than {MAX_BODY_BYTES} bytes, which is the most that is accepted")
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"the body is not UTF-8: byte {error.start} cannot be read") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem and mark:
        return f"{problem}, line {mark.line + 1}, column {mark.column + 1}"
    return str(error).partition("\n")[0][:200]
