"""Defines rule documents and their parser, the same for YAML, REST and the page. Pure."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from controlplane.alerts.kinds import KINDS
from controlplane.protocol.base import Labels, Name
from controlplane.protocol.faults import fault_of, fields_at
from controlplane.protocol.parts import Part, SpecError

DAY_S: Final = 86_400.0
MOST_RULES: Final = 200
MOST_TARGETS: Final = 20
SECRETS: Final = ("url", "secret")
"""Fields of targets whose values error messages never repeat."""

SEVERITIES: Final = ("info", "warning", "critical")

Converted = TypeVar("Converted", bound=Part)

Severity = Literal["info", "warning", "critical"]
Delay = Annotated[float, msgspec.Meta(ge=0.0, le=7 * DAY_S)]


class Rule(Part, frozen=True, kw_only=True):
    """The condition, its durations, and the targets."""

    name: Name
    kind: Annotated[str, msgspec.Meta(max_length=40)]
    severity: Severity = "warning"
    enabled: bool = True
    where: Labels = {}
    """Labels that the alert must have: job, user, worker, machine, or a machine label that its job requests."""
    parameters: dict[Annotated[str, msgspec.Meta(max_length=40)], float] = {}
    for_s: Delay = 0.0
    """How long the condition must be true before the alert fires."""
    clear_s: Delay = 60.0
    """How long it must be false before the alert resolves, so that a flapping condition is one alert."""
    repeat_s: Delay = 4 * 3_600.0
    """Notifications are repeated after this time; 0: never."""
    targets: Annotated[list[Name], msgspec.Meta(max_length=MOST_TARGETS)] = []

    def parameter(self, name: str) -> float:
        """The value of a parameter of its kind."""
        return self.parameters.get(name, KINDS[self.kind].parameters[name].default)


DEFAULT_RULES: Final = (
    Rule(name="Worker or server lost", kind="worker-lost", severity="warning"),
    Rule(name="Job stalled", kind="job-stalled", severity="critical"),
    Rule(name="Job failed", kind="job-failed", severity="critical"),
    Rule(name="Waiting above 30 %", kind="waiting", severity="warning", for_s=600.0, clear_s=300.0),
    Rule(name="Straggler costs 10 %", kind="straggler", severity="warning", for_s=60.0, clear_s=120.0),
    Rule(name="Checkpoint failed", kind="checkpoint-failed", severity="warning"),
    Rule(name="Loss not finite", kind="loss-not-finite", severity="critical"),
    Rule(name="Ingest behind", kind="ingest-behind", severity="warning", for_s=30.0),
    Rule(name="Disk filling", kind="disk-filling", severity="critical", for_s=60.0),
    Rule(name="Redis filling", kind="redis-filling", severity="critical", for_s=60.0),
    Rule(name="Delivery failed", kind="delivery-failed", severity="warning"),
)
"""The rules that a new installation is offered."""


class RuleSet(Part, frozen=True, kw_only=True):
    """All rules of an installation, as one document."""

    rules: Annotated[list[Rule], msgspec.Meta(max_length=MOST_RULES)]


def parse_rule(document: object) -> Rule:
    """One rule.

    Raises:
        SpecError: with the field, the found value and the allowed ones.
    """
    rule = converted(document, Rule)
    _check(rule, "")
    return rule


def parse_rules(document: object) -> list[Rule]:
    """All rules of a document ``{rules: [...]}``.

    Raises:
        SpecError: with the field, the found value and the allowed ones.
    """
    rules = converted(document, RuleSet).rules
    seen: set[str] = set()
    for at, rule in enumerate(rules):
        _check(rule, f"rules[{at}].")
        if rule.name in seen:
            raise SpecError(f"rules[{at}].name", rule.name, "a unique rule name")
        seen.add(rule.name)
    return rules


def rule_document(rule: Rule) -> dict[str, Any]:
    """The rule as a plain document, the inverse of ``parse_rule``."""
    document: dict[str, Any] = msgspec.to_builtins(rule)
    return document


def rules_document(rules: Iterable[Rule]) -> dict[str, Any]:
    """The document of all rules."""
    return {"rules": [rule_document(rule) for rule in rules]}


def _check(rule: Rule, place: str) -> None:
    kind = KINDS.get(rule.kind)
    if kind is None:
        raise SpecError(f"{place}kind", rule.kind, f"one of {', '.join(KINDS)}")
    for name, value in rule.parameters.items():
        if (known := kind.parameters.get(name)) is None:
            expected = f"one of {', '.join(kind.parameters)}" if kind.parameters else "no parameters"
            raise SpecError(f"{place}parameters.{name}", value, expected)
        if not known.least <= value <= known.most:
            expected = f"a number from {known.least:g} to {known.most:g}"
            raise SpecError(f"{place}parameters.{name}", value, expected)
    if kind.is_event and rule.for_s:
        raise SpecError(f"{place}for_s", rule.for_s, f"0: {rule.kind} is an event without a duration")
    if 0 < rule.repeat_s < 60:
        raise SpecError(f"{place}repeat_s", rule.repeat_s, "0, or at least 60 s")
    if len(set(rule.targets)) < len(rule.targets):
        raise SpecError(f"{place}targets", rule.targets, "each target once")


def converted(document: object, kind: type[Converted]) -> Converted:
    """Convert the document to this type.

    Raises:
        SpecError: with the field, the found value and the allowed ones.
    """
    if not isinstance(document, Mapping):
        raise SpecError("", type(document).__name__, "a mapping of fields")
    try:
        return msgspec.convert(document, kind, strict=True)
    except msgspec.ValidationError as error:
        raise _refusal(error, document, kind) from None


def _refusal(error: msgspec.ValidationError, document: object, kind: type[Part]) -> SpecError:
    fault = fault_of(error, kind)
    if fault.expected.startswith("Object missing required field"):
        missing = fault.expected.rsplit("`", 2)[1]
        return SpecError(f"{fault.field}.{missing}".lstrip("."), None, "a value: the field is required")
    if fault.expected.startswith("Object contains unknown field"):
        unknown = fault.expected.rsplit("`", 2)[1]
        expected = f"one of the fields {', '.join(fields_at(kind, fault.field))}"
        return SpecError(f"{fault.field}.{unknown}".lstrip("."), unknown, expected)
    found = "a value that is not repeated" if fault.field in SECRETS else _at(document, fault.field)
    return SpecError(fault.field, found, fault.expected[:1].lower() + fault.expected[1:])


def _at(document: object, path: str) -> object:
    found = document
    for key in path.replace("[", ".").replace("]", "").split("."):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
