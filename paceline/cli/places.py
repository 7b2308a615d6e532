"""Where our own modules lie, and the environment in which other processes find them."""

import os
from collections.abc import Mapping
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""The folder of our packages: site-packages, or a checkout."""


def is_checkout() -> bool:
    """Whether this is a checkout of the project, and not what was installed from a wheel."""
    return (HOME / "manage.py").is_file()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with our modules within reach of whoever is started with them: behind all that they name."""
    known = dict(variables)
    if is_checkout():
        known["PYTHONPATH"] = os.pathsep.join(filter(None, [known.get("PYTHONPATH"), str(HOME)]))
    return known


def with_data_folder(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, with a folder for a control plane's data where none is named.

    A checkout keeps its own (``var``); an installed one belongs to no folder, and takes the user's.
    """
    if variables.get("PACELINE_DATA_DIR") or is_checkout():
        return dict(variables)
    base = Path(variables.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return {**variables, "PACELINE_DATA_DIR": str(base / "paceline")}
