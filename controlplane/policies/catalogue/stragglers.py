"""The straggler detectors: which worker is slow, with the evidence."""

from typing import Annotated

from msgspec import Meta

from controlplane.policies.entries import Registration
from controlplane.protocol.spec import Part


class EvidenceParameters(Part, frozen=True, kw_only=True):
    """Parameters of the straggler detector evidence."""

    window: Annotated[int, Meta(ge=4, le=100, description="Number of iterations that decide on a persistent flag.")] = 8
    persistent: Annotated[
        float, Meta(gt=0.5, le=1.0, description="Fraction of the window in which the worker must have been slow.")
    ] = 0.875
    slow: Annotated[
        float,
        Meta(
            gt=1.0, le=100.0, description="Ratio to the others, or to its own past, at which a median counts as slow."
        ),
    ] = 1.4
    raised: Annotated[
        float, Meta(gt=1.0, le=100.0, description="Ratio from which a single iteration counts as slow.")
    ] = 1.25
    spike: Annotated[
        float, Meta(gt=1.0, le=100.0, description="Ratio from which an iteration counts towards a transient flag.")
    ] = 1.5
    minimum_part: Annotated[
        float, Meta(ge=0.0, le=1.0, description="Minimum time lost, as a fraction of the iteration.")
    ] = 0.05
    minimum_s: Annotated[float, Meta(ge=0.0, description="Minimum time lost per iteration, in seconds.")] = 0.003
    fixed_part: Annotated[
        float,
        Meta(ge=0.0, le=1.0, description="Fraction of the usual compute time assumed to be independent of the share."),
    ] = 0.05
    guard: Annotated[
        int,
        Meta(ge=0, description="Report if shares made this many iterations slower than equal shares; 0: never."),
    ] = 50

    def __post_init__(self) -> None:
        if self.raised > self.slow:
            raise ValueError(f"raised of at most slow, which is {self.slow}")


REGISTRATIONS = (
    Registration(
        question="stragglers",
        name="evidence",
        parameters=EvidenceParameters,
        path="controlplane.policies.stragglers.evidence:Evidence",
        explanation="Flags workers and servers that are slower than the others, or than before, with cause and cost.",
    ),
)
