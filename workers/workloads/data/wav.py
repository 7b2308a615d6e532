"""Spoken words in the format of Speech Commands: a folder per word, WAV files of 1 s, 16 kHz, 16 bits, one channel.

A recording becomes a series of log spectra: consecutive frames, each with its energy in bands whose width grows with
frequency. ``testing_list.txt`` names the held-out recordings; without it, file names decide.
"""

import wave
import zlib
from pathlib import Path

import numpy as np

from controlplane.protocol.options import WavData
from workers.workloads.data.examples import Split, prepared
from workers.workloads.data.paths import DataError, resolve

RATE = 16_000
LIST = "testing_list.txt"
HELD_OF_TEN = 2


def read(folder: Path, options: WavData) -> Split:
    """Read every ``<word>/*.wav`` of the requested words.

    Raises:
        DataError: if a word has no folder or no recordings, or a file has another format.
    """
    if twice := [word for word in options.words if options.words.count(word) > 1]:
        raise DataError(f"workload.data.words: found {twice[0]!r} more than once, expected each word once")
    listed = _listed(folder / LIST)
    train: list[tuple[np.ndarray, int]] = []
    held: list[tuple[np.ndarray, int]] = []
    for label, word in enumerate(options.words):
        recordings = resolve(word, folder)
        files = sorted(recordings.glob("*.wav"))
        if not files:
            raise DataError(f"{recordings}: found no .wav, expected recordings of the word {word!r}")
        for file in files:
            series = spectra(_sound(file), options.frames, options.bands)
            (held if _is_held(file, listed) else train).append((series, label))
    if not train or not held:
        raise DataError(f"{folder}: found {len(train)} recordings to train on and {len(held)} to hold out, too few")
    return prepared(_arrays(train), _arrays(held))


def spectra(sound: np.ndarray, frames: int, bands: int) -> np.ndarray:
    """(frames, bands): the logarithm of the energy, in bands of equal width in log frequency."""
    length = len(sound) // frames
    cut = sound[: frames * length].reshape(frames, length) * np.hanning(length)
    power = np.abs(np.fft.rfft(cut)) ** 2
    edges = np.geomspace(1, power.shape[1], bands + 1)
    band = np.clip(np.searchsorted(edges, np.arange(power.shape[1]), side="right") - 1, 0, bands - 1)
    energy = np.zeros((frames, bands))
    for at in range(bands):
        energy[:, at] = power[:, band == at].sum(axis=1)
    return np.log(energy + 1e-6)


def _sound(path: Path) -> np.ndarray:
    """One second, cut or padded with silence, from -1 to 1."""
    try:
        with wave.open(str(path), "rb") as file:
            form = (file.getnchannels(), file.getsampwidth() * 8, file.getframerate())
            data = file.readframes(RATE)
    except (wave.Error, EOFError) as error:
        raise DataError(f"{path}: {str(error) or 'ends too early'}; expected a WAV file") from None
    if form != (1, 16, RATE):
        found = f"{form[0]} channels of {form[1]} bits at {form[2]} Hz"
        raise DataError(f"{path}: found {found}, expected 1 channel of 16 bits at {RATE} Hz")
    samples = np.frombuffer(data[: len(data) // 2 * 2], dtype="<i2").astype(np.float32) / 32768.0
    return np.pad(samples, (0, max(0, RATE - len(samples))))


def _listed(path: Path) -> set[str] | None:
    try:
        return set(path.read_text(encoding="utf-8").split()) if path.is_file() else None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {error}, expected names of recordings, one a line") from None


def _is_held(file: Path, listed: set[str] | None) -> bool:
    """Without a list, by the speaker, whose id precedes ``_nohash_`` in the file's name: no
    speaker is in both parts.
    """
    if listed is not None:
        return f"{file.parent.name}/{file.name}" in listed
    return zlib.crc32(file.stem.partition("_nohash_")[0].encode()) % 10 < HELD_OF_TEN


def _arrays(samples: list[tuple[np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.stack([series for series, _ in samples]), np.array([label for _, label in samples], dtype=np.int64)
