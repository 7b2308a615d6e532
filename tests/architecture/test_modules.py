"""What every module has in common."""

import ast
import statistics
import subprocess
from pathlib import Path

from tests.architecture.sources import ROOT, sources

MAX_LINES = 500
MAX_CORE_LINES = 700
"""The engine has few modules, each of which is one subject from its theory to its last rule."""
CORE = ROOT / "controlplane" / "core"
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".html", ".js", ".css", ".cfg", ".ini", ".sh", ""}


def own_files() -> list[Path]:
    """Every text file of the checkout, tracked or about to be; without git, all outside hidden folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("[!.]*")]
    paths = [ROOT / name for name in names if not name.startswith(".venv")]
    return [path for path in paths if path.is_file() and path.suffix in TEXT_SUFFIXES]


def test_every_module_has_a_docstring() -> None:
    silent = [
        source.where for source in sources().values() if not ast.get_docstring(source.tree) and source.text.strip()
    ]
    assert silent == []


def test_no_module_is_longer_than_one_can_keep_in_mind() -> None:
    long = {
        path.relative_to(ROOT): count
        for path in own_files()
        if path.suffix == ".py"
        if (count := _lines(path)) > (MAX_CORE_LINES if path.is_relative_to(CORE) else MAX_LINES)
    }
    assert long == {}, f"at most {MAX_LINES} lines, in core {MAX_CORE_LINES}: split it by subject"


def test_the_package_of_the_pure_parts_is_empty() -> None:
    assert (ROOT / "controlplane" / "__init__.py").read_text() == ""


def test_functions_are_short() -> None:
    lengths = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for source in sources().values()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert statistics.median(lengths) <= 10
    assert sum(length > 50 for length in lengths) <= 0.03 * len(lengths)


def test_nothing_names_a_path_of_somebodys_machine() -> None:
    """Such a path works for one person only."""
    homes = [f"/{folder}/" for folder in ("home", "root", "Users", "work")]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in own_files()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for home in homes
        if _starts_a_path(line, home)
    ]
    assert wrong == []


def test_no_note_of_unfinished_work_is_left() -> None:
    marks = ["TO" + "DO", "FIX" + "ME", "X" * 3]
    wrong = [f"{path.relative_to(ROOT)}: {mark}" for path in own_files() for mark in marks if mark in path.read_text()]
    assert wrong == []


def _starts_a_path(line: str, home: str) -> bool:
    """Whether ``home`` stands there as the root of a path, and not inside a longer one or a URL."""
    before, found, _ = line.partition(home)
    return bool(found) and (not before or before[-1] in " \"'`=(:,")


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())
