"""Models to edit, and onnxruntime, which runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
from tests.frontends.onnx_text import model

from intaglio.edit.editor import Editor


def classifier(batch: int | str = 1) -> onnx.ModelProto:
    """Convolutions, a residual connection, a Dropout and a Softmax; all nodes have names."""
    rng = np.random.default_rng(0)
    made = model(f"""(float[{batch},3,8,8] image) => (float[{batch},5] scores) {{
        c1 = Conv<pads = [1, 1, 1, 1]>(image, w1)
        r1 = Relu(c1)
        c2 = Conv<pads = [1, 1, 1, 1]>(r1, w2)
        s = Add(c2, r1)
        p = GlobalAveragePool(s)
        f = Flatten(p)
        d = Dropout(f)
        logits = Gemm(d, w3, b3)
        scores = Softmax<axis = 1>(logits)
    }}""")
    for name, shape in {"w1": (4, 3, 3, 3), "w2": (4, 4, 3, 3), "w3": (4, 5), "b3": (5,)}.items():
        weights = rng.normal(0, 0.5, shape).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    names = ["conv1", "relu1", "conv2", "add", "pool", "flatten", "dropout", "gemm", "softmax"]
    for node, name in zip(made.graph.node, names, strict=True):
        node.name = name
    return made


def image(batch: int = 1) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(batch, 3, 8, 8)).astype(np.float32)


def run(made: onnx.ModelProto | Editor | str, feeds: dict[str, Any]) -> dict[str, np.ndarray]:
    """The outputs by name, computed by onnxruntime."""
    proto = made.to_onnx() if isinstance(made, Editor) else made
    if not isinstance(proto, str):
        onnx.checker.check_model(proto, full_check=True)
        proto = proto.SerializeToString()
    session = onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def tensors(made: onnx.ModelProto, feeds: dict[str, Any], *names: str) -> list[np.ndarray]:
    """Inner tensors of a model, computed by onnxruntime."""
    copy = onnx.ModelProto()
    copy.CopyFrom(made)
    known = {o.name for o in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    session = onnxruntime.InferenceSession(
        copy.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(list(names), feeds))


def ops(made: Editor) -> list[str]:
    return [n.op_type for n in made.to_onnx().graph.node]


def close(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)
