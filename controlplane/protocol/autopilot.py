"""The autopilot's section of a spec: which policies it may choose, and its parameters."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from controlplane.protocol.parts import Choice, Part, SpecError

Mode = Literal["auto", "suggest"]
MODES: Final = ("auto", "suggest")

BALANCING: Final = (
    Choice(name="uniform"),
    Choice(name="lb-bsp-cpu", parameters={"predictor": "ema"}),
    Choice(name="lb-bsp-linear"),
)
"""Ways to divide the same global batch, which do not change the training result.

They are those that *what-if* compares by default (``compared`` in the catalogue of policies): a test holds them equal.
"""

_LISTS: Final = ("batching", "barriers")

Choices = Annotated[tuple[Choice, ...], msgspec.Meta(max_length=8)]


class Autopilot(Part, frozen=True, kw_only=True):
    """The job changes its policies by itself, or proposes changes. It starts with the policies
    of ``synchronization``.
    """

    mode: Annotated[Mode, msgspec.Meta(description="Switch policies (auto), or only propose to (suggest).")] = "auto"
    learn: Annotated[
        int,
        msgspec.Meta(
            ge=12,
            le=10_000,
            description="Global batches to measure before the alternatives are simulated, and after each switch.",
        ),
    ] = 15
    retry_after: Annotated[
        int,
        msgspec.Meta(
            ge=1, le=1_000_000, description="Global batches before policies that were left may be tried again."
        ),
    ] = 300
    batching: Annotated[Choices, msgspec.Meta(description="Batching policies that may be chosen.")] = BALANCING
    barriers: Annotated[
        Choices,
        msgspec.Meta(
            description="Barriers that may be chosen besides the job's own. A sample may teach less under another "
            "barrier, which simulated times do not show: name only those that are known to suit the job."
        ),
    ] = ()


def read_shorthand(document: dict[str, Any]) -> dict[str, Any]:
    """Expand ``policy: auto`` and ``policy: suggest`` to ``autopilot: {mode: ...}``; anything else is unchanged.

    Raises:
        SpecError: for another ``policy``, or both fields.
    """
    if "policy" not in document:
        return document
    found = document["policy"]
    if found not in MODES:
        expected = "auto or suggest; policies that must not change belong in synchronization"
        raise SpecError("policy", found, expected)
    if document.get("autopilot") is not None:
        raise SpecError("policy", found, "none beside autopilot, whose mode says the same")
    return {**{key: value for key, value in document.items() if key != "policy"}, "autopilot": found}


def nest(document: object) -> object:
    """The document of an ``Autopilot`` whose policies are written flat or as bare names, or that is only a mode."""
    if isinstance(document, str):
        return {"mode": document}
    if not isinstance(document, Mapping):
        return document
    lists = {key: document[key] for key in _LISTS if isinstance(document.get(key), list)}
    return {**document, **{key: [nest_choice(each) for each in found] for key, found in lists.items()}}


def nest_choice(choice: object) -> object:
    """A choice that is written flat or as a bare name, as its struct has it."""
    if isinstance(choice, str):
        return {"name": choice}
    if not isinstance(choice, Mapping):
        return choice
    parameters = {key: value for key, value in choice.items() if key != "name"}
    return {"parameters": parameters} | ({"name": choice["name"]} if "name" in choice else {})


def flatten(document: dict[str, Any]) -> dict[str, Any]:
    """The document of an ``Autopilot`` as ``nest`` reads it."""
    flat = {key: [{"name": each["name"], **each["parameters"]} for each in document[key]] for key in _LISTS}
    return {**document, **flat}
