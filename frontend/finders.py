"""Serves ``plotly.min.js`` from the installed plotly wheel, so that no copy is kept here and no CDN is asked."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

PLOTLY_PATH = "vendor/plotly.min.js"


class _PlotlyStorage(FileSystemStorage):
    """Reads the wheel's file under the name that pages ask for."""

    prefix = "vendor"

    def path(self, name: str) -> str:
        return super().path(Path(name).name)


class PlotlyFinder(BaseFinder):
    """Finds one file."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Look the wheel up without importing it: that would take half a second."""
        spec = find_spec("plotly")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("plotly: not installed, and charts are drawn with its plotly.min.js")
        self.storage = _PlotlyStorage(location=str(Path(spec.origin).parent / "package_data"))

    def check(self, **kwargs: Any) -> list[Any]:
        """Nothing to check: the file is part of the wheel."""
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """The absolute path of the script, if that is what was asked for."""
        found = [self.storage.path(PLOTLY_PATH)] if path == PLOTLY_PATH else []
        return found if find_all else (found[0] if found else [])

    def list(self, ignore_patterns: Any) -> Any:
        """Yield the script for ``collectstatic``."""
        yield PLOTLY_PATH, self.storage
