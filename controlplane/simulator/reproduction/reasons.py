"""Why rows are not reproduced: a group and a sentence for each, shown if the verdict is not *reproduced*."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Group = Literal["not stated", "reduced model", "not modelled", "contradicted", "bound", "our scenario"]

GROUPS: Final[dict[Group, str]] = {
    "not stated": "the paper does not state a setting on which the figure depends, and another choice gives another "
    "figure",
    "reduced model": "smaller models or data replace the paper's, and the figure depends on them",
    "not modelled": "a cost or component that causes the effect is not simulated",
    "contradicted": "with the settings that the paper states, the result here differs",
    "bound": "the figure is reached or exceeded, but the row requires more: all seeds, or an upper bound",
    "our scenario": "the scenario was chosen simpler than the paper's experiment",
}


class Reason(NamedTuple):
    """The reason for rows of one paper, such as ``6-9,32``."""

    rows: str
    group: Group
    sentence: str


STALE: Final = "Staleness has almost no cost for a convex problem with small steps; in the paper it costs updates."
STRAWMAN: Final = (
    "The strawman is slower because of profiling errors and latencies of servers with few blocks, and the "
    "paper states neither: with exchange times that vary by 5 % its shares are nearly optimal."
)
PRODUCTION: Final = (
    "The speeds of Cluster-B's servers, how many were slow, and for how long, are only shown in figures; "
    "if communication overlaps with computation, as here, slow servers cost little."
)
TRACE: Final = (
    "The hour of the trace is not stated; in the generated load, CPU and memory predict the coming "
    "iteration less well, so that NARX is no better than the last speed."
)
FEWER: Final = (
    "MXNet's rule distributes these models' bytes nearly evenly, so there is no skew to remove from the "
    "baseline without stragglers; costs of a server besides its bandwidth are not simulated."
)

REASONS: Final[Mapping[str, tuple[Reason, ...]]] = {
    "lb-bsp": (
        Reason("1,32", "reduced model", "The second best is ASP, which needs no more updates than BSP here. " + STALE),
        Reason("3", "not stated", "The GPU's times by batch for ResNet-32 are estimated from those for Inception-V3."),
        Reason("5", "bound", "One seed of eight has not reached the target after 300 iterations."),
        Reason("6-9", "reduced model", STALE),
        Reason(
            "10",
            "reduced model",
            "A mean of means of unequal batches has more noise but no bias; small convex steps tolerate that.",
        ),
        Reason(
            "12",
            "not stated",
            "The criterion for balanced shares is not stated; by our criterion they are balanced sooner.",
        ),
        Reason(
            "16-17", "not stated", "The fraction of communication in an iteration is not stated; it is smaller here."
        ),
        Reason("18,25", "not stated", TRACE),
        Reason("19-24", "not stated", TRACE),
        Reason("26", "not stated", "The cost of FlexRR's hand-over of work is not stated; with 50 ms it is the best."),
        Reason("27-28", "not stated", "The load is more uneven than in the paper, so any relaxation gains more."),
        Reason(
            "29-31",
            "not stated",
            "The noise of an iteration is not stated: with 5 %, the slowest of 32 equal workers is 10 % "
            "late, and with competing processes later still, and no forecast can predict that.",
        ),
        Reason("34", "bound", "Accuracy is kept, but in two seeds of eight the other variants do not lose any."),
        Reason("37", "not modelled", "The simulator has no recurrent network."),
        Reason("38", "not modelled", "A decision's time is a setting of the simulator; it is measured live."),
    ),
    "psld": (
        Reason(
            "5-6",
            "not stated",
            "The factor 33 is for response times, including queues; the bandwidth is not stated, and a "
            "33rd of it would leave a tenth of the speed.",
        ),
        Reason("9,13,17", "not modelled", FEWER),
        Reason("10,14,18,20,26,30-31", "not stated", STRAWMAN),
        Reason(
            "11",
            "contradicted",
            "At 1 Gbit/s the slow server's share of ResNet50 takes almost three times as long as the "
            "computation of two GPUs, and overlaps everything else: 38 % would need a baseline that is "
            "slower for another reason.",
        ),
        Reason("23-25,27", "not stated", PRODUCTION),
        Reason(
            "33-34", "not stated", "With a latency of half a millisecond the strawman notices that servers recover."
        ),
        Reason(
            "35", "contradicted", "PSLD begins with blocks assigned in turn (section 3), so there is no skew to remove."
        ),
        Reason(
            "36",
            "not stated",
            "The speed before new servers are added is not stated; here PSLD loses little until then, since it moves "
            "the blocks to the two fast servers.",
        ),
        Reason("37-38", "not modelled", "Costs of more servers besides bandwidth are not simulated."),
        Reason("42-43", "not stated", "The slowness of Cluster-B's servers is not stated."),
        Reason("44", "not modelled", "The cost of messages is not simulated."),
    ),
    "a-bsp": (
        Reason("3-4", "reduced model", "All splits have similar samples, so it matters little which are processed."),
        Reason(
            "6-12,38",
            "not stated",
            "Whether a cut task's gradient is a mean or a sum over what was processed is not stated; a "
            "mean, as here, gives a step as large as that of a whole task.",
        ),
        Reason("13", "not stated", "How long machines stay slow is not stated; SSP (3) only bridges short periods."),
        Reason(
            "44-46",
            "not stated",
            "How often and how long machines are slow is not stated; the more even they are, the less A-BSP cuts.",
        ),
        Reason("14-15,17-18", "reduced model", STALE),
        Reason(
            "16",
            "contradicted",
            "The slowest machine takes 2.2 times the fastest one's time (Table 2), and limits SSP (3): "
            "the result is about 1 / 2.2, while Table 6 has 0.65.",
        ),
        Reason("19-36", "reduced model", STALE),
        Reason("39", "not stated", "The figure depends on the degrees of sparsity, which are not stated."),
        Reason(
            "41",
            "contradicted",
            "Leftover samples are processed first by the same machine, so a slow machine's split stays behind.",
        ),
        Reason("42-43", "not modelled", "The network of Spark's driver is not simulated."),
    ),
    "psp": (
        Reason(
            "3,5",
            "not stated",
            "The figure depends on the number of slow workers and on whether a sample is held or redrawn; "
            "depending on the speeds, the results of both kinds of sampling are on both sides of it, or "
            "on one.",
        ),
        Reason(
            "9", "contradicted", "BSP's step uses all workers' data, so it does not depend on how data are divided."
        ),
        Reason("10", "bound", "pBSP is better by more than 0.05, our reading of clearly."),
        Reason(
            "12", "not stated", "The number of slow workers and the state of training after that time are not stated."
        ),
        Reason("13-14", "reduced model", "Stale updates of a few slow workers do not harm the small network."),
        Reason(
            "15-18",
            "reduced model",
            "With every kind of sampling the small network reaches its best accuracy in the time.",
        ),
        Reason("19", "bound", "pSSP is more accurate than SSP, not as accurate."),
        Reason("20", "reduced model", "With both samples the small network reaches its best accuracy in the time."),
        Reason("22-23", "not stated", "The number of slow nodes and their slowness are not stated."),
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
