"""Curves of four kinds of GPU: t = launch + max(x, saturation) * seconds per sample, up to the memory limit.

LB-BSP's Fig. 4 is not in the text that we have. For Inception-V3 the curves follow from section 5.2.1: from 32 samples
to 6 the K520 gets nearly 2 s faster, from 32 to 89 the V100 0.5 s slower; at (89, 21, 12, 6) all four take the same
time. That time is not stated: 1.7 s with communication gives the gain of 54 % of section 5.1. The slopes of M60 and K80
are interpolated between the others by peak rates. The equilibrium is therefore an input; a run shows whether and how
fast a policy reaches it.
"""

from typing import Final, Literal

from controlplane.simulator.machines import GpuMachine

Model = Literal["inception-v3", "resnet-32"]
Gpu = Literal["V100", "M60", "K80", "K520"]

EQUILIBRIUM: Final[dict[Gpu, int]] = {"V100": 89, "M60": 21, "K80": 12, "K520": 6}
"""Shares of four workers that sum to 128 (section 5.2.1)."""

SECONDS_PER_SAMPLE: Final[dict[Gpu, float]] = {"V100": 0.0088, "M60": 0.035, "K80": 0.048, "K520": 0.077}
COMPUTE_S: Final = 1.55
"""Compute time of each GPU in the equilibrium; the other 0.15 s are communication."""
SATURATION: Final[dict[Gpu, int]] = {"V100": 16, "M60": 4, "K80": 4, "K520": 1}
MEMORY: Final[dict[Gpu, int]] = {"V100": 160, "M60": 80, "K80": 112, "K520": 38}
"""Memory limits in samples for Inception-V3, in proportion to 16, 8, 12 and 4 GiB."""

RESNET_COMPUTE, RESNET_LAUNCH, RESNET_MEMORY = 1 / 40, 1 / 12, 40
"""Factors of ResNet-32 on small images relative to Inception-V3 on large ones: less work per sample (fewer operations,
lower GPU utilization), fewer kernel launches, more samples in memory. Not calibrated.
"""


def gpu(kind: Gpu, model: Model = "inception-v3") -> GpuMachine:
    """A worker with one such GPU."""
    each_s = SECONDS_PER_SAMPLE[kind]
    launch_s = COMPUTE_S - EQUILIBRIUM[kind] * each_s
    if model == "inception-v3":
        return GpuMachine(
            launch_s=launch_s, seconds_per_sample=each_s, saturation=SATURATION[kind], memory_samples=MEMORY[kind]
        )
    return GpuMachine(
        launch_s=launch_s * RESNET_LAUNCH,
        seconds_per_sample=each_s * RESNET_COMPUTE,
        saturation=4 * SATURATION[kind],
        memory_samples=MEMORY[kind] * RESNET_MEMORY,
    )
