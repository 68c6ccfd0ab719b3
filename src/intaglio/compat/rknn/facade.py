"""What docs/compat-rknn.md lists."""

from __future__ import annotations

from dataclasses import fields

from intaglio.compat.conformance import Facade
from intaglio.compat.rknn.api import RKNN
from intaglio.compat.rknn.api.custom_op import get_node_attr
from intaglio.compat.rknn.api.rknn_convert import main as rknn_convert
from intaglio.compat.rknn.config import EFFECTS, Config
from intaglio.compat.rknn.device import API_VERSION
from intaglio.compat.rknn.utils import onnx_edit
from intaglio.compat.rknnlite.api import RKNNLite

HEAD = f"""\
Scripts for RKNN-Toolkit2 and RKNN-Toolkit-Lite2 run with `python -m intaglio.compat script.py`.
Methods, arguments and defaults are those of version {API_VERSION}, with the arguments that 2.5.0
added. [Migration](migrate-rknn.md) explains what changes for you.

- A mistake is one line that begins with `E`, and the return value is -1 (`None` of methods that
  return data). Nothing is raised.
- `export_rknn` writes a package of Intaglio under the name that you give.
- `init_runtime` opens the simulator of the chip, with or without `target`. Speed and memory are
  predicted."""


def facade() -> Facade:
    """Classes, functions and arguments of RKNN-Toolkit2."""
    options = {f.name: (repr(f.default), EFFECTS[f.name]) for f in fields(Config)}
    return Facade(
        "RKNN-Toolkit2: what is supported",
        HEAD,
        {"rknn.api.RKNN": RKNN, "rknnlite.api.RKNNLite": RKNNLite},
        {
            "rknn.api.custom_op.get_node_attr": get_node_attr,
            "rknn.utils.onnx_edit": onnx_edit,
            "rknn.api.rknn_convert": rknn_convert,
        },
        options,
        "RKNN.config",
    )
