"""Whether a policy's parameters fit the size of the job: its workers, batch and iterations.

The engine accepts them, with the effect of the largest value that has one: the page would show a policy that is not
the one in effect.
"""

from typing import Final

from controlplane.core.combinations import Refusal
from controlplane.policies import registry
from controlplane.protocol.spec import Choice, JobSpec

EXPLICIT: Final = ("sample", "staleness", "step", "fine_step", "pieces")
"""Parameters whose defaults are accepted at any size; ``backups`` has none that fits a job of two workers."""


def disproportion(spec: JobSpec) -> Refusal | None:
    """The first parameter that is too large for the job; None: there is none."""
    own = spec.synchronization
    return of_choice(spec, "barrier", own.barrier) or of_choice(spec, "batching", own.batching)


def of_choice(spec: JobSpec, question: str, choice: Choice) -> Refusal | None:
    """The first parameter of this policy that is too large for the job."""
    entry = next(each for each in registry.REGISTRATIONS if (each.question, each.name) == (question, choice.name))
    defaults = entry.parameters()
    for name, (most, cure) in _bounds(spec, choice.name).items():
        if name not in entry.parameters.__struct_fields__:
            continue
        default = getattr(defaults, name)
        found = choice.parameters.get(name, default)
        if found > (max(most, default) if name in EXPLICIT else most):
            return f"synchronization.{question}.{name}", found, f"at most {most} {cure}"
    return None


def _bounds(spec: JobSpec, policy: str) -> dict[str, tuple[int, str]]:
    """The largest value of each parameter that has an effect, and what to do instead."""
    others, iterations, share = spec.workers - 1, spec.stop.iterations, spec.usual_share
    of = f"for {spec.workers} worker{'' if spec.workers == 1 else 's'}"
    whole = "ssp" if policy == "pssp" else "bsp"
    found = {
        "backups": (others, f"{of}: an iteration needs the update of at least one; or barrier bsp, which has none"),
        "sample": (others, f"{of}, of which each can sample the others; to wait for all of them use {whole}"),
        "step": (share, f"samples of a worker's share of {share}: more than all cannot be moved"),
        "fine_step": (share, f"samples of a worker's share of {share}: more than all cannot be moved"),
        "pieces": (share, f"pieces of a share of {share} samples: a piece has at least one"),
    }
    if iterations is not None:
        most, cure = max(0, iterations - 1), f"for {iterations} iterations, or no worker ever waits; for that use asp"
        found["staleness"] = (most, cure)
    return found
