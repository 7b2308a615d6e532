"""Serves ``plotly.min.js`` from the installed plotly wheel, so that no copy is kept here and no CDN is needed."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

FOLDER, FILE = "vendor", "plotly.min.js"
"""Served as ``vendor/plotly.min.js``."""

WHOLE_LIBRARY = f"{FOLDER}/{FILE}"
CHART_LIBRARY = f"{FOLDER}/plotly-cartesian.min.js"
"""The bundle for charts with cartesian axes, a third of the size: the npm package plotly.js-cartesian-dist-min of the
same version, which no Python package contains."""


class PlotlyFinder(BaseFinder):
    """Finds the plotly library."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Find the wheel without importing it: that would take half a second."""
        spec = find_spec("plotly")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("plotly is not installed; charts need its plotly.min.js")
        self.storage = FileSystemStorage(location=Path(spec.origin).parent / "package_data")
        # Callers of list() add the storage's prefix to each name: Django's collectstatic and servestatic alike.
        self.storage.prefix = FOLDER  # type: ignore[attr-defined]

    def check(self, **kwargs: Any) -> list[Any]:
        """Nothing to check: the file is part of the wheel."""
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """The absolute path of the script, if that file was requested."""
        found = [self.storage.path(FILE)] if path == f"{FOLDER}/{FILE}" else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Any) -> Any:
        """Yield the script, named without the storage's prefix."""
        yield FILE, self.storage
