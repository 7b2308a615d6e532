"""The data policies: which samples a worker may draw."""

from typing import Annotated, Literal

from msgspec import Meta

from controlplane.policies.entries import NoParameters, Registration
from controlplane.protocol.spec import Part


class RotationParameters(Part, frozen=True, kw_only=True):
    """Parameters of the data policy rotation."""

    splits: Annotated[int, Meta(ge=1, le=1000, description="Initial number of splits per worker.")] = 4


class ExchangeParameters(RotationParameters, frozen=True, kw_only=True):
    """Parameters of the data policy exchange."""

    method: Annotated[
        Literal["swap", "migrate"],
        Meta(
            description="Swap the least and the most processed split (A-BSP), or move splits from the worker that is "
            "behind to the one that is ahead and reset the counts (LB-BSP)."
        ),
    ] = "swap"
    gap: Annotated[
        int | None, Meta(description="Difference of process counts above which to act; null: 5 to swap, 2 to migrate.")
    ] = None
    literal: Annotated[
        bool,
        Meta(description="As A-BSP Alg. 2: swap regardless of which machine is faster, which can swap back and forth."),
    ] = False

    def __post_init__(self) -> None:
        if self.gap is not None and self.gap < 1:
            raise ValueError(f"gap of at least 1, or null (found {self.gap})")
        if self.literal and self.method == "migrate":
            raise ValueError("method swap with literal: migration has no literal variant")


REGISTRATIONS = (
    Registration(
        question="data",
        name="shared",
        parameters=NoParameters,
        path="controlplane.policies.data.shared:Shared",
        explanation="Each worker may draw any sample, from one seeded permutation per pass.",
        paper="LB-BSP",
    ),
    Registration(
        question="data",
        name="rotation",
        parameters=RotationParameters,
        path="controlplane.policies.data.rotation:Rotation",
        explanation="Each worker has its own splits and continues in them where it stopped.",
        paper="A-BSP 3.3.1",
    ),
    Registration(
        question="data",
        name="exchange",
        parameters=ExchangeParameters,
        path="controlplane.policies.data.exchange:Exchange",
        explanation="Like rotation, but the least and most processed splits swap workers, or move to the worker that "
        "needs them.",
        paper="A-BSP 3.3.2, Alg. 2; LB-BSP 7",
    ),
)
