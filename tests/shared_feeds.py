"""Inputs for the models of ../shared/models: real data of their domain, with labels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from benchmarks.accuracy import data
from benchmarks.accuracy.tiny import KWS_SCALE, KWS_ZERO
from tests.shared_models import FACES, STREETS, photo, torch_photo

Inputs = list[np.ndarray]
SENTENCES = (b"How do I teach my dog to fetch?", b"Stocks fell sharply after the report today")
SEVERAL = 16  # images or sounds of a classifier
ENOUGH = 50  # steps of a model with state


@dataclass(frozen=True)
class Labelled:
    """Labelled samples, and the accuracy of the model's own runtime."""

    sample: Callable[[int], tuple[Inputs, int]]
    count: Callable[[], int]
    reference: float | None  # percent, from models/INDEX.md; None if measured on other data
    first: int = 0  # the model's class of label 0


@dataclass(frozen=True)
class Model:
    """One model: its feeds in the order of its inputs, and options that its file lacks.

    Feeds are real numbers, which are quantised for quantised inputs. Bytes are not changed.
    """

    feeds: Callable[[int], Inputs]
    load: dict[str, Any] = field(default_factory=dict)
    labelled: Labelled | None = None
    steps: int = 2
    rounds: bool = False  # dynamic quantisation: a last bit of a float can change a step
    apart: str = ""  # why results of its runtime differ


def _one(x: np.ndarray) -> Inputs:
    return [np.ascontiguousarray(x[None])]


def _planes(x: np.ndarray) -> Inputs:
    return _one(np.asarray(x, np.float32).transpose(2, 0, 1))


# ---- ImageNet ------------------------------------------------------------------------------------
Prepare = Callable[[np.ndarray], np.ndarray]


def as_bytes(x: np.ndarray) -> np.ndarray:
    return x.astype(np.uint8)


def centred(x: np.ndarray) -> np.ndarray:
    return (x / 127.5 - 1).astype(np.float32)


def halved(x: np.ndarray) -> np.ndarray:
    return ((x - 127) / 128).astype(np.float32)


def photos(size: int, prepare: Prepare, reference: float, first: int = 0) -> Model:
    """An ImageNet classifier with NHWC input."""

    def sample(i: int) -> tuple[Inputs, int]:
        file, label = data.imagenet()[i]
        return _one(prepare(data.crop(file, size))), label

    labelled = Labelled(sample, lambda: len(data.imagenet()), reference, first)
    return Model(lambda i: sample(i * 7)[0], {}, labelled, SEVERAL)


def _torch_sample(i: int) -> tuple[Inputs, int]:
    file, label = data.imagenet()[i]
    return _planes((data.crop(file, 224) / 255 - data.MEAN) / data.STD), label


# ---- small models --------------------------------------------------------------------------------
def rows(
    read: Callable[[], tuple[np.ndarray, np.ndarray]],
    prepare: Prepare,
    reference: float | None,
    count: int = 1 << 30,
    steps: int = SEVERAL,
    **load: Any,
) -> Model:
    """A classifier of rows of an array."""

    def sample(i: int) -> tuple[Inputs, int]:
        x, y = read()
        return _one(prepare(x[i]).astype(np.float32)), int(y[i])

    labelled = Labelled(sample, lambda: min(count, len(read()[1])), reference)
    return Model(lambda i: sample(i * 3)[0], load, labelled, steps)


def _pictures() -> tuple[np.ndarray, np.ndarray]:
    return data.tiny("ic01", (32, 32, 3), "uint8")


def _people() -> tuple[np.ndarray, np.ndarray]:
    return data.arrays("vww01_200")


def _words() -> tuple[np.ndarray, np.ndarray]:
    return data.tiny("kws01", (49, 10, 1), "int8")


def _of_words(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32) - KWS_ZERO) * KWS_SCALE


@functools.cache
def _coefficients(columns: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(data.shared("data/kws_mfcc_300.npz")) as file:
        return file[columns], file["y"]


def _sound(i: int) -> Inputs:
    return [data.arrays("ad01_31")[0][i][None, 1280 : 1280 + 640].astype(np.float32)]


def _spoken(columns: str) -> Model:
    """ARM's keyword spotter, from its MFCC coefficients."""
    shape = (1, *map(int, columns.removeprefix("mfcc_").split("x")))
    load = {"inputs": ["Mfcc"], "outputs": ["labels_softmax"], "shapes": {"Mfcc": shape}}
    return rows(lambda: _coefficients(columns), lambda x: x, None, **load)


def _luma(i: int) -> np.ndarray:
    return photo(i, 64, 64, STREETS).mean(-1, keepdims=True).astype(np.float32) / 255


def _written(x: np.ndarray) -> np.ndarray:
    return ((x / 255 - 0.1307) / 0.3081).astype(np.float32)[None]


def _faces(i: int, width: int, height: int) -> np.ndarray:
    return ((photo(i, width, height, FACES) - 127) / 128).astype(np.float32)


def _candidates(size: int) -> Model:
    """A stage of MTCNN, with transposed images as Matlab stores them."""
    return Model(lambda i: _planes((photo(i, size, size, FACES).transpose(1, 0, 2) - 127.5) / 128))


def _street(i: int) -> Inputs:
    return _planes(photo(i, 320, 320, STREETS) / 255)


_autoencoder = Model(_sound)
_word = rows(_words, _of_words, 90.0)
_digits = {"read": data.mnist, "prepare": lambda x: x / 255, "steps": ENOUGH}

MODELS: dict[str, Model] = {
    "tflite/ad01_fp32": _autoencoder,
    "tflite/ad01_int8": _autoencoder,
    "tflite/coco_ssd_mobilenet_v1_1.0_quant_2018_06_29": Model(
        lambda i: _one(as_bytes(photo(i, 300, 300, STREETS)))
    ),
    "tflite/deeplabv3": Model(lambda i: _one(centred(photo(i, 257, 257, STREETS)))),
    "tflite/deeplabv3_mnv2_dm05_pascal_quant": Model(
        lambda i: _one(as_bytes(photo(i, 513, 513, STREETS)))
    ),
    "tflite/efficientnet_lite0": photos(224, halved, 73.6),
    "tflite/kws_ref_model": rows(_words, _of_words, 90.2),
    "tflite/kws_ref_model_float32": _word,
    "tflite/mcunet-320kb-1mb_imagenet": replace(
        photos(176, centred, 62.3),
        apart="scales below zero, which XNNPACK declines: LiteRT's own kernels round twice there",
    ),
    "tflite/mobilenet_v1_0.25_224_float": photos(224, centred, 49.5, 1),
    "tflite/mobilenet_v1_0.25_224_quant": photos(224, centred, 47.9, 1),
    "tflite/mobilenet_v2_1.0_224_quant": photos(224, centred, 68.7, 1),
    "tflite/pretrainedResnet": rows(_pictures, lambda x: x, 85.5),
    "tflite/pretrainedResnet_quant": rows(_pictures, lambda x: x, 85.0),
    "tflite/trained_lstm": rows(**_digits, reference=92.05),
    "tflite/trained_lstm_int8": rows(**_digits, reference=91.9),
    "tflite/ultraface_RFB-320": Model(lambda i: _one(_faces(i, 320, 240))),
    "tflite/vww_96_float": rows(_people, lambda x: x / 255, None),
    "tflite/vww_96_int8": rows(_people, lambda x: x / 255, None),
    "torchscript/mobilenet_v2_fp32_traced": Model(
        lambda i: [torch_photo(i, 224)], {}, Labelled(_torch_sample, lambda: 1000, 69.1)
    ),
    "torchscript/reddit_bytelstm": Model(
        lambda i: [np.frombuffer(SENTENCES[i], np.uint8)[None, :30].copy()],
        {"shapes": {"byte_input": (1, 30)}, "dtypes": {"byte_input": "u8"}},
    ),
    "torchscript/vit4mnist_dynq": replace(
        rows(data.mnist, _written, 97.15, 2000, shapes={"img": (1, 1, 28, 28)}), rounds=True
    ),
    **{
        f"tf_pb/{n}": _spoken("mfcc_49x10")
        for n in ("CNN_S", "CRNN_S", "DS_CNN_S", "DS_CNN_L", "Basic_LSTM_S")
    },
    **{f"tf_pb/{n}": _spoken("mfcc_25x10") for n in ("DNN_S", "LSTM_S", "GRU_S")},
    "tf_pb/LapSRN_x2": Model(
        lambda i: _one(_luma(i)), {"shapes": {"IteratorGetNext": (1, 64, 64, 1)}}
    ),
    "tf_pb/segm_lite_v509_opt": Model(
        lambda i: _one(photo(i, 128, 128, FACES) / 255), {"shapes": {"input_1": (1, 128, 128, 3)}}
    ),
    "caffe/mtcnn/det1": _candidates(12),
    "caffe/mtcnn/det2": _candidates(24),
    "caffe/mtcnn/det3": _candidates(48),
    "caffe/ultraface/RFB-320": Model(lambda i: _planes(_faces(i, 320, 240))),
    "caffe/ultraface/slim-320": Model(lambda i: _planes(_faces(i, 320, 240))),
    "darknet/yolo-fastest-1.1": Model(_street),
    "darknet/yolo-fastest-1.1-xl": Model(_street),
}
