"""The registry's entry for a policy, and its public description."""

from typing import Any

from controlplane.protocol.base import Value
from controlplane.protocol.spec import Part


class NoParameters(Part, frozen=True, kw_only=True):
    """A policy without parameters."""


class Registration(Value, frozen=True, kw_only=True):
    """One policy: its name, its parameters, and where it is defined."""

    question: str
    name: str
    parameters: type[Part]
    path: str
    """``module:class``, imported on first use. The class is called with ``parameters``, if it has any, and its
    ``parts`` by name.
    """
    explanation: str
    paper: str = ""
    """The paper and section that define it; empty for a policy of Paceline's own."""
    parts: dict[str, str] = {}
    """Parameters that are themselves choices of a policy, or a list of several, with the kind of policy."""
    variants: dict[tuple[str, str], str] = {}
    """By parameter and value: the path of another class that implements the policy with this value."""
    compared: dict[str, Any] | None = {}
    """Batching and barriers only: parameters with which *what-if* compares it, and an autopilot may choose it, by
    default.
    None: only if a user names it.
    """
    compared_as: str = ""
    """Its name in such a comparison; empty for its own name."""


class CatalogueEntry(Value, frozen=True, kw_only=True):
    """The information that a user or a form needs to choose and configure a policy."""

    question: str
    name: str
    explanation: str
    paper: str
    defaults: dict[str, Any]
    schema: dict[str, Any]
    """JSON schema of the parameters."""
    parts: dict[str, str]
