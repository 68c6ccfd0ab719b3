"""Runs in an environment of its own: installs RKNN-Toolkit2 to compare with.

The wheel asks for PyTorch, which only its importer of PyTorch needs: a module whose every name is
an empty class stands for it.
"""

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path

WHEEL = "rknn-toolkit2==2.5.0"
NEEDED = (
    "numpy<2 onnx==1.17.0 onnxruntime protobuf<5 opencv-python-headless<4.11 scipy tqdm psutil "
    "ruamel.yaml fast-histogram setuptools<80"
)
TORCH = """import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "2.4.0"


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    body = {"__init__": lambda self, *a, **k: None, "__call__": lambda self, f=None, *a, **k: f}
    return type(name, (), body)


class Module(types.ModuleType):
    __getattr__ = staticmethod(__getattr__)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.startswith("torch."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        made = Module(spec.name)
        made.__path__ = []
        return made

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
"""


def pip(*words):
    quiet = ("-q", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *words], check=True)


def main():
    pip(*NEEDED.split())
    pip("--no-deps", WHEEL)
    if importlib.util.find_spec("torch") is None:
        package = Path(sysconfig.get_paths()["purelib"]) / "torch"
        package.mkdir()
        (package / "__init__.py").write_text(TORCH)


main()
