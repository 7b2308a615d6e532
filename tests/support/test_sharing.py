"""What runs side by side is shared out so that nothing is made twice and the dearest does not come last."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT
from tests.support.sharing import DEAREST, STACKS, check_sharing, is_passed_over, share_of

CONFTEST = """
import os
import pytest
from tests.support import sharing

sharing.STACKS = {"one stack": {"test_a.py", "test_d.py"}, "another": {"test_c.py"}}
sharing.DEAREST = ["another", "one stack"]

def pytest_xdist_make_scheduler(config, log):
    return sharing.Sharing(config, log)

@pytest.fixture(scope="session")
def stack():
    return os.getpid()

@pytest.fixture(autouse=True)
def noted(request):
    with open(os.environ["NOTES"], "a") as notes:
        print(request.path.name, os.getpid(), file=notes)
"""
TESTS = "import pytest\n@pytest.mark.parametrize('number', range({}))\ndef test_it(number): pass\n"

ENDS_IN_ITS_SECOND = TESTS.format(3).replace("pass", "number == 1 and os._exit(1)").replace("import", "import os,", 1)


def run_side_by_side(folder: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """What a run by two processes said, and the file and process of each test that was begun."""
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
        "NOTES": str(folder / "notes"),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, "--rootdir", ".", "--confcutdir", ".", "-n", "2", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done, [line.split() for line in (folder / "notes").read_text().splitlines()]


def test_a_file_and_all_that_share_a_stack_stay_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, count in (("a", 4), ("b", 6), ("c", 1), ("d", 4)):
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(count))
    done, notes = run_side_by_side(tmp_path)
    assert done.returncode == 0, done.stdout
    processes = {name: {process for file, process in notes if file == name} for name, _ in notes}
    assert {name: len(found) for name, found in processes.items()} == dict.fromkeys(processes, 1)
    assert processes["test_a.py"] == processes["test_d.py"]
    assert processes["test_c.py"] != processes["test_a.py"], "the two dearest are begun first, one by each"
    assert len(notes) == 15


@pytest.mark.parametrize("reruns", [0, 1])
def test_a_test_that_ends_its_process_is_named_and_takes_no_other_with_it(tmp_path: Path, reruns: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, count in (("a", 1), ("c", 3), ("d", 1)):
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(count))
    (tmp_path / "test_b.py").write_text(ENDS_IN_ITS_SECOND)
    (tmp_path / "test_e.py").write_text("import os\ndef test_it(): os._exit(1)\n")
    done, notes = run_side_by_side(tmp_path, "-p", "rerunfailures", "--reruns", str(reruns))
    assert "2 failed, 7 passed" in done.stdout, done.stdout
    for test in ("test_b.py::test_it[1]", "test_e.py::test_it"):
        assert re.search(rf"crashed while running '{re.escape(test)}'", done.stdout)
    assert Counter(file for file, _ in notes) == {
        "test_a.py": 1,
        "test_b.py": 3 + reruns,
        "test_c.py": 3,
        "test_d.py": 1,
        "test_e.py": 1 + reruns,
    }


def test_a_test_that_uses_the_stack_must_be_known_to_do_so(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    check_sharing(path, "tests/integration/test_jobs.py::test_it[a::b]", ["stack"], [])
    check_sharing(path, "tests/core/test_x.py::test_it", [], ["parametrize"])
    with pytest.raises(ValueError, match=r"^tests/core/test_x\.py: found a test that uses the stack, .*: add it\.$"):
        check_sharing(path, "tests/core/test_x.py::test_it", ["tmp_path", "stack"], [])


def test_a_mark_must_be_written_where_it_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "test_x.py"
    path.write_text("pytestmark = pytest.mark.browser")
    check_sharing(path, "test_x.py::test_it", [], ["browser"])
    with pytest.raises(ValueError, match=r"^test_x\.py: found a test marked integration, .*: write it there\.$"):
        check_sharing(path, "test_x.py::test_it", [], ["browser", "integration"])


def test_every_file_that_is_named_is_there() -> None:
    named = {*DEAREST, *(path for files in STACKS.values() for path in files)} - {*STACKS}
    assert [path for path in named if not (ROOT / path).is_file()] == []
    assert share_of("tests/browser/test_pages.py::test_it[a]") == "tests/browser/test_pages.py"


@pytest.mark.parametrize(
    ("asked", "passed_over"),
    [
        ("integration or browser", ["test_plain.py"]),
        ("browser", ["test_plain.py", "test_starts.py"]),
        ("not integration and not browser and not cluster", []),
        ("", []),
    ],
)
def test_a_file_without_the_marks_that_alone_are_requested_is_not_imported(
    tmp_path: Path, asked: str, passed_over: list[str]
) -> None:
    for name, text in {
        "conftest.py": "",
        "test_plain.py": "def test_it(): pass",
        "test_starts.py": "import pytest\npytestmark = pytest.mark.integration",
        "test_looks.py": "import pytest\n@pytest.mark.browser\ndef test_it(): pass",
    }.items():
        (tmp_path / name).write_text(text)
    assert sorted(path.name for path in tmp_path.iterdir() if is_passed_over(path, asked)) == passed_over
