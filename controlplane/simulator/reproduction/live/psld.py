"""PSLD's headlines, live, over thin links."""

from collections.abc import Sequence
from typing import Final

from controlplane.simulator.reproduction.claims import Measure, Played, Run
from controlplane.simulator.reproduction.live.rows import LiveRow
from controlplane.simulator.reproduction.measures import within
from controlplane.simulator.scenarios.live_psld import APPEARS, RECOVERS, TRANSIENT

SHRUNK: Final = (
    "Four servers and four workers; tensors, blocks and links a small part of the paper's, so that links make the "
    "time. Communication is not overlapped with computation. "
)
OVERLAP: Final = (
    "A live server closes and sends each block by itself, so that some workers pull while others still push, and both "
    "directions of a thin link are in use at a time; the simulator's servers close an iteration as a whole. The "
    "smaller the blocks, the more of it (vgg16's are a fifth of resnet50's)."
)
DURING: Final = ((APPEARS + 10, RECOVERS),)
AFTER: Final = ((RECOVERS + 10, TRANSIENT - 2),)


def _speed(phases: tuple[tuple[int, int], ...]) -> Measure:
    """Iterations per second in these phases, the first run's divided by the second's."""
    time = within(phases)

    def measure(played: Sequence[Played]) -> float | None:
        found = time(played)
        return 1 / found if found else None

    return Measure(f"speed in iterations {list(phases)}, the first over the second", measure)


MODELS: Final = ("vgg16", "resnet50", "alexnet")

ROWS: Final = (
    *(
        LiveRow(
            name=f"psld-{model}-{name}",
            paper="psld",
            says=f"{model}: {says}",
            runs=(Run(f"live-psld-{model}", policy), Run(f"live-psld-{model}{where}", base)),
            note=SHRUNK + ("One slow server of four costs more than one of eight." if name == "slow" else ""),
            outside=OVERLAP,
        )
        for model in MODELS
        for name, says, policy, where, base in (
            ("slow", "one slow server of eight costs", "mxnet", "-even", "mxnet"),
            ("gain", "PSLD makes training", "psld", "", "mxnet"),
        )
    ),
    *(
        LiveRow(
            name=f"psld-{model}-even",
            paper="psld",
            says=f"{model}: up to {percent}% faster than MXNet's placement without",
            runs=(Run(f"live-psld-{model}", "psld"), Run(f"live-psld-{model}-even", "mxnet")),
            note=SHRUNK,
            outside=OVERLAP,
        )
        for model, percent in (("vgg16", 62), ("resnet50", 30), ("alexnet", 68))
    ),
    *(
        LiveRow(
            name=f"psld-{model}-proportional",
            paper="psld",
            says=f"{model}: up to {percent}% faster than proportional",
            runs=(Run(f"live-psld-{model}", "psld"), Run(f"live-psld-{model}", "proportional")),
            note=SHRUNK,
            outside=OVERLAP,
        )
        for model, percent in (("vgg16", 29), ("resnet50", 13), ("alexnet", 53))
    ),
    *(
        LiveRow(
            name=f"psld-{model}-half-slow{'' if base == 'mxnet' else '-proportional'}",
            paper="psld",
            says=f"{model}, 4 slow servers of eight: {times} times the speed of {base}",
            runs=(Run(f"live-psld-{model}-slow-2", "psld"), Run(f"live-psld-{model}-slow-2", base)),
            note=SHRUNK + "Two of four are slow.",
            outside=OVERLAP,
        )
        for model, times, base in (
            ("vgg16", "5.5", "mxnet"),
            ("resnet50", "3.4", "mxnet"),
            ("vgg16", "2.8", "proportional"),
            ("resnet50", "1.7", "proportional"),
        )
    ),
    *(
        LiveRow(
            name=f"psld-{model}-production",
            paper="psld",
            says=f"{model}, servers of a production cluster",
            runs=(Run(f"live-psld-real-world-{model}", "psld"), Run(f"live-psld-real-world-{model}", "mxnet")),
            note=SHRUNK + "Which of four servers is slow when is drawn once.",
            outside=OVERLAP,
        )
        for model in MODELS
    ),
    *(
        LiveRow(
            name=f"psld-production-{base}",
            paper="psld",
            says=says,
            runs=tuple(
                Run(f"live-psld-real-world-{model}", policy)
                for model in ("vgg16", "resnet50")
                for policy in ("psld", base)
            ),
            note=SHRUNK + "Of two models.",
            outside=OVERLAP,
        )
        for base, says in (
            ("proportional", "the same, of three models: up to 21.6 %"),
            ("tensorflow", "the same, of three models: up to 49 %"),
        )
    ),
    LiveRow(
        name="psld-transient",
        paper="psld",
        says="while two of four servers are slow",
        runs=(Run("live-psld-transient", "psld"), Run("live-psld-transient", "mxnet")),
        measure=_speed(DURING),
        note=SHRUNK + "By iterations and not by seconds.",
        outside=OVERLAP,
    ),
    LiveRow(
        name="psld-recovered",
        paper="psld",
        says="after they have recovered: 34 %",
        runs=(Run("live-psld-transient", "psld"), Run("live-psld-transient", "proportional")),
        measure=_speed(AFTER),
        note=SHRUNK + "By iterations and not by seconds.",
        outside=OVERLAP,
    ),
    LiveRow(
        name="psld-scale-out",
        paper="psld",
        says="six of eight servers slow: with new servers",
        alone=("six of eight servers slow: PSLD adds servers; iteration time over the baseline's", 0.5),
        runs=(Run("live-psld-scale-out", "psld"), Run("live-psld-scale-out", "mxnet")),
        measure=within(((30, 43),)),
        note=SHRUNK + "Three of four are slow, with two to spare.",
        outside=OVERLAP,
    ),
)
