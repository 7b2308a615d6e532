"""PSP's headlines, live."""

import statistics
from collections.abc import Sequence
from typing import Final

from controlplane.simulator.reproduction.claims import Measure, Played, Run
from controlplane.simulator.reproduction.live.rows import LiveRow

PSP16, STRATEGIES = "live-psp-16", "live-psp-strategies"
SIXTEEN: Final = "Iterations of 0.8 s for 60 s, without noise; two shards of the digits for each worker. "
FEWER: Final = "Eight workers, two of them slow, and samples of two; two shards of the digits for each worker. "
WHOLE: Final = "Each update makes 1 / n of a step, where the paper's make a whole one."
FROM_S, UNTIL_S = 30.0, 60.0
"""The interval in which accuracies are compared: a job ends somewhat later, after its granted iterations."""
LAST: Final = 3
EARLY: Final = (
    "Of the last three evaluations: before that whole steps of single workers change the accuracy by half, depending "
    "on which is first by a millisecond. "
)
AS_LONG: Final = f"Accuracies from {FROM_S:g} to {UNTIL_S:g} s. "


def _rates(played: Sequence[Played]) -> float | None:
    mine, its = (one.outcome.updates / one.outcome.seconds for one in played[:2])
    return mine / its if its else None


def _accuracies(played: Sequence[Played]) -> tuple[float, float] | None:
    curves = [
        [accuracy for at_s, _, accuracy in one.curve if accuracy is not None and FROM_S <= at_s <= UNTIL_S]
        for one in played[:2]
    ]
    return (statistics.fmean(curves[0]), statistics.fmean(curves[1])) if all(curves) else None


def _change(played: Sequence[Played]) -> float | None:
    found = _accuracies(played)
    return found[0] - found[1] if found else None


def _ratio(played: Sequence[Played]) -> float | None:
    found = _accuracies(played)
    return found[0] / found[1] if found and found[1] else None


def _at_equal_updates(played: Sequence[Played]) -> float | None:
    curves = [[(updates, score) for _, updates, score in one.curve if score is not None] for one in played[:2]]
    if not all(curves):
        return None
    until = min(curve[-1][0] for curve in curves)
    mine, its = ([score for updates, score in curve if updates <= until][-LAST:] for curve in curves)
    return statistics.fmean(mine) / statistics.fmean(its)


AT_EQUAL_UPDATES: Final = Measure(
    "last three accuracies at as many updates, the first over the second", _at_equal_updates
)
RATES: Final = Measure("updates per second, the first over the second", _rates)
CHANGE: Final = Measure("accuracy in the same time, the first less the second", _change)
RATIO: Final = Measure("accuracy in the same time, the first over the second", _ratio)

ROWS: Final = (
    *(
        LiveRow(
            name=name,
            paper="psp",
            says=says,
            runs=(Run(PSP16, policy), Run(PSP16, base)),
            measure=measure,
            note=SIXTEEN + note,
        )
        for name, says, policy, base, measure, note in (
            ("psp-asp-updates", "ASP makes about 5 times the updates", "asp", "bsp", RATES, ""),
            ("psp-pbsp-updates", "pBSP makes twice the updates of BSP", "pbsp", "bsp", RATES, ""),
            ("psp-pssp-updates", "pSSP makes 35 % more updates than SSP", "pssp", "ssp", RATES, ""),
            (
                "psp-accuracy",
                "pBSP reaches a better accuracy than BSP in the same time",
                "pbsp",
                "bsp",
                CHANGE,
                AS_LONG,
            ),
            ("psp-equal-updates", "pSSP's accuracy after as many updates", "pssp", "ssp", AT_EQUAL_UPDATES, EARLY),
        )
    ),
    LiveRow(
        name="psp-accuracy-scaled",
        paper="psp",
        says="pBSP reaches a better accuracy than BSP in the same time",
        runs=(Run(PSP16, "pbsp-mean"), Run(PSP16, "bsp")),
        measure=CHANGE,
        note=SIXTEEN + AS_LONG + WHOLE,
        basis="our reading",
    ),
    *(
        LiveRow(
            name=f"psp-slowness-{policies[0]}",
            paper="psp",
            says=says,
            runs=tuple(Run(f"live-psp-slowness-{times}", each) for each in policies for times in order),
            measure=CHANGE,
            note=FEWER + AS_LONG,
        )
        for policies, says, order in (
            (("bsp",), "BSP loses 20 % accuracy", (8, 2)),
            (("asp",), "ASP loses 20 % accuracy", (8, 2)),
            (("pbsp", "bsp", "asp"), "pBSP loses less than 10 %", (2, 8)),
        )
    ),
    LiveRow(
        name="psp-slowness-asp-scaled",
        paper="psp",
        says="ASP loses 20 % accuracy",
        runs=(Run("live-psp-slowness-8", "asp-mean"), Run("live-psp-slowness-2", "asp-mean")),
        measure=CHANGE,
        note=FEWER + AS_LONG + WHOLE,
        basis="our reading",
    ),
    *(
        LiveRow(
            name=f"psp-{strategy}",
            paper="psp",
            says=f"sample of 2: accuracy of {strategy} sampling",
            runs=(Run(STRATEGIES, f"{strategy}-2"), Run(STRATEGIES, "fixed-2")),
            measure=RATIO,
            note=FEWER + AS_LONG,
        )
        for strategy in ("dynamic", "grouped")
    ),
)
