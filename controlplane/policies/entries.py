"""What the registry holds of a policy, and what it tells of one."""

from typing import Any

from controlplane.protocol.base import Value
from controlplane.protocol.spec import Part


class NoParameters(Part, frozen=True, kw_only=True):
    """Nothing can be set."""


class Registration(Value, frozen=True, kw_only=True):
    """One policy: its name, its parameters, and where it is defined."""

    question: str
    name: str
    parameters: type[Part]
    path: str
    """``module:class``, imported on first use. Called with ``parameters``, if it has any, and its ``parts`` by name."""
    explanation: str
    paper: str = ""
    """The paper and section that define it; empty for a policy of Paceline's own."""
    parts: dict[str, str] = {}
    """Parameters that choose a policy themselves, or several in a list, and the question that they answer."""
    variants: dict[tuple[str, str], str] = {}
    """By parameter and value, the path where this value makes it another policy."""
    compared: dict[str, Any] | None = {}
    """Of batching and barriers: parameters with which *what-if* compares it and an autopilot may choose it by default.

    None: only where someone names it.
    """
    compared_as: str = ""
    """Its name in such a comparison; empty: its own."""


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
