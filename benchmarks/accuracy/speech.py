"""Sounds: a denoiser of two nets that carry state from frame to frame, and a voice detector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy import Array, Feeds, Run, Score, Task, data, files

FRAME, HOP = 512, 128  # samples of a denoiser's frame, and from one to the next
WINDOW, BEFORE = 512, 64  # of the voice detector: new samples, and old ones in front of them
LOUD = 6.0  # decibels that speech stands above the noise


def _none(_: int) -> list[Feeds]:
    return []


# ---- DTLN ----------------------------------------------------------------------------------------
def denoise(
    noisy: Array, runs: dict[str, Run], seen: dict[str, list[Feeds]] | None = None
) -> Array:
    """The sound without its noise; `seen` gets what each net was given."""
    states = {name: np.zeros((1, 2, 128, 2), np.float32) for name in ("mask", "filter")}
    made = np.zeros(len(noisy) + FRAME, np.float32)

    def ask(name: str, feeds: Feeds) -> Array:
        if seen is not None:
            seen.setdefault(name, []).append(feeds)
        answer, states[name] = runs[name](feeds)
        return answer

    for at in range(0, len(noisy) - FRAME + 1, HOP):
        spectrum = np.fft.rfft(noisy[at : at + FRAME])
        size = np.abs(spectrum).astype(np.float32).reshape(1, 1, -1)
        mask = ask("mask", {"input_2": size, "input_3": states["mask"]})
        guess = np.fft.irfft(spectrum * mask.ravel()).astype(np.float32).reshape(1, 1, -1)
        block = ask("filter", {"input_4": guess, "input_5": states["filter"]})
        made[at : at + FRAME] += block.ravel()
    return made[: len(noisy)]


def decibels(clean: Array, made: Array) -> float:
    """By how much the sound stands above what differs from it; the ends do not count."""
    kept = slice(FRAME, len(clean) - FRAME)
    error = clean[kept] - made[kept]
    return float(10 * np.log10((clean[kept] ** 2).sum() / (error**2).sum()))


@dataclass(frozen=True)
class Denoiser(Task):
    """Two nets in a chain; each frame's state goes into the next."""

    def files(self) -> dict[str, Path]:
        return {
            "mask": files.onnx_model("dtln_model_1"),
            "filter": files.with_shapes(
                files.onnx_model("dtln_model_2"),
                {"input_4": (1, 1, FRAME), "input_5": (1, 2, 128, 2)},
            ),
        }

    def calibration_by_file(self, floats: dict[str, Run]) -> dict[str, Sequence[Feeds]]:
        seen: dict[str, list[Feeds]] = {}
        denoise(data.with_noise(data.words(0, 4), LOUD, 100), floats, seen)
        return {name: data.spread(given, self.calibrate) for name, given in seen.items()}

    def answers(self, runs: dict[str, Run], quick: bool) -> list[Any]:
        clean, seeds = data.sentence(), range(1 if quick else 3)
        return [[denoise(data.with_noise(clean, LOUD, seed), runs)] for seed in seeds]


def _snr(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    clean = data.sentence()
    parts = [decibels(clean, a[0]) for a in answers]
    noisy = [decibels(clean, data.with_noise(clean, LOUD, i)) for i in range(len(answers))]
    return Score(float(np.mean(parts)), more={"SNR before": float(np.mean(noisy))})


# ---- Silero --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Voice(Task):
    """The chance that somebody speaks, window by window, with a state that goes on."""

    def calibration_by_file(self, floats: dict[str, Run]) -> dict[str, Sequence[Feeds]]:
        seen: list[Feeds] = []
        _listen(data.words(0, 4), floats["model"], seen)
        return {"model": data.spread(seen, self.calibrate)}

    def answers(self, runs: dict[str, Run], quick: bool) -> list[Any]:
        sound = data.sentence() if quick else np.concatenate([data.sentence(), data.words(100, 12)])
        return [[_listen(sound, runs["model"])]]


def _listen(sound: Array, run: Run, seen: list[Feeds] | None = None) -> Array:
    state, chances = np.zeros((2, 1, 128), np.float32), []
    quiet_before = np.concatenate([np.zeros(BEFORE, np.float32), sound])
    for at in range(0, len(sound) - WINDOW + 1, WINDOW):
        feeds = {"input": quiet_before[None, at : at + BEFORE + WINDOW].copy(), "state": state}
        if seen is not None:
            seen.append(feeds)
        chance, state = run(feeds)
        chances.append(float(chance.ravel()[0]))
    return np.array(chances)


def _chances(answers: list[list[Array]], right: list[list[Array]]) -> Score:
    made, wanted = answers[0][0], right[0][0]
    same = float(((made > 0.5) == (wanted > 0.5)).mean())
    return Score(
        100 * (1 - float(np.abs(made - wanted).mean())), more={"same decision %": 100 * same}
    )


TASKS = {
    "dtln": Denoiser("SNR dB", Path, _none, _none, _snr, calibrate=64, dynamic=True),
    "silero_vad": Voice(
        "100 - abs(change of %)",
        partial(files.pypi, "silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx"),
        _none,
        _none,
        _chances,
        calibrate=64,
        agreement=True,
        dynamic=True,
    ),
}
