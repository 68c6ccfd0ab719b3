"""Runs in the vendors' Python 3.10: installs tpu_mlir, whose runtime simulates Sophgo's chips.

The wheel brings old copies of system libraries, which newer systems cannot start with, and asks for
PyTorch, which only its importer of PyTorch needs: the copies are removed, and a module with empty
classes stands for it.
"""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

WHEEL = "tpu_mlir==1.30.2"
NEEDED = (
    "numpy==1.24.3 onnx==1.14.1 onnxruntime==1.16.3 protobuf==3.20.3 scipy pandas "
    "opencv-python-headless<4.12 tqdm plotly graphviz pycocotools scikit-image psutil pyyaml "
    "flatbuffers filelock transformers<4.50 onnxruntime_extensions onnxsim==0.4.36"
)
TORCH = """class Tensor: ...


class autograd:
    class Function: ...


class nn:
    class Module: ...
"""
OLD_LIBRARIES = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libz.so.1", "liblzma.so.5")


def pip(*words):
    quiet = ("-q", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *words], check=True)


def main():
    pip(*NEEDED.split())
    pip("--no-deps", WHEEL)
    packages = Path(sysconfig.get_paths()["purelib"])
    for name in OLD_LIBRARIES:
        (packages / "tpu_mlir" / "lib" / "third_party" / name).unlink(missing_ok=True)
    if importlib.util.find_spec("torch") is None:
        (packages / "torch").mkdir()
        (packages / "torch" / "__init__.py").write_text(TORCH)


main()
