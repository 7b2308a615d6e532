"""All rows of docs/reproduction-live.md, and headlines that are too large for two cores."""

from typing import Final

from controlplane.simulator.reproduction.live import a_bsp, lb_bsp, psld, psp

ROWS: Final = (*lb_bsp.ROWS, *psld.ROWS, *a_bsp.ROWS, *psp.ROWS)
"""In the order of the document."""

FIGURES: Final[dict[str, tuple[str, ...]]] = {
    "LB-BSP, time and iterations on GPUs": ("lb-bsp-gpu-target", "lb-bsp-gpu-updates", "lb-bsp-balance"),
    "LB-BSP, time and iterations on CPUs": ("lb-bsp-cpu-asp", "lb-bsp-cpu-target"),
    "LB-BSP, naive and weighted aggregation": ("lb-bsp-naive",),
    "LB-BSP, oscillating links": ("lb-bsp-oscillating", "lb-bsp-oscillating-abundance"),
    "LB-BSP, overhead (5.6)": ("lb-bsp-overhead",),
    "LB-BSP, federation (Fig. 13)": ("lb-bsp-federation", "lb-bsp-federation-tau", "lb-bsp-federation-rate"),
    "A-BSP, eight jobs": ("a-bsp-time", *(f"a-bsp-{job}-iterations" for job in a_bsp.JOBS), "a-bsp-dnn-time"),
    "PSP, Fig. 8": ("psp-accuracy", "psp-accuracy-scaled", "psp-equal-updates"),
    "PSP, Fig. 11": ("psp-slowness-bsp", "psp-slowness-asp", "psp-slowness-pbsp", "psp-slowness-asp-scaled"),
    "PSP, Fig. 13": ("psp-dynamic", "psp-grouped"),
    "PSLD, Fig. 11": ("psld-vgg16-slow", "psld-vgg16-gain", "psld-resnet50-gain", "psld-alexnet-gain"),
    "PSLD, Fig. 14": ("psld-vgg16-half-slow", "psld-resnet50-half-slow"),
    "PSLD, Fig. 15": ("psld-vgg16-production", "psld-production-proportional"),
    "PSLD, Fig. 16": ("psld-production-tensorflow",),
    "PSLD, Fig. 17": ("psld-scale-out",),
    "PSLD, Fig. 18": ("psld-transient", "psld-recovered"),
}
"""What is to be measured live, and the rows that do."""

OMITTED: Final[dict[str, str]] = {
    "LB-BSP, Table 3 and Fig. 10": "the forecasts need hours of a shared cluster's load on 32 machines",
    "LB-BSP, overhead with 96 workers": "96 training processes want as many cores; measured is a job of four",
    "LB-BSP, ResNet-32 and Inception-V3 themselves": "an iteration would take minutes of two cores; their times are "
    "emulated, and a softmax regression learns",
    "LB-BSP, partition manager": "the splits of a real job are random samples: nothing is lost without the manager, so "
    "that a row could not fail; simulated with two classes in each split",
    "LB-BSP, an LSTM on keywords (5.5)": "the recordings are not bundled, and the figure is a curve",
    "A-BSP, 36 machines of the multi-tenant cluster": "36 training processes want as many cores; four are emulated",
    "PSP, 32 workers and inconsistency of 500 nodes": "as many training processes as nodes want as many cores",
    "PSLD, Figs. 12 and 13 with busy CPUs": "a server's CPU cannot be emulated beside its link",
    "PSLD, Fig. 20": "real networks of half a gigabyte want minutes for each of a worker's exchanges here",
}
"""Headlines that are too large for two cores, and why."""
