"""A-BSP's headlines, live: its eight jobs."""

from typing import Final

from controlplane.simulator.reproduction.a_bsp import PER_ITERATION, TABLE_3_ITERATIONS, TABLE_6
from controlplane.simulator.reproduction.claims import Run
from controlplane.simulator.reproduction.live.rows import LiveRow, to_its_loss
from controlplane.simulator.reproduction.measures import mean_of_pairs
from controlplane.simulator.reproduction.mechanisms import CUT, in_every_pair
from controlplane.simulator.scenarios.a_bsp import TABLE_4

OTHER_DATA: Final = "the simulator draws other data for this job: what it needs to a loss is not comparable"
ITS_TIME, ITS_UPDATES = to_its_loss("seconds"), to_its_loss("updates")
SMALL: Final = (
    "Four machines of the physical cluster's spread, batches of 64 for a pass of 69,000; the target is BSP's own loss "
    "after three quarters of its 40 iterations. "
)
JOBS: Final = tuple(TABLE_4)
LAST: Final = TABLE_6["dnn"]


def _pair(job: str) -> tuple[Run, Run]:
    return Run(f"live-a-bsp-{job}", "a-bsp"), Run(f"live-a-bsp-{job}", "bsp")


PAIRS: Final = tuple(run for job in JOBS for run in _pair(job))

ROWS: Final = (
    LiveRow(
        name="a-bsp-time",
        paper="a-bsp",
        says="physical, seven jobs: A-BSP is ",
        runs=PAIRS,
        measure=mean_of_pairs(ITS_TIME),
        mechanism=in_every_pair(CUT),
        note=SMALL + "One row, since machines are the same for all jobs. No platform's cost is put in here.",
        untwinned=OTHER_DATA,
    ),
    *(
        LiveRow(
            name=f"a-bsp-{job}-iterations",
            paper="a-bsp",
            says=f"multi-tenant, {job}: A-BSP makes {mine / bsp - 1:.0%} more",
            runs=_pair(job),
            measure=ITS_UPDATES,
            note=SMALL + "The paper counts iterations on the multi-tenant cluster only.",
            untwinned=OTHER_DATA,
        )
        for job, (bsp, mine, _, _) in TABLE_3_ITERATIONS.items()
    ),
    LiveRow(
        name="a-bsp-iteration",
        outside="Tasks are cut by orders of the control plane, which take tens of milliseconds; in the twin none.",
        paper="a-bsp",
        says="multi-tenant, seven jobs: an iteration of A-BSP takes ",
        runs=PAIRS,
        measure=mean_of_pairs(PER_ITERATION),
        mechanism=in_every_pair(CUT),
        note=SMALL + "The paper's are of the multi-tenant cluster; no platform's cost is put in here.",
        basis="our reading",
    ),
    *(
        LiveRow(
            name=f"a-bsp-dnn-{name}",
            paper="a-bsp",
            says=says,
            alone=alone,
            runs=(Run("live-a-bsp-dnn", "a-bsp"), Run("live-a-bsp-dnn", "ssp-3")),
            measure=measure,
            mechanism=CUT,
            note="Four machines of the physical cluster's spread, batches of 64; the target is SSP's own loss after "
            "three quarters of its updates.",
            untwinned=OTHER_DATA,
        )
        for name, says, alone, measure in (
            (
                "time",
                "physical, six jobs: A-BSP takes 0.63 to 0.68 of SSP (3)'s time",
                (f"physical, dnn: A-BSP takes {LAST[3] / LAST[0]:.2f} of SSP (3)'s time", LAST[3] / LAST[0]),
                ITS_TIME,
            ),
            ("iterations", "multi-tenant, dnn: A-BSP makes 0.73 of SSP (3)'s iterations", None, ITS_UPDATES),
        )
    ),
)
