"""What claims to be a model is looked at for little, whatever it claims."""

import contextlib
import io
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlplane.api import npz
from controlplane.api.npz import MAX_DIRECTORY, MAX_ENTRIES, NoModel, check_npz
from tests.support.examples import examples
from workers.upload import write_npz

MIB = 1024**2


def zipped(entries: dict[str, bytes], **options: Any) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", **options) as archive:
        for name, body in entries.items():
            archive.writestr(name, body)
    return buffer.getvalue()


def array(values: Any) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(values), allow_pickle=False)
    return buffer.getvalue()


def look(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "model"
    path.write_bytes(body)
    check_npz(path)


def peak_of(tmp_path: Path, body: bytes) -> int:
    """Bytes that a refusal took at most."""
    path = tmp_path / "model"
    path.write_bytes(body)
    tracemalloc.start()
    try:
        with pytest.raises(NoModel):
            check_npz(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_every_type_that_buffers_of_a_module_may_have_is_a_model(tmp_path: Path) -> None:
    types = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "bool")
    ours = io.BytesIO()
    write_npz(ours, {name: np.zeros((), dtype=name) for name in types} | {"empty": np.zeros(0, dtype=np.float32)})
    look(tmp_path, ours.getvalue())


def test_what_workers_and_numpy_write_is_a_model(tmp_path: Path) -> None:
    ours = io.BytesIO()
    write_npz(ours, {"a": np.zeros(3), "layer.0.weight": np.arange(6).reshape(2, 3)})
    look(tmp_path, ours.getvalue())
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, a=np.zeros(100_000), b=np.float32(1.0))
        look(tmp_path, file.getvalue())


def test_a_directory_of_many_entries_is_refused_unread(tmp_path: Path) -> None:
    body = zipped({f"{number}": b"" for number in range(MAX_ENTRIES + 1)})
    with pytest.raises(NoModel, match=f"lists {MAX_ENTRIES + 1} arrays"):
        look(tmp_path, body)
    assert peak_of(tmp_path, body) < MIB


def test_a_directory_that_declares_less_than_it_holds_costs_little(tmp_path: Path) -> None:
    body = bytearray(zipped({f"{number}": b"" for number in range(MAX_ENTRIES + 1)}))
    body[-14:-10] = struct.pack("<2H", 1, 1)
    assert peak_of(tmp_path, bytes(body)) < 16 * MIB


@pytest.mark.parametrize("length", [MAX_DIRECTORY + 1, 2**32 - 1])
def test_a_long_directory_is_refused_unread(tmp_path: Path, length: int) -> None:
    body = bytearray(b"\x00" * 8 * MIB + zipped({"a.npy": array([1.0])}))
    body[-10:-6] = struct.pack("<L", length)
    assert peak_of(tmp_path, bytes(body)) < MIB


@pytest.mark.parametrize("length", [MAX_DIRECTORY + 1, 2**64 - 1])
def test_a_long_directory_of_zip64_is_refused_unread(tmp_path: Path, length: int) -> None:
    plain = zipped({"a.npy": array([1.0])})
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1, 1, length, 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)
    assert peak_of(tmp_path, b"\x00" * 8 * MIB + plain[:-22] + end + locator + plain[-22:]) < MIB


def test_a_header_that_claims_gigabytes_is_read_to_its_begin_only(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x02\x00" + struct.pack("<L", 64 * MIB) + b" " * 64 * MIB
    body = zipped({"a.npy": header}, compression=zipfile.ZIP_DEFLATED)
    assert len(body) < MIB
    assert peak_of(tmp_path, body) < MIB


@pytest.mark.parametrize(
    "body",
    [
        zipped({"a.npy": array([1.0])}, compression=zipfile.ZIP_LZMA),
        zipped({"a.npy": array([1.0])}, compression=zipfile.ZIP_BZIP2),
        zipped({"a.npy": b"\x80\x04N."}),
        zipped({"a.npy": array(["text"])}),
        zipped({"a.txt": b""}),
        zipped({"a.npy": b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10_000}),
        zipped({}) + b"x",
        zipped({})[:-2] + b"\x01\x00x",
        b"PK\x06\x07" + bytes(16) + zipped({}),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(NoModel):
        look(tmp_path, body)


GOOD = zipped({"a.npy": array([1.0, 2.0]), "b.npy": array([[1], [2]])})


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6), st.booleans())
def test_whatever_is_changed_in_a_model_it_is_one_or_is_refused(changes: list[tuple[int, int]], ends: bool) -> None:
    body = bytearray(GOOD)
    for at, byte in changes:
        body[-1 - at if ends else at] = byte
    file = io.BytesIO(bytes(body))
    with contextlib.suppress(NoModel):
        npz.check_file(file)
