"""The guard's section of a spec: what happens if a change of policies harms convergence."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from controlplane.protocol.parts import Part

GuardMode = Literal["revert", "suggest"]


class Guard(Part, frozen=True, kw_only=True):
    """Compares training and held-out losses after a relaxed barrier or data policy with forecasts from before it."""

    mode: Annotated[
        GuardMode, msgspec.Meta(description="Go back to the earlier policies (revert), or only propose to (suggest).")
    ] = "revert"
    reference: Annotated[
        int,
        msgspec.Meta(
            ge=20, le=1_000, description="Global batches before a change that the forecast of the loss is fitted to."
        ),
    ] = 60
    judge_within: Annotated[
        int,
        msgspec.Meta(ge=24, le=1_000, description="Global batches after a change within which it is judged."),
    ] = 48
    tolerance: Annotated[
        float,
        msgspec.Meta(
            gt=0.0, le=10.0, description="The least part by which the loss must exceed its forecast to count as harm."
        ),
    ] = 0.05


def nest(document: object) -> object:
    """``guard: revert`` and ``guard: suggest`` are short for a guard of that mode."""
    return {"mode": document} if isinstance(document, str) else document


def read(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a spec with its guard expanded."""
    return {**document, "guard": nest(document["guard"])} if "guard" in document else dict(document)
