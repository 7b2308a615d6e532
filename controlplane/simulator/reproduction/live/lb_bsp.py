"""LB-BSP's headlines, live."""

from typing import Final

from controlplane.simulator.reproduction.claims import Run
from controlplane.simulator.reproduction.live.rows import COORDINATION, LiveRow
from controlplane.simulator.reproduction.measures import longer_in, share_in, within
from controlplane.simulator.scenarios.live_lb_bsp import PHASE

GPUS, CPUS, SWINGS = "live-lb-bsp-gpus", "live-lb-bsp-cpus", "live-lb-bsp-oscillating"
FEDERATION: Final = "live-lb-bsp-federation"
FOUR: Final = (
    "Four GPUs in place of sixteen, emulated by their curves at a third of the time; a softmax regression on digits "
    "in place of the network. "
)
ABUNDANT: Final = ((2 * PHASE + 10, 3 * PHASE - 2),)
SCARCE: Final = ((PHASE + 10, 2 * PHASE - 2), (3 * PHASE + 10, 4 * PHASE - 2))
EIGHT: Final = "Four GPUs in place of eight; a model and links of a tenth, and phases of 25 iterations. "
CLIENTS: Final = "A softmax regression on two of ten digits each, 20 local steps for 500. "
OTHER_MATHEMATICS: Final = "the simulator divides and orders a federation's data otherwise"


ROWS: Final = (
    LiveRow(
        name="lb-bsp-gpu-target",
        paper="lb-bsp",
        says="Inception-V3 on 16 GPUs",
        runs=(Run(GPUS, "lb-bsp-gpu"), Run(GPUS, "asp"), Run(GPUS, "ssp"), Run(GPUS, "bsp")),
        note=FOUR + "The target is an accuracy of 0.85.",
    ),
    LiveRow(
        name="lb-bsp-gpu-asp",
        paper="lb-bsp",
        says="Inception-V3: time per update 15 % shorter",
        runs=(Run(GPUS, "lb-bsp-gpu"), Run(GPUS, "asp")),
        note=FOUR,
    ),
    LiveRow(
        name="lb-bsp-gpu-updates",
        paper="lb-bsp",
        says="as many updates as BSP",
        runs=(Run(GPUS, "lb-bsp-gpu"), Run(GPUS, "bsp")),
        note=FOUR,
    ),
    LiveRow(
        name="lb-bsp-asp-updates",
        paper="lb-bsp",
        says="ASP needs up to 4.76 times the updates",
        runs=(Run(GPUS, "asp"), Run(GPUS, "bsp")),
        note=FOUR,
    ),
    LiveRow(
        name="lb-bsp-shares",
        paper="lb-bsp",
        says="shares settle at (89, 21, 12, 6)",
        runs=(Run(GPUS, "lb-bsp-gpu"),),
        compared="part",
        note=FOUR,
    ),
    LiveRow(
        name="lb-bsp-balance",
        paper="lb-bsp",
        says="balanced after about 30 iterations",
        runs=(Run(GPUS, "lb-bsp-gpu"),),
        outside="Shares move by measured times, whose noise the twin does not have: a step sooner or later is a few "
        "iterations.",
        note=FOUR,
    ),
    LiveRow(
        name="lb-bsp-naive",
        paper="lb-bsp",
        says="with naive aggregation LB-BSP ends",
        runs=(Run(f"{GPUS}-naive", "lb-bsp-gpu"), Run(GPUS, "bsp")),
        note=FOUR + "Samples are alike on all workers: a mean of means has more noise, and no bias.",
    ),
    LiveRow(
        name="lb-bsp-cpu-asp",
        paper="lb-bsp",
        says="Hetero-L3: average iteration time less than 5 % from ASP's",
        runs=(Run(CPUS, "lb-bsp-cpu"), Run(CPUS, "asp")),
        compared="excess",
        note="Four machines of steady speed in place of 32 with competing processes; by EMA, without NARX: nothing "
        "has to be forecast, and so it is no result of the paper's.",
        basis="our reading",
    ),
    LiveRow(
        name="lb-bsp-cpu-target",
        paper="lb-bsp",
        says="Hetero-L3: over 30 % sooner at the target",
        runs=(Run(CPUS, "lb-bsp-cpu"), Run(CPUS, "bsp"), Run(CPUS, "asp"), Run(CPUS, "ssp")),
        note="Four machines of steady speed; a softmax regression on digits, to an accuracy of 0.85.",
    ),
    LiveRow(
        name="lb-bsp-oscillating-batch",
        paper="lb-bsp",
        says="oscillating bandwidth: the K520's batch",
        runs=(Run(SWINGS, "lb-bsp-gpu"),),
        measure=share_in(ABUNDANT, 380),
        note=EIGHT,
    ),
    LiveRow(
        name="lb-bsp-oscillating-abundance",
        paper="lb-bsp",
        says="oscillating bandwidth, abundance",
        runs=(Run(SWINGS, "lb-bsp-gpu"), Run(SWINGS, "bsp")),
        measure=within(ABUNDANT),
        note=EIGHT,
    ),
    LiveRow(
        name="lb-bsp-oscillating",
        paper="lb-bsp",
        says="oscillating bandwidth, both states",
        runs=(Run(SWINGS, "lb-bsp-gpu"), Run(SWINGS, "bsp")),
        note=EIGHT,
    ),
    LiveRow(
        name="lb-bsp-oscillating-drop",
        paper="lb-bsp",
        says="a drop to 160 Mbit/s makes LB-BSP's iterations",
        runs=(Run(SWINGS, "lb-bsp-gpu"),),
        measure=longer_in(SCARCE, ABUNDANT),
        compared="excess",
        note=EIGHT,
    ),
    LiveRow(
        name="lb-bsp-federation",
        paper="lb-bsp",
        says="federation of five, LeNet-5",
        runs=(Run(FEDERATION, "lb-bsp-federated"), Run(FEDERATION, "bsp")),
        note=CLIENTS,
    ),
    *(
        LiveRow(
            name=f"lb-bsp-federation{variant or '-batch'}",
            paper="lb-bsp",
            says=says,
            runs=(
                Run(f"{FEDERATION}{variant}", "lb-bsp-federated"),
                Run(FEDERATION, "bsp"),
                *(Run(f"{FEDERATION}{other}", "lb-bsp-federated") for other in ("-tau", "-rate") if not variant),
            ),
            note=CLIENTS + "The paper has curves of the variants: -0.04 is our reading of a failure.",
            untwinned=OTHER_MATHEMATICS,
        )
        for variant, says in (
            ("", "scaling batches keeps the accuracy"),
            ("-tau", "scaling local steps instead"),
            ("-rate", "scaling the learning rate with the batch"),
        )
    ),
    LiveRow(
        name="lb-bsp-overhead",
        paper="lb-bsp",
        says="deciding costs less than 1.1 % of an iteration",
        runs=(Run(GPUS, "lb-bsp-gpu"),),
        measure=COORDINATION,
        basis="our reading",
        note=FOUR + "Iterations of half a second, where the paper's take several.",
        untwinned="the time of a decision is a setting of the simulator",
    ),
)
