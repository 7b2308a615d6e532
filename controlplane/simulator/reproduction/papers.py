"""The four papers and their headlines."""

from typing import Final

from controlplane.simulator.errors import SimulationError
from controlplane.simulator.reproduction import a_bsp, lb_bsp, psld, psp
from controlplane.simulator.reproduction.claims import Claim

PAPERS: Final[dict[str, tuple[str, tuple[Claim, ...]]]] = {
    "lb-bsp": ("LB-BSP: load-balanced batches", lb_bsp.CLAIMS),
    "psld": ("PSLD: parameter server load distribution", psld.CLAIMS),
    "a-bsp": ("A-BSP: aggressive synchronization", a_bsp.CLAIMS),
    "psp": ("PSP: probabilistic synchronous parallel", psp.CLAIMS),
}
ALL: Final = "all"


def chosen_papers(name: str) -> dict[str, tuple[str, tuple[Claim, ...]]]:
    """One paper, or ``all``.

    Raises:
        SimulationError: for an unknown name.
    """
    if name == ALL:
        return PAPERS
    if name not in PAPERS:
        raise SimulationError(f"paper: found {name!r}, expected one of {', '.join(PAPERS)}, or {ALL}")
    return {name: PAPERS[name]}
