"""The table of all policies, by kind and name.

It describes, checks and resolves choices. Importing it imports no policy: each is imported on first use, since some
import torch. ``docs/extending.md`` explains how to add a policy.
"""

import importlib
from collections.abc import Mapping
from typing import Any

import msgspec

from controlplane.core.combinations import Refusal, conflict, surplus, unsuited
from controlplane.policies.catalogue import (
    autopilot,
    barriers,
    batching,
    data,
    guard,
    placement,
    prediction,
    stragglers,
)
from controlplane.policies.entries import CatalogueEntry as CatalogueEntry
from controlplane.policies.entries import NoParameters
from controlplane.policies.entries import Registration as Registration
from controlplane.protocol.faults import fault_of
from controlplane.protocol.spec import Choice, JobSpec, Part, SpecError, Synchronization

QUESTIONS = {
    "batching": "How many samples each worker takes next.",
    "prediction": "How fast each worker will be in the coming iteration.",
    "barrier": "When a worker may start its next iteration.",
    "placement": "Which server holds which block of parameters.",
    "data": "Which samples a worker may draw.",
    "stragglers": "Which worker is slow, with the evidence.",
    "autopilot": "Which of the job's allowed policies it should use.",
    "guard": "Whether a change of policies harms convergence.",
}

REGISTRATIONS = (
    *batching.REGISTRATIONS,
    *prediction.REGISTRATIONS,
    *barriers.REGISTRATIONS,
    *placement.REGISTRATIONS,
    *data.REGISTRATIONS,
    *stragglers.REGISTRATIONS,
    *autopilot.REGISTRATIONS,
    *guard.REGISTRATIONS,
)

COMPARED = ("batching", "barrier")
"""The kinds of policies that simulations compare by default."""

Chosen = Choice | tuple[Choice, ...]
"""The form of a policy's part: one policy, or several."""

_TABLE = {(entry.question, entry.name): entry for entry in REGISTRATIONS}


def names(question: str) -> list[str]:
    """The registered policies of a kind, sorted."""
    return sorted(name for each, name in _TABLE if each == question)


def resolve(question: str, choice: Choice) -> Any:
    """The policy itself.

    Raises:
        SpecError: if there is no such policy, or its parameters are not allowed.
    """
    return _build(question, choice, field=_field_of(question))


def check(synchronization: Synchronization) -> None:
    """Check that a job can run with these choices: each is registered, its parameters are allowed, and all are
    compatible.

    Raises:
        SpecError: names the field, its value and what is allowed.
    """
    kinds = {}
    for field in synchronization.__struct_fields__:
        entry, settings, _ = _validate(field, getattr(synchronization, field), field=_field_of(field))
        kinds[field] = _class_of(entry, settings)
    if (reason := conflict(kinds["batching"], kinds["barrier"], kinds["data"])) is not None:
        together = {field: getattr(synchronization, field).name for field in ("batching", "barrier", "data")}
        raise SpecError("synchronization", together, f"choices that go together: {reason}")


def refusal(spec: JobSpec) -> Refusal | None:
    """Why a job of this kind cannot use its combination of allowed policies; None if it can."""
    chosen = spec.synchronization
    kinds = {question: policy_type(question, getattr(chosen, question)) for question in ("batching", "barrier", "data")}
    return unsuited(spec, **kinds) or surplus(spec, policy_type("placement", chosen.placement))


def policy_type(question: str, choice: Choice) -> Any:
    """The class of a registered policy, to query its capabilities."""
    entry = _TABLE[question, choice.name]
    return _class_of(entry, _settings(entry, choice.parameters, field=_field_of(question)))


def compared() -> dict[str, Synchronization]:
    """The policies that a simulation compares by default: each batching policy and barrier, with the default other
    policies.
    """
    entries = [entry for entry in REGISTRATIONS if entry.question in COMPARED and entry.compared is not None]
    return {
        entry.compared_as or entry.name: Synchronization(
            **{entry.question: Choice(name=entry.name, parameters=entry.compared or {})}
        )
        for entry in entries
    }


def catalogue() -> list[CatalogueEntry]:
    """Every policy, sorted by kind in the order of ``QUESTIONS`` and by name; then the rules of ``aggregation``."""
    order = list(QUESTIONS)
    policies = sorted(REGISTRATIONS, key=lambda e: (order.index(e.question), e.name))
    return [_describe(entry) for entry in (*policies, *_rules())]


def _rules() -> list[Registration]:
    """The rules of aggregation by name. They travel to servers as names, and have no parameters."""
    path = "controlplane.policies.aggregation.rules"
    rules = importlib.import_module(path).RULES
    return [
        Registration(
            question="aggregation",
            name=name,
            parameters=NoParameters,
            path=f"{path}:RULES",
            explanation=rules[name].explanation,
            paper=rules[name].paper,
        )
        for name in sorted(rules)
    ]


def predictors(batching: Choice) -> list[str]:
    """The names of the predictors of a batching policy; the active one first."""
    _, _, parts = _validate("batching", batching, field=_field_of("batching"))
    chosen = [one for part in parts.values() for one in (part if isinstance(part, tuple) else (part,))]
    return [choice.name for choice in chosen]


def _field_of(question: str) -> str:
    return f"synchronization.{question}"


def _build(question: str, choice: Choice, *, field: str) -> Any:
    entry, settings, parts = _validate(question, choice, field=field)
    policy = _class_of(entry, settings)
    built = {part: _built(entry.parts[part], chosen, field=f"{field}.{part}") for part, chosen in parts.items()}
    own = {"parameters": settings} if set(settings.__struct_fields__) - parts.keys() else {}
    return policy(**own, **built)


def _class_of(entry: Registration, settings: Part) -> Any:
    chosen = [path for (name, value), path in entry.variants.items() if getattr(settings, name) == value]
    module, _, name = (chosen or [entry.path])[0].partition(":")
    return getattr(importlib.import_module(module), name)


def _built(question: str, chosen: Chosen, *, field: str) -> Any:
    if isinstance(chosen, Choice):
        return _build(question, chosen, field=field)
    return tuple(_build(question, one, field=f"{field}[{place}]") for place, one in enumerate(chosen))


def _validate(question: str, choice: Choice, *, field: str) -> tuple[Registration, Part, dict[str, Chosen]]:
    """The entry that ``choice`` names, its parameters as a value, and the choices among them."""
    entry = _TABLE.get((question, choice.name))
    if entry is None:
        raise SpecError(f"{field}.name", choice.name, f"one of {', '.join(names(question))}")
    settings = _settings(entry, choice.parameters, field=field)
    parts = {
        part: _parts(part_question, getattr(settings, part), field=f"{field}.{part}")
        for part, part_question in entry.parts.items()
    }
    return entry, settings, parts


def _settings(entry: Registration, given: Mapping[str, Any], *, field: str) -> Part:
    known = {info.name: info.type for info in msgspec.structs.fields(entry.parameters)}
    for name in given:
        if name not in known:
            allowed = f"a parameter of {entry.name}: {', '.join(known)}" if known else f"none: {entry.name} takes none"
            raise SpecError(f"{field}.{name}", name, allowed + _where_it_is(entry.question, name))
    values = {name: _convert(value, known[name], field=f"{field}.{name}") for name, value in given.items()}
    try:
        return entry.parameters(**values)
    except ValueError as error:
        # Message of the struct's own check of values that are allowed individually but not together.
        raise SpecError(field, dict(given), str(error)) from None


def _where_it_is(question: str, parameter: str) -> str:
    """Names other policies that have a parameter: related policies share most of them."""
    if question not in ("barrier", "batching"):
        return ""
    having = [
        entry.name
        for entry in REGISTRATIONS
        if entry.question == question and parameter in entry.parameters.__struct_fields__
    ]
    # A parameter of a batching policy may have the same name as one of its predictor.
    is_common = len(having) > (question == "batching")
    return f"; {parameter} is a parameter of {', '.join(having)}" if is_common else ""


def _convert(value: object, type_: Any, *, field: str) -> Any:
    try:
        return msgspec.convert(value, type_, strict=True)
    except msgspec.ValidationError as error:
        expected = fault_of(error, type_).expected.replace(
            "`str | object`", "a name, or a mapping with a name and parameters"
        )
        raise SpecError(field, value, expected) from None


def _parts(question: str, value: str | Mapping[str, Any] | list[Any], *, field: str) -> Chosen:
    """The choice or choices within a choice, checked."""
    if isinstance(value, list):
        return tuple(_part(question, one, field=f"{field}[{place}]") for place, one in enumerate(value))
    return _part(question, value, field=field)


def _part(question: str, value: str | Mapping[str, Any], *, field: str) -> Choice:
    """A choice within a choice: a bare name, or a mapping with a name and parameters."""
    allowed = f"one of {', '.join(names(question))}"
    if isinstance(value, str):
        if value not in names(question):
            raise SpecError(field, value, allowed)
        return Choice(name=value)
    name = value.get("name")
    if not isinstance(name, str):
        raise SpecError(f"{field}.name", name, allowed)
    choice = Choice(name=name, parameters={key: given for key, given in value.items() if key != "name"})
    _validate(question, choice, field=field)
    return choice


def _describe(entry: Registration) -> CatalogueEntry:
    _, components = msgspec.json.schema_components([entry.parameters])
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(components))
    schema = plain.pop(entry.parameters.__name__)
    return CatalogueEntry(
        question=entry.question,
        name=entry.name,
        explanation=entry.explanation,
        paper=entry.paper,
        defaults=msgspec.json.decode(msgspec.json.encode(entry.parameters())),
        schema=schema | ({"$defs": plain} if plain else {}),
        parts=entry.parts,
    )
