"""Draws choices of policies out of the registry's catalogue, so that a new policy is drawn by being registered."""

from typing import Any

from hypothesis import strategies as st

from controlplane.policies import registry
from controlplane.protocol.spec import Choice, SpecError

CATALOGUE = {(entry.question, entry.name): entry for entry in registry.catalogue()}

REACH = 12
"""How far a number is drawn above its least value: what is small has an effect within few iterations."""

SMALL = {"samples": st.integers(20, 40), "hidden": st.integers(1, 4), "block_bytes": st.just(4096)}
"""Parameters that would take long at the other end of their range."""


def choices(question: str, *, of: str | None = None) -> st.SearchStrategy[Choice]:
    """Any policy that answers ``question``, or the one named ``of``, with any parameters that it takes."""
    return st.sampled_from([of] if of else registry.names(question)).flatmap(lambda name: _choice(question, name))


def _choice(question: str, name: str) -> st.SearchStrategy[Choice]:
    parameters = st.fixed_dictionaries({}, optional=_parameters(question, name))
    drawn = parameters.map(lambda given: Choice(name=name, parameters=given))
    return drawn.filter(lambda choice: _is_allowed(question, choice))


def _parameters(question: str, name: str) -> dict[str, st.SearchStrategy[Any]]:
    entry = CATALOGUE[question, name]
    drawn = {}
    for parameter, schema in entry.schema["properties"].items():
        if parameter in entry.parts:
            drawn[parameter] = _part(entry.parts[parameter], schema)
        else:
            drawn[parameter] = SMALL[parameter] if parameter in SMALL else _value(schema)
    return drawn


def _part(question: str, schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    one = choices(question).map(lambda choice: {"name": choice.name, **choice.parameters})
    return st.lists(one, max_size=2) if schema.get("type") == "array" else one


def _value(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "anyOf" in schema:
        return st.one_of([_value(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "integer":
            low = schema.get("minimum", 0)
            return st.integers(low, min(schema.get("maximum", low + REACH), low + REACH))
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0.0))
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + REACH))
            return st.floats(
                low,
                high,
                exclude_min="exclusiveMinimum" in schema,
                exclude_max="exclusiveMaximum" in schema,
            )
    raise AssertionError(f"found a parameter of {schema}, expected one of a type that can be drawn")


def _is_allowed(question: str, choice: Choice) -> bool:
    try:
        registry.resolve(question, choice)
    except SpecError:
        return False
    return True
