"""Parses request bodies: JSON and YAML of limited size.

They are parsed by request threads, never by the thread that serves the sockets; and since all threads share
one interpreter, large ones are parsed one at a time, so that the others wait for at most one parser.
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from threading import Lock
from typing import IO, Any, Final

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from controlplane.api.limits import SPEC_BYTES, most_bytes, too_large
from controlplane.api.problems import Problem
from controlplane.api.yaml import NoYaml, YamlRefused, load_yaml

LARGE_BYTES: Final = 16 * 1024
"""Larger documents are parsed one at a time."""

Context = Mapping[str, Any] | None

_turn = Lock()


class JsonParser(BaseParser):
    """RFC 8259, strictly: no NaN, no Infinity, and each key once."""

    media_type = "application/json"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Context = None) -> Any:
        """The document in the body."""
        text = _text(stream, parser_context)
        try:
            with _turn_for(text):
                return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"the body is not JSON: {_first_line(error)}") from None


class YamlParser(BaseParser):
    """YAML 1.1, limited to what JSON can express."""

    media_type = "application/yaml"

    def parse(self, stream: IO[Any], media_type: str | None = None, parser_context: Context = None) -> Any:
        """The document in the body."""
        text = _text(stream, parser_context)
        try:
            with _turn_for(text):
                return load_yaml(text)
        except NoYaml as error:
            raise Problem(415, str(error)) from None
        except YamlRefused as error:
            raise ParseError(f"the body is not YAML: {error}") from None


def _turn_for(text: str) -> Any:
    return _turn if len(text) > LARGE_BYTES else nullcontext()


def _text(stream: IO[Any], context: Context) -> str:
    request = (context or {}).get("request")
    limit = most_bytes(request.path) if request is not None else SPEC_BYTES
    encoding = request.headers.get("Content-Encoding", "") if request is not None else ""
    if encoding.strip().lower() not in {"", "identity"}:
        raise Problem(415, f"Content-Encoding {encoding[:50]!r} is not supported: send the body uncompressed")
    raw = stream.read(limit + 1)
    if len(raw) > limit:
        raise Problem(413, too_large(limit))
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"the body is not UTF-8: byte {error.start} cannot be read") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {repeated[:100]!r} is repeated; name each key once")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _first_line(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return str(error).partition("\n")[0][:200]
