import gzip
from pathlib import Path

import pytest

from controlplane.simulator.errors import TraceError
from controlplane.simulator.google_trace import read_task_usage
from controlplane.telemetry.trace_files import read_trace
from tests.simulator.test_google_trace import row


def test_a_file_is_read_packed_and_plain(tmp_path: Path) -> None:
    text = "\n".join([row(0, 5), row(0, 5, machine="8")]) + "\n"
    (tmp_path / "part.csv").write_text(text)
    (tmp_path / "part.csv.gz").write_bytes(gzip.compress(text.encode()))
    assert (
        read_trace(tmp_path / "part.csv") == read_trace(tmp_path / "part.csv.gz") == read_task_usage(text.splitlines())
    )


PACKED = gzip.compress(row(0, 5).encode(), mtime=0)
"""Without the time at which it was packed: every process that collects these tests names them alike."""


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("gone.csv", None, r"gone\.csv: cannot be read \(No such file or directory\)"),
        ("plain.csv.gz", b"1,2,3", r"plain\.csv\.gz: cannot be read \(Not a gzipped file"),
        ("short.csv.gz", PACKED[:-9], r"short\.csv\.gz: cannot be read \("),
        (
            "packed.csv",
            PACKED,
            r"packed\.csv, row 1: 'utf-8' codec can't decode .*, expected a line",
        ),
    ],
)
def test_a_file_that_is_no_such_table_is_refused_by_name(
    tmp_path: Path, name: str, content: bytes | None, sentence: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=sentence):
        read_trace(tmp_path / name)
