"""Parses YAML from untrusted clients: with libyaml only, and only after its events have been counted.

PyYAML's Python loader takes half a minute per MiB. libyaml takes as long for 100,000 opening brackets and blocks all
other threads meanwhile, so events are first read one by one, up to a maximum depth and number.
"""

from typing import Any, Final

import yaml

MAX_YAML: Final = 256 * 1024
"""Maximum characters of a document; longer ones must be JSON, which is parsed a hundred times faster."""

MAX_DEPTH: Final = 24
"""Maximum depth of lists and mappings; specs have fewer levels."""

MAX_NODES: Final = 20_000
"""Maximum number of values and keys of a document."""

MAX_NUMBER: Final = 100
"""Maximum characters of a number: base-60 numbers take time quadratic in their length."""

Loader: Any = getattr(yaml, "CSafeLoader", None)


class YamlRefused(ValueError):
    """The text is not YAML, or exceeds a limit; the message says which."""


class NoYaml(RuntimeError):
    """YAML cannot be read in this installation."""


def load_yaml(text: str) -> Any:
    """The one document in ``text``; aliases, tags and anchors are not accepted.

    Raises:
        YamlRefused: if it is not YAML, uses features that JSON does not have, or is too large or deep.
        NoYaml: where PyYAML was built without libyaml.
    """
    if Loader is None:
        raise NoYaml(
            "YAML is not supported here, because PyYAML was built without libyaml: send JSON, or install a PyYAML wheel"
        )
    if len(text) > MAX_YAML:
        raise YamlRefused(f"it has {len(text)} characters, above the limit of {MAX_YAML}; use JSON")
    try:
        _check_events(text)
        return yaml.load(text, Loader=_PlainLoader)
    except YamlRefused:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlRefused(_first_line(error)) from None


def _check_events(text: str) -> None:
    nodes = 0
    parents: list[_Keys | None] = []
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > MAX_NODES:
                raise _refusal(event, f"more than {MAX_NODES} values; use JSON")
            if event.anchor is not None:  # of an alias: the node that it refers to
                raise _refusal(event, "anchors and aliases are not supported; repeat the value")
            if parents and (keys := parents[-1]) is not None:
                keys.take(event)
        if isinstance(event, yaml.CollectionStartEvent):
            parents.append(_Keys() if isinstance(event, yaml.MappingStartEvent) else None)
            if len(parents) > MAX_DEPTH:
                raise _refusal(event, f"nested more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            parents.pop()


class _Keys:
    """The keys of one mapping so far; libyaml keeps only the last value of a repeated key."""

    def __init__(self) -> None:
        self._known = set[str]()
        self._is_key = False

    def take(self, node: yaml.NodeEvent) -> None:
        """The next key or value, in turn.

        Raises:
            YamlRefused: for a key that occurred before.
        """
        self._is_key = not self._is_key
        if not self._is_key or not isinstance(node, yaml.ScalarEvent):
            return
        if node.value in self._known:
            raise _refusal(node, f"the key {node.value!r} occurs twice in one mapping; remove one")
        self._known.add(node.value)


def _refusal(event: yaml.Event, sentence: str) -> YamlRefused:
    mark = event.start_mark
    assert mark is not None, "libyaml marks every event"
    return YamlRefused(f"{sentence}, line {mark.line + 1}, column {mark.column + 1}")


def _first_line(error: Exception) -> str:
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem and mark:
        context = getattr(error, "context", None)
        return f"{f'{context}, ' if context else ''}{problem}, line {mark.line + 1}, column {mark.column + 1}"
    return str(error).partition("\n")[0][:200]


class _PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """Constructs only values that JSON also has."""


def _number(construct: Any) -> Any:
    def constructing(loader: Any, node: yaml.ScalarNode) -> Any:
        if len(node.value) > MAX_NUMBER:
            problem = f"a number of {len(node.value)} characters, above the limit of {MAX_NUMBER}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return construct(loader, node)

    return constructing


_PlainLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":value", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
"""2026-01-01 is text: JSON has no dates."""

for _kind in ("int", "float"):
    _PlainLoader.add_constructor(
        f"tag:yaml.org,2002:{_kind}", _number(yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{_kind}"])
    )
