"""Why rows are not reproduced: a group and a sentence for each, shown where the verdict is another than reproduced."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Group = Literal["not stated", "reduced model", "not modelled", "contradicted", "bound", "our scenario"]

GROUPS: Final[dict[Group, str]] = {
    "not stated": "a setting that decides the figure is not in the paper, and another choice gives another figure",
    "reduced model": "the paper's model or data are replaced by small ones here, and the figure is a property of them",
    "not modelled": "a cost or a part of the system that makes the effect is not simulated",
    "contradicted": "by the settings that the paper states, another figure comes out here",
    "bound": "the figure is there or better, but the row asks for more: all seeds, or no more than a bound",
    "our scenario": "the scenario is simpler than the paper's experiment by a choice here",
}


class Reason(NamedTuple):
    """Of rows of one paper, such as ``6-9,32``."""

    rows: str
    group: Group
    sentence: str


STALE: Final = "Staleness costs a convex problem with small steps next to nothing; it costs the paper's job updates."
STRAWMAN: Final = (
    "The strawman loses by errors of its profiles and by latencies of servers that hold little, and the paper states "
    "neither: with exchanges that vary by 5 % its shares are near the best."
)
PRODUCTION: Final = (
    "How fast Cluster-B's servers were, how many were slow, and for how long, is only in figures; where computing "
    "hides sending, as here, slow servers cost little."
)
TRACE: Final = (
    "The hour of the trace is not stated; in the generated load, CPU and memory tell less about the coming iteration, "
    "so that NARX is no better than the last speed."
)
FEWER: Final = (
    "MXNet's rule cuts these models' bytes nearly evenly, so the straggler-free baseline has no skew to win from; what "
    "a server costs besides its bandwidth is not simulated."
)

REASONS: Final[Mapping[str, tuple[Reason, ...]]] = {
    "lb-bsp": (
        Reason("1,32", "reduced model", "The second best is ASP, which needs no more updates than BSP here. " + STALE),
        Reason("3", "not stated", "The GPU's times by batch for ResNet-32 are estimated from those for Inception-V3."),
        Reason("5", "bound", "One seed of eight is still short of the target at the end of its 300 iterations."),
        Reason("6-9", "reduced model", STALE),
        Reason(
            "10",
            "reduced model",
            "A mean of means of unequal batches has more noise but no bias, which small convex steps bear.",
        ),
        Reason("12", "not stated", "When shares count as balanced is not stated; by our count they are sooner."),
        Reason("16-17", "not stated", "How much of an iteration was sending there is not stated; it is less here."),
        Reason("18,25", "not stated", TRACE),
        Reason("19-24", "not stated", TRACE),
        Reason("26", "not stated", "What FlexRR's hand-over of work costs is not stated; 50 ms make it the best."),
        Reason("27-28", "not stated", "The load is more uneven than the paper's, so that any relaxation gains more."),
        Reason(
            "29-31",
            "not stated",
            "The noise of an iteration is not stated: with 5 %, the slowest of 32 equal workers is 10 % late, and with "
            "competing processes later, by no forecast's fault.",
        ),
        Reason("34", "bound", "Accuracy is kept, but in two seeds of eight the other variants do not lose any."),
        Reason("37", "not modelled", "The simulator has no recurrent network."),
        Reason("38", "not modelled", "A decision's time is a setting of the simulator; it is measured live."),
    ),
    "psld": (
        Reason(
            "5-6",
            "not stated",
            "33 times is what responses took, queues included; the bandwidth behind it is not stated, and a 33rd of it "
            "leaves a tenth of the speed.",
        ),
        Reason("9,13,17", "not modelled", FEWER),
        Reason("10,14,18,20,26,30-31", "not stated", STRAWMAN),
        Reason(
            "11",
            "contradicted",
            "At 1 Gbit/s the slow server's share of ResNet50 takes almost three times as long as two GPUs compute, "
            "and all else is hidden: 38 % wants a baseline that is slower for another reason.",
        ),
        Reason("23-25,27", "not stated", PRODUCTION),
        Reason("33-34", "not stated", "With half a millisecond of latency the strawman sees that servers recover."),
        Reason(
            "35", "contradicted", "PSLD begins with blocks in turns (section 3), and so with no skew to get rid of."
        ),
        Reason("37-38", "not modelled", "What more servers cost besides bandwidth is not simulated."),
        Reason("42-43", "not stated", "How slow which servers of Cluster-B were is not stated."),
        Reason("44", "not modelled", "What messages cost is not simulated."),
    ),
    "a-bsp": (
        Reason("3-4", "reduced model", "Samples are alike in all splits, so it matters little which are processed."),
        Reason(
            "6-12,38",
            "not stated",
            "Whether a cut task's gradient is a mean or a sum over what was processed is not stated; a mean, as here, "
            "makes as large a step as a whole task's.",
        ),
        Reason("13", "not stated", "How long machines stay slow is not stated; SSP (3) bridges short spells only."),
        Reason("14-15,17-18", "reduced model", STALE),
        Reason(
            "16",
            "contradicted",
            "The slowest machine takes 2.2 times the fastest one's time (Table 2), and SSP (3) is held to it: about "
            "1 / 2.2 follows, where Table 6 has 0.65.",
        ),
        Reason("19-36", "reduced model", STALE),
        Reason("39", "not stated", "The degrees of sparsity decide the figure, and are not stated."),
        Reason(
            "41", "contradicted", "What is left over is first for its own machine, so a slow one's split stays behind."
        ),
        Reason("42-43", "not modelled", "The network of Spark's driver is not simulated."),
    ),
    "psp": (
        Reason(
            "3,5",
            "not stated",
            "How many workers were slow and whether a sample is held or drawn again decide the figure; the two ways to "
            "sample are on both sides of it, or on one, as speeds are chosen.",
        ),
        Reason(
            "9", "contradicted", "BSP's step is over all workers' data, so it is the same however they are divided."
        ),
        Reason("10", "bound", "pBSP is better by more than the 0.05 that were read as clearly."),
        Reason("12", "not stated", "How many are slow, and where training stood after the time, are not stated."),
        Reason("13", "reduced model", "Few slow workers' stale updates do the small network no harm."),
        Reason("15-18", "reduced model", "All ways to sample train the small network to its best in the time."),
        Reason("19", "bound", "pSSP is more accurate than SSP, not as accurate."),
        Reason("20", "reduced model", "Both samples train the small network to its best in the time."),
        Reason("22-23", "not stated", "How many nodes are slow, and by how much, is not stated."),
        Reason("24", "not modelled", "Sequences of updates are not compared with the true ones."),
    ),
}


def rows_in(rows: str) -> list[int]:
    """``6-9,32`` as numbers."""
    found: list[int] = []
    for part in rows.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def reason_of(paper: str, row: int) -> Reason | None:
    """Why a row is not reproduced, if it is not."""
    return next((reason for reason in REASONS.get(paper, ()) if row in rows_in(reason.rows)), None)
