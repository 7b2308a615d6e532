"""Readers of real files, on small files of the true form; and what is said of files that are not what they claim."""

import gzip
import json
import math
import shutil
import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from controlplane.protocol.parts import SpecError
from controlplane.protocol.training import Workload
from workers.workloads.catalogue import load_dataset, load_workload
from workers.workloads.data.examples import Split
from workers.workloads.data.paths import DataError
from workers.workloads.local import Local

CPU = torch.device("cpu")


def read(root: Path, dataset: str, **data: Any) -> Split:
    spec = Workload(name="softmax-regression", dataset=dataset, data={"path": "set"} | data)
    return load_dataset(spec, Local(data_dir=root)).split


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "set"
    made.mkdir()
    return made


def cifar(folder: Path, *, label: int = 3) -> None:
    for name, rows in (("data_batch_1", 6), ("data_batch_2", 4), ("test_batch", 5)):
        row = bytes([label]) + bytes(1024) + bytes([255]) * 1024 + bytes([100]) * 1024
        (folder / f"{name}.bin").write_bytes(row * rows)


def idx(
    folder: Path,
    *,
    packed: bool,
    side: int = 28,
    prefix: tuple[str, str] = ("train", "t10k"),
    counts: tuple[int, int] = (6, 3),
) -> None:
    for name, count in zip(prefix, counts, strict=True):
        images = struct.pack(">4I", 0x803, count, side, side) + bytes(range(1, count + 1)) * side * side
        labels = struct.pack(">2I", 0x801, count) + bytes(range(count))
        for kind, data in (("images-idx3", images), ("labels-idx1", labels)):
            path = folder / f"{name}-{kind}-ubyte{'.gz' if packed else ''}"
            path.write_bytes(gzip.compress(data) if packed else data)


def leaf(folder: Path, *, pixel: float = 0.5, label: float = 0) -> None:
    for part, users in (("train", {"f1": 2, "f2": 3}), ("test", {"f1": 1})):
        data = {user: {"x": [[pixel] * 784] * n, "y": [label, *range(1, n)]} for user, n in users.items()}
        document = {"users": list(users), "num_samples": list(users.values()), "user_data": data}
        (folder / part).mkdir()
        (folder / part / "all_data_0.json").write_text(json.dumps(document))


def wav(folder: Path, *, rate: int = 16_000) -> None:
    for word in ("yes", "no"):
        (folder / word).mkdir()
        for speaker in range(6):
            with wave.open(str(folder / word / f"{speaker}_nohash_0.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                tone = np.sin(np.arange(12_000) * (0.1 if word == "yes" else 0.9)) * 20_000
                file.writeframes(tone.astype("<i2").tobytes())
    (folder / "testing_list.txt").write_text("yes/0_nohash_0.wav\nno/5_nohash_0.wav\n")


def beside(folder: Path) -> None:
    """Rows outside the data folder."""
    (folder.parent / "a.svm").write_text("1 1:1\n" * 9)
    (folder.parents[1] / "x.svm").write_text("1 1:1\n" * 9)


def wav_beside(folder: Path) -> None:
    """Recordings outside the data folder."""
    wav(folder)
    shutil.copytree(folder / "no", folder.parents[1] / "no")


def list_of_noise(folder: Path) -> None:
    wav(folder)
    (folder / "testing_list.txt").write_bytes(b"\xff\xfe")


def sound_of_noise(folder: Path) -> None:
    wav(folder)
    (folder / "no" / "x.wav").write_bytes(b"hello")


def test_cifar_10_in_binary(tmp_path: Path, folder: Path) -> None:
    cifar(folder)
    split = read(tmp_path, "cifar-10")
    images, labels = split.train.take(np.arange(10), CPU)
    assert (tuple(images.shape), set(labels.tolist()), len(split.held)) == ((10, 3, 32, 32), {3}, 5)  # type: ignore[union-attr]
    red, green, blue = (float(images[0, channel].mean()) for channel in range(3))  # type: ignore[index]
    assert red < blue < green


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_plain_and_packed(tmp_path: Path, folder: Path, packed: bool) -> None:
    idx(folder, packed=packed)
    split = read(tmp_path, "idx")
    assert (len(split.train), len(split.held), split.train.targets.tolist()) == (6, 3, [0, 1, 2, 3, 4, 5])


def test_emnist_by_the_start_of_its_names(tmp_path: Path, folder: Path) -> None:
    idx(folder, packed=False, prefix=("emnist-letters-train", "emnist-letters-test"))
    assert len(read(tmp_path, "idx", split="emnist-letters", classes=27).train) == 6


def test_leafs_femnist_with_its_writers(tmp_path: Path, folder: Path) -> None:
    leaf(folder)
    split = read(tmp_path, "femnist")
    assert (split.train.targets.tolist(), len(split.held)) == ([0, 1, 0, 1, 2], 1)
    assert split.writers is not None
    assert split.writers.tolist() == [0, 0, 1, 1, 1]


def test_svmlight_of_one_file_and_of_days(tmp_path: Path, folder: Path) -> None:
    (folder / "Day0.svm").write_text("-1 1:0.5 7:1\n+1 2:2\n" * 10)
    (folder / "Day1.svm").write_text("+1 3:1\n" * 10)
    whole = read(tmp_path, "svmlight", features=8)
    assert (len(whole.train), len(whole.held)) == (27, 3)
    one = read(tmp_path, "svmlight", path="set/Day0.svm", held="Day1.svm", features=8)
    assert (len(one.train), one.held.targets.tolist()) == (20, [1] * 10)
    bag, targets = one.train.take(np.array([0, 1]), CPU)
    assert (bag.columns.tolist(), bag.values.tolist(), targets.tolist()) == ([0, 6, 1], [0.5, 1.0, 2.0], [0, 1])  # type: ignore[union-attr]


def test_held_out_rows_within_the_folder_are_not_trained_on(tmp_path: Path, folder: Path) -> None:
    (folder / "Day0.svm").write_text("-1 1:0.5 7:1\n+1 2:2\n" * 10)
    (folder / "Day1.svm").write_text("+1 3:1\n" * 10)
    split = read(tmp_path, "svmlight", held="Day1.svm", features=8)
    assert (len(split.train), len(split.held)) == (20, 10)


def test_files_are_named_by_their_start_and_not_by_a_way_elsewhere(tmp_path: Path, folder: Path) -> None:
    idx(folder, packed=False, prefix=("x-train", "x-test"))
    with pytest.raises(SpecError, match=r"workload\.data\.split: found '\.\./set/x'"):
        read(tmp_path, "idx", split="../set/x")


def test_speech_commands_with_its_own_list(tmp_path: Path, folder: Path) -> None:
    wav(folder)
    split = read(tmp_path, "speech-commands", words=["yes", "no"], frames=16, bands=8)
    assert (len(split.train), split.held.targets.tolist()) == (10, [0, 1])
    series, labels = split.train.take(np.arange(10), CPU)
    assert tuple(series.shape) == (10, 16, 8)  # type: ignore[union-attr]
    low, high = series[labels == 0].mean(0), series[labels == 1].mean(0)  # type: ignore[index]
    assert int((low - high)[0].argmax()) < int((low - high)[0].argmin())


def test_a_network_trains_on_files(tmp_path: Path, folder: Path) -> None:
    idx(folder, packed=True)
    replica = load_workload(
        Workload(name="lenet-5", dataset="idx", data={"path": "set"}), Local(data_dir=tmp_path)
    ).replica()
    assert replica.update(np.arange(6)).samples == 6


@pytest.mark.parametrize(
    ("dataset", "data", "break_it", "sentence"),
    [
        ("cifar-10", {}, lambda f: None, "found no data_batch_"),
        ("cifar-10", {}, lambda f: cifar(f, label=12), "found label 12, expected 0 to 9"),
        (
            "cifar-10",
            {},
            lambda f: (f / "data_batch_1.bin").write_bytes(b"x" * 5),
            "found 5 bytes, expected a multiple",
        ),
        ("idx", {}, lambda f: None, "does not exist, nor with .gz"),
        ("idx", {}, lambda f: idx(f, packed=False, side=20), "found images of 20 x 20, expected 28 x 28"),
        ("idx", {"classes": 3}, lambda f: idx(f, packed=False), "found label 5, expected 0 to 2"),
        ("idx", {}, lambda f: (f / "train-images-idx3-ubyte").write_bytes(b"PK\3\4"), "begins with 504b0304"),
        ("idx", {}, lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(b"PK"), "cannot be unpacked"),
        ("femnist", {}, lambda f: None, "found no .json"),
        (
            "femnist",
            {},
            lambda f: ((f / "train").mkdir(), (f / "train" / "a.json").write_text("{}")),
            "KeyError 'users', expected LEAF's form",
        ),
        ("svmlight", {"features": 8}, lambda f: None, "found no file"),
        ("svmlight", {"features": 8}, lambda f: (f / "a.svm").write_text("hello there\n"), "expected lines of"),
        ("svmlight", {"features": 3}, lambda f: (f / "a.svm").write_text("1 9:1\n"), "expected lines of"),
        ("svmlight", {"features": 3}, lambda f: (f / "a.svm").write_text("7 1:1\n" * 3), "found labels 7 to 7"),
        ("speech-commands", {"words": ["yes", "no"]}, lambda f: None, "expected recordings of the word 'yes'"),
        ("speech-commands", {"words": ["yes", "no"]}, lambda f: wav(f, rate=8000), "16 bits at 8000 Hz, expected 1"),
        ("idx", {"path": "gone"}, lambda f: None, "does not exist on this machine"),
        ("idx", {"path": "loop"}, lambda f: (f.parent / "loop").symlink_to("loop"), "expected the name of a file"),
        ("idx", {}, lambda f: idx(f, packed=False, counts=(0, 3)), "found 0 samples to train on and 3 to hold out"),
        ("idx", {}, lambda f: idx(f, packed=False, counts=(6, 0)), "found 6 samples to train on and 0 to hold out"),
        ("femnist", {}, lambda f: leaf(f, pixel=math.nan), "a pixel of sample 0 that is not a number"),
        ("femnist", {}, lambda f: leaf(f, label=0.5), "TypeError 'float' object cannot be interpreted as an integer"),
        ("femnist", {}, lambda f: leaf(f, label=10**30), "OverflowError"),
        ("femnist", {}, lambda f: (leaf(f), (f / "train" / "b.json").mkdir()), "b.json: cannot be read (Is a dir"),
        ("svmlight", {"features": 8}, lambda f: (f / "a.svm").write_text(""), "found 0 samples"),
        ("svmlight", {"features": 8}, lambda f: (f / "a.svm").write_text("1 1:1\n"), "found 0 samples to train on"),
        (
            "svmlight",
            {"features": 8},
            lambda f: (f / "a.svm").write_text("1 1:nan\n" * 9),
            "a.svm: found the value nan",
        ),
        ("svmlight", {"features": 8}, lambda f: (f / "a.svm").write_text("1 1:1e99\n" * 9), "found the value 1e+99"),
        ("speech-commands", {"words": ["yes", "yes"]}, lambda f: wav(f), "found 'yes' more than once"),
        ("speech-commands", {"words": ["yes", "no"]}, list_of_noise, "testing_list.txt: 'utf-8' codec can't decode"),
        ("speech-commands", {"words": ["yes", "no"]}, sound_of_noise, "x.wav: ends too early; expected a WAV file"),
    ],
)
def test_files_that_are_not_what_they_claim_are_named(
    tmp_path: Path, folder: Path, dataset: str, data: dict[str, Any], break_it: Any, sentence: str
) -> None:
    break_it(folder)
    with pytest.raises(DataError) as caught:
        read(tmp_path, dataset, **data)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "data", "break_it"),
    [
        ("idx", {"path": "../elsewhere"}, None),
        ("idx", {"path": "/etc"}, None),
        ("cifar-10", {"path": "a\0b"}, None),
        ("svmlight", {"features": 8, "path": ".", "held": "../x.svm"}, beside),
        ("svmlight", {"features": 8, "held": "../../x"}, None),
        ("speech-commands", {"words": ["yes", "../../no"]}, wav_beside),
    ],
)
def test_paths_that_lead_out_of_the_data_folder_are_refused_before_anything_is_read(
    tmp_path: Path, folder: Path, dataset: str, data: dict[str, Any], break_it: Any
) -> None:
    if break_it is not None:
        break_it(folder)
    with pytest.raises(SpecError, match=r"workload\.data\."):
        read(tmp_path, dataset, **data)


def test_a_link_out_of_the_data_folder_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "data"
    inside.mkdir()
    (inside / "set").symlink_to("/etc")
    with pytest.raises(DataError, match="leads out of the data folder"):
        read(inside, "idx")


def test_a_machine_without_a_data_folder_knows_the_shapes_and_reports_that_it_lacks_the_files() -> None:
    workload = load_workload(Workload(name="cnn", dataset="cifar-10", data={"path": "x"}))
    assert workload.layout.shapes["0.weight"] == (16, 3, 3, 3)
    with pytest.raises(DataError, match=r"no data folder \(--data-dir\)"):
        workload.replica()
