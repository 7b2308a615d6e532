"""Modules run once: pages and other modules name them alike."""

import re
from pathlib import Path
from shutil import copytree
from typing import Final

from django.contrib.staticfiles.storage import StaticFilesStorage

from frontend.storage import HashedFiles
from tests.architecture.sources import ROOT

FOLDER: Final = "paceline/js"
SOURCES: Final = ROOT / "frontend" / "static" / FOLDER
IMPORTED: Final = re.compile(r'from "\./([^"]+)"')


def test_containers_import_modules_under_the_names_that_their_pages_load(tmp_path: Path) -> None:
    """With both names a module would run twice, and a button would send two requests."""
    copytree(SOURCES, tmp_path / FOLDER)
    here = StaticFilesStorage(location=str(tmp_path))
    names = {f"{FOLDER}/{path.name}": (here, f"{FOLDER}/{path.name}") for path in SOURCES.glob("*.js")}
    storage = HashedFiles(location=str(tmp_path), base_url="/static/")
    done = list(storage.post_process(names))
    hashed = {name: Path(storage.stored_name(name)).name for name in names}
    assert [outcome for _, _, outcome in done if isinstance(outcome, Exception)] == []
    assert len(done) >= len(names)
    imported = {each for name in names for each in IMPORTED.findall((tmp_path / FOLDER / hashed[name]).read_text())}
    assert imported
    assert imported <= set(hashed.values())
    assert not imported & {Path(name).name for name in names}
