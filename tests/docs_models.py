"""Small models of other formats that docs/frontends.md calls the reader's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.frontends.tf_build import GraphDef, Kind, saved_model
from tests.frontends.tflite_build import G, T, models, op
from tests.frontends.torch_build import Object, exported, script

F32 = Kind("float32")
SCRIPT = """class Net(Module):
  __parameters__ = []
  def forward(self: __torch__.Net,
    {}: Tensor) -> Tensor:
    return torch.relu({})
"""
VAD = """class Net(Module):
  __parameters__ = []
  __buffers__ = ["h", ]
  h : Tensor
  def forward(self: __torch__.Net,
    x: Tensor,
    sr: int) -> Tensor:
    _0 = torch.add_(self.h, torch.div(x, sr))
    return torch.relu(self.h)
"""
BYTES = """class Net(Module):
  __parameters__ = []
  def forward(self: __torch__.Net,
    byte_input: Tensor) -> Tensor:
    return torch.to(byte_input, 6)
"""


def write_models(folder: Path) -> None:
    write_tflite(folder)
    write_torch(folder)
    write_tensorflow(folder)
    np.save(folder / "frames.npy", np.zeros((50, 1, 4), np.float32))


def write_tflite(folder: Path) -> None:
    """A keyword spotter that adds up its inputs, and an encoder with a signature."""
    kinds = [T((1, 4), name="input"), T(resource=True), T((1, 4)), T((1, 4), name="scores")]
    steps = [
        op("VAR_HANDLE", [], [1], "VarHandleOptions", Container="", SharedName="cell"),
        op("READ_VARIABLE", [1], [2], "ReadVariableOptions"),
        op("ADD", [0, 2], [3], "AddOptions"),
        op("ASSIGN_VARIABLE", [1, 3], [], "AssignVariableOptions"),
    ]
    (folder / "keywords.tflite").write_bytes(models([G(kinds, steps, [0], [3])]))
    image = [T((1, 224, 224, 3), name="input"), T((1, 224, 224, 3))]
    encode = {"encode": (0, {"input": 0}, {"features": 1})}
    (folder / "model.tflite").write_bytes(
        models([G(image, [op("RELU", [0], [1])], [0], [1])], encode)
    )


def write_torch(folder: Path) -> None:
    root, x = Object("__torch__.Net", {}), np.zeros((1, 3), np.float32)
    relu = {"__torch__": SCRIPT.format("x", "x")}
    (folder / "model.pt").write_bytes(script(relu, root, (), [x]))
    (folder / "scripted.pt").write_bytes(script(relu, root))
    nodes = [("torch.ops.aten.relu.default", ["x"], "y")]
    (folder / "model.pt2").write_bytes(exported({"x": ("s77", 3)}, {}, nodes, ["y"]))
    heard = Object("__torch__.Net", {"h": np.zeros((1, 512), np.float32)})
    (folder / "vad.jit").write_bytes(script({"__torch__": VAD}, heard))
    (folder / "words.pt").write_bytes(script({"__torch__": BYTES}, root))


def write_tensorflow(folder: Path) -> None:
    """A frozen graph of words, one of images with open dimensions, one with a training switch."""
    words, image, faces = GraphDef(), GraphDef(), GraphDef()
    for name, dims in (("Mfcc", (1, 49, 10)), ("image", (-1, -1, -1, 3))):
        made = words if name == "Mfcc" else image
        made.placeholder(name, dims)
        made.add("labels_softmax", "Softmax", name, T=F32)
    words.save(folder / "words.pb")
    image.save(folder / "frozen.pb")
    faces.placeholder("image", (1, 8, 8, 3))
    faces.placeholder("phase_train", (), "bool")
    faces.add("relu", "Relu", "image", T=F32)
    faces.add("embeddings", "SelectV2", "phase_train image relu", T=F32)
    faces.save(folder / "faces.pb")
    ports = {"x": ("image:0", "float32", (1, 8, 8, 3))}
    found = {"y": ("labels_softmax:0", "float32", (1, 8, 8, 3))}
    fixed = GraphDef()
    fixed.placeholder("image", (1, 8, 8, 3))
    fixed.add("labels_softmax", "Softmax", "image", T=F32)
    saved_model(folder / "saved_model", fixed, {"serving_default": (ports, found)})
