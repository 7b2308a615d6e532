"""Static files are served compressed where they lie, too, and are then what they were."""

import gzip
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import AsyncClient

from frontend import compression
from frontend.compression import FOLDER, UNUSED_S, CompressedStatic, compressed, remove_unused
from frontend.finders import CHART_LIBRARY


async def body_of(reply: Any) -> bytes:
    return b"".join([chunk async for chunk in reply]) if reply.streaming else bytes(reply.content)


async def test_the_chart_library_is_a_third_as_large_on_the_wire(
    async_client: AsyncClient, static_files: None, settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    library = Path(str(finders.find(CHART_LIBRARY))).read_bytes()
    plain = await async_client.get(f"/static/{CHART_LIBRARY}")
    assert (plain.headers.get("Content-Encoding"), await body_of(plain)) == (None, library)
    smaller = await async_client.get(f"/static/{CHART_LIBRARY}", headers={"Accept-Encoding": "gzip, br"})
    sent = await body_of(smaller)
    assert (smaller.headers["Content-Encoding"], smaller.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert int(smaller.headers["Content-Length"]) == len(sent) < len(library) / 2.8
    assert gzip.decompress(sent) == library
    assert smaller.headers["Content-Type"] == plain.headers["Content-Type"]
    again = {"Accept-Encoding": "gzip", "If-None-Match": smaller.headers["ETag"]}
    assert (await async_client.get(f"/static/{CHART_LIBRARY}", headers=again)).status_code == 304


def test_a_file_is_compressed_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    script, folder = tmp_path / "a.js", tmp_path / FOLDER
    script.write_text("let a = 1;\n" * 200)
    first = compressed(script, folder)
    assert first is not None
    made = first.stat().st_ino
    assert compressed(script, folder) == first
    assert first.stat().st_ino == made
    script.write_text("let b = 2;\n" * 200)
    assert compressed(script, folder) != first
    assert sorted(path.suffix for path in folder.iterdir()) == [".gz", ".gz"]


def test_files_that_no_start_has_used_for_a_month_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    assert remove_unused(folder) == 0, "there is none yet"
    kept = []
    for name in ("used.js", "changed.js"):
        (tmp_path / name).write_text(f"let {name[0]} = 1;\n" * 200)
        kept.append(compressed(tmp_path / name, folder))
    used, changed = kept
    assert used is not None
    assert changed is not None
    for path in (used, changed):
        os.utime(path, (time.time() - UNUSED_S - 60,) * 2)
    assert compressed(tmp_path / "used.js", folder) == used
    assert remove_unused(folder) == 1
    assert list(folder.iterdir()) == [used]


def test_a_start_cleans_up(static_files: None, settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    old = tmp_path / FOLDER / "0.js.gz"
    old.parent.mkdir()
    old.touch()
    os.utime(old, (time.time() - UNUSED_S - 60,) * 2)

    async def nothing(request: Any) -> Any:
        return None

    CompressedStatic(nothing)
    assert not old.exists()


@pytest.mark.parametrize(("name", "size"), [("small.js", 100), ("picture.png", 5_000)])
def test_what_would_not_gain_is_served_as_it_is(tmp_path: Path, name: str, size: int) -> None:
    (tmp_path / name).write_bytes(b"x" * size)
    assert compressed(tmp_path / name, tmp_path / FOLDER) is None


def test_where_nothing_can_be_kept_the_file_is_served_as_it_is_and_the_log_reports_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.js").write_text("x" * 5_000)
    (tmp_path / FOLDER).write_text("a file in the way")
    monkeypatch.setattr(compression.logger, "propagate", True)
    with caplog.at_level(logging.WARNING, logger=compression.logger.name):
        assert compressed(tmp_path / "a.js", tmp_path / FOLDER) is None
    assert "static files are served uncompressed" in caplog.text
