"""The glossary: the terms of the pages, each in one or two sentences, with its paper section.

The page ``/glossary/`` and docs/glossary.md are made from it, and ``{% word %}`` links a term on any page to its entry.
"""

from dataclasses import dataclass
from typing import Final

from django.utils.text import slugify

from controlplane.policies.registry import catalogue

QUESTIONS: Final = {
    "batching": "How many samples each worker processes per iteration.",
    "prediction": "How the speed of each worker is predicted for batching.",
    "barrier": "When a worker may start its next iteration.",
    "placement": "Which parameter server holds which block.",
    "data": "Which samples a worker may draw.",
    "stragglers": "How slow workers and servers are detected.",
    "autopilot": "When a job changes its policies by itself.",
    "guard": "Whether a change of policies harms convergence.",
    "aggregation": "How updates are weighted when they are combined.",
}
"""The decision of each kind of policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One entry. ``name`` is the title, and the key by which templates refer to it."""

    name: str
    meaning: str
    paper: str = ""

    @property
    def anchor(self) -> str:
        """Its fragment on the page."""
        return slugify(self.name)


TERMS: Final[tuple[Term, ...]] = (
    Term(
        name="acknowledgement",
        meaning="A worker acknowledges a decision by reporting the first iteration that it computed under it.",
    ),
    Term(
        name="active predictor",
        meaning="Several predictors can run in parallel; share decisions use the active one. The others are shadows: "
        "their errors are measured, but their predictions have no effect.",
        paper="LB-BSP 3.2.2",
    ),
    Term(
        name="autopilot",
        meaning="Simulates other policies with the measured speeds, and switches the job to a better one or proposes "
        "it. If a sample takes longer after a switch, the switch is reverted.",
    ),
    Term(
        name="barrier",
        meaning="The policy that decides when a worker may start its next iteration.",
        paper="PSP 2.2",
    ),
    Term(
        name="block",
        meaning="A slice of the flattened model parameters, at most 4 MiB. Blocks are placed on parameter servers.",
    ),
    Term(
        name="busy time",
        meaning="Data loading, compute and communication time of a worker. Machine cards show it as a fraction of "
        "worker time in the last 60 seconds; the rest is lost time.",
    ),
    Term(
        name="communication",
        meaning="Time that a worker spends pushing gradients and pulling parameters.",
    ),
    Term(
        name="coordination",
        meaning="Time that a worker waits for the control plane: from the report of the slowest worker until the next "
        "orders arrive.",
    ),
    Term(
        name="data loading",
        meaning="Time that a worker waits for its next batch. Pages show it separately from compute if it takes at "
        "least 1% of some worker's time.",
    ),
    Term(
        name="decision",
        meaning="A command of the engine about a job, stored with its cause and its reason.",
    ),
    Term(
        name="drain",
        meaning="To remove a worker or server without loss of work: a worker completes its granted iterations, a "
        "server first hands over its blocks.",
    ),
    Term(
        name="exclude",
        meaning="To stop a worker immediately and train without it until it is included again.",
    ),
    Term(
        name="finding",
        meaning="A detected straggler or other anomaly of a job, with its evidence and cost. Open findings flag their "
        "worker or server.",
    ),
    Term(
        name="generation",
        meaning="A period of a job with the same set of workers and the same policies. It begins at an iteration "
        "boundary.",
    ),
    Term(
        name="global batch",
        meaning="Number of samples of one iteration over all workers. It is constant while shares change.",
        paper="LB-BSP 3",
    ),
    Term(
        name="granted iteration",
        meaning="The last iteration that a worker may compute without further orders.",
    ),
    Term(
        name="incarnation",
        meaning="A new version of a job's log after a rollback or a loss of data in Redis. Its orders replace all "
        "earlier ones.",
    ),
    Term(
        name="iteration time",
        meaning="Data loading, compute, communication, waiting and coordination time of one iteration of a worker.",
    ),
    Term(
        name="load imbalance",
        meaning="Bytes on the fullest parameter server divided by the mean over all servers.",
        paper="PSLD 2.2",
    ),
    Term(
        name="lost time",
        meaning="Worker time that is neither data loading, compute nor communication: waiting for other workers plus "
        "coordination.",
    ),
    Term(
        name="machine share",
        meaning="The part of the global batch of its jobs that a machine's workers process.",
    ),
    Term(
        name="parameter server",
        meaning="A process that holds blocks of the model, adds up the gradients of the workers and applies the "
        "optimizer.",
        paper="PSLD 2.1",
    ),
    Term(
        name="placement",
        meaning="The assignment of blocks to parameter servers.",
        paper="PSLD 2.2",
    ),
    Term(
        name="rank",
        meaning="Index of a worker in its job: w0 is rank 0. Servers have an index as well: s0.",
    ),
    Term(
        name="sampled by peers",
        meaning="Each worker draws a sample of the other workers and requests their progress directly, without the "
        "control plane. Otherwise the control plane draws the sample.",
        paper="PSP 3.2",
    ),
    Term(
        name="server exchange",
        meaning="One push and one pull between a worker and a parameter server.",
    ),
    Term(
        name="share",
        meaning="Number of samples that a worker processes per iteration: its batch size.",
        paper="LB-BSP 3",
    ),
    Term(
        name="slot",
        meaning="Capacity of a machine for one worker or one parameter server.",
    ),
    Term(
        name="speed-up",
        meaning="Iteration time with equal shares at the beginning of the job, divided by the iteration time now. If "
        "an attached job had none after its warm-up, the former is estimated from each worker's time per sample.",
    ),
    Term(
        name="staleness",
        meaning="Number of iterations by which a worker is ahead of the slowest one when it starts an iteration.",
        paper="PSP 2.2",
    ),
    Term(
        name="straggler",
        meaning="A worker or server that is slower than the others, or slower than it used to be.",
        paper="LB-BSP 1, PSLD 2.3",
    ),
    Term(
        name="waiting",
        meaning="Time that a worker waits for slower workers after it has finished its part of an iteration.",
    ),
)
"""In alphabetical order."""


def by_name() -> dict[str, Term]:
    """Terms and policies by name."""
    return {term.name: term for term in (*TERMS, *(term for terms in policies().values() for term in terms))}


def policies() -> dict[str, tuple[Term, ...]]:
    """The policies by question, with their explanations from the registry."""
    found: dict[str, list[Term]] = {question: [] for question in QUESTIONS}
    for entry in catalogue():
        found[entry.question].append(Term(name=entry.name, meaning=entry.explanation, paper=entry.paper))
    return {question: tuple(terms) for question, terms in found.items()}
