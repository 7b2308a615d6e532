"""The scenarios by name: each a small file of values."""

import difflib
import importlib
from functools import cache
from typing import Final

from controlplane.simulator.errors import ScenarioError
from controlplane.simulator.scenario import Scenario

_FILES: Final = (
    "demo",
    "lb_bsp_cluster_a",
    "lb_bsp_four_gpus",
    "lb_bsp_cluster_b",
    "lb_bsp_levels",
    "lb_bsp_oscillating",
    "lb_bsp_federation",
    "lb_bsp_partition",
    "psld",
    "psld_dynamic",
    "psp",
    "psp_inconsistency",
    "a_bsp",
    "live_lb_bsp",
    "live_psld",
    "live_a_bsp",
    "live_psp",
)


@cache
def scenarios() -> dict[str, Scenario]:
    """All of them, in the order of the papers."""
    modules = [importlib.import_module(f"{__name__}.{file}") for file in _FILES]
    found: tuple[Scenario, ...] = sum((module.SCENARIOS for module in modules), start=())
    return {scenario.name: scenario for scenario in found}


def find(name: str) -> Scenario:
    """The scenario of that name.

    Raises:
        ScenarioError: where there is none; says which are close.
    """
    known = scenarios()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        meant = f"; close to it: {', '.join(near)}" if near else ""
        raise ScenarioError("scenario", name, f"one of those that python manage.py simulate lists{meant}")
    return known[name]
