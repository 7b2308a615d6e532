"""Where our own modules lie, and the environment in which other processes find them."""

import os
from collections.abc import Mapping
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder of our packages: site-packages, or a checkout."""


def is_checkout() -> bool:
    """Whether this is a checkout of the project, and not what was installed from a wheel."""
    return (HOME / "manage.py").is_file()


MANAGE = "python manage.py" if is_checkout() else "paceline"
"""How people call the control plane's own commands here: ``up``, ``access``, ``enroll``, ``whatif``, ``simulate``."""


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with our modules within reach of whoever is started with them: behind all that they name."""
    known = dict(variables)
    if is_checkout():
        known["PYTHONPATH"] = os.pathsep.join(filter(None, [known.get("PYTHONPATH"), str(HOME)]))
    return known


def with_data_folder(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with the folder of this user's control plane where none is named.

    A checkout keeps its own (``var``); what was installed belongs to no folder, and takes the user's.
    """
    if variables.get("PACELINE_DATA_DIR"):
        return dict(variables)
    base = Path(variables.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return {**variables, "PACELINE_DATA_DIR": str(HOME / "var" if is_checkout() else base / "paceline")}
