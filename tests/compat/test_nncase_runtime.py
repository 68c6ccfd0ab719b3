"""Tensors and runs: Simulator, the runtime's Interpreter, and the module of CanMV's firmware."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compat import models, nncase_models

from intaglio.compat.nncase import (
    CompileOptions,
    Compiler,
    ImportOptions,
    MemoryRange,
    PTQTensorOptions,
    RuntimeTensor,
    Simulator,
    TensorDesc,
)
from intaglio.compat.nncase.refusals import NncaseError
from intaglio.compat.nncase_runtime import from_numpy, kpu, shrink_memory_pool
from intaglio.compat.nncaseruntime import Interpreter


@pytest.fixture(scope="module")
def kmodel(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The detector in floats: one input, two outputs."""
    path = tmp_path_factory.mktemp("nncase") / "m.onnx"
    models.detector(path)
    return _compiled(path)


def _compiled(path: Path, target: str = "cpu", data: np.ndarray | None = None) -> bytes:
    options = CompileOptions()
    options.target, options.dump_asm = target, False
    compiler = Compiler(options)
    compiler.import_onnx(path.read_bytes(), ImportOptions())
    if data is not None:
        ptq = PTQTensorOptions()
        ptq.set_tensor_data([[data]])
        compiler.use_ptq(ptq)
    compiler.compile()
    return compiler.gencode_tobytes()


def test_tensors():
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    tensor = RuntimeTensor.from_numpy(x)
    assert (tensor.dtype, tensor.shape) == (np.int16, [2, 3])
    x[:] = 0
    assert tensor.to_numpy()[1, 2] == 5
    other = RuntimeTensor.from_numpy(np.zeros((3, 2), np.int16))
    tensor.copy_to(other)
    assert other.to_numpy().ravel().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(NncaseError, match="does not fit"):
        tensor.copy_to(RuntimeTensor.from_numpy(np.zeros(6, np.float32)))
    with pytest.raises(RuntimeError, match=r"cv2\.imread"):
        RuntimeTensor.from_numpy(None)
    assert from_numpy(x).shape == [2, 3]
    assert (MemoryRange().location, TensorDesc().size) == (0, 0)


@pytest.mark.parametrize("kind", [Simulator, Interpreter])
def test_a_run(kind: type[Simulator], kmodel: bytes):
    sim = kind()
    sim.load_model(kmodel)
    assert (sim.inputs_size, sim.outputs_size) == (1, 2)
    first, second = (sim.get_output_desc(i) for i in range(2))
    assert (first.start, second.start, second.location) == (0, first.size, 1)
    assert (sim.get_input_desc(0).size, sim.get_input_shape(0)) == (3072, [1, 3, 16, 16])
    assert sim.get_output_shape(1) == [1, 18, 4, 4]
    assert not sim.get_output_tensor(0).to_numpy().any()
    x = RuntimeTensor.from_numpy(np.full((1, 3, 16, 16), 0.25, np.float32))
    sim.set_input_tensor(0, x)
    own = RuntimeTensor.from_numpy(np.zeros((1, 18, 8, 8), np.float32))
    sim.set_output_tensor(0, own)
    sim.run()
    assert own.to_numpy().any()
    assert sim.get_output_tensor(0) is own
    again = kind()
    again.load_model(bytearray(kmodel))
    x.copy_to(again.get_input_tensor(0))
    again.set_profiling(1)
    again.run()
    assert np.array_equal(again.get_output_tensor(0).to_numpy(), own.to_numpy())


def test_another_layout_is_a_warning(kmodel: bytes, capsys: pytest.CaptureFixture[str]):
    sim = Simulator()
    sim.load_model(kmodel)
    x = np.zeros((1, 16, 16, 3), np.float32)
    sim.set_input_tensor(0, RuntimeTensor.from_numpy(x[0].transpose(2, 0, 1)))
    assert capsys.readouterr().err == ""
    sim.set_input_tensor(0, RuntimeTensor.from_numpy(x))
    assert "transpose them if the layout differs" in capsys.readouterr().err


def test_the_kpu_of_the_firmware(kmodel: bytes, tmp_path: Path):
    (tmp_path / "m.kmodel").write_bytes(kmodel)
    one, two = kpu(), kpu()
    one.load_kmodel(str(tmp_path / "m.kmodel"))
    two.load_kmodel(kmodel)
    x = np.full((1, 3, 16, 16), 0.5, np.float32)
    for each in (one, two):
        each.set_input_tensor(0, from_numpy(x))
        each.run()
    assert one.outputs_size() == 2
    assert two.inputs_size() == 1
    for i in range(2):
        a, b = one.get_output_tensor(i), two.get_output_tensor(i)
        assert np.array_equal(a.to_numpy(), b.to_numpy())
    assert one.inputs_desc(0).size == one.get_input_tensor(0).to_numpy().nbytes
    one.set_output_tensor(0, from_numpy(np.zeros((1, 18, 8, 8), np.float32)))
    assert one.outputs_desc(0).dtype == np.float32
    assert one.get_input_desc(0) == one.inputs_desc(0)
    assert one.get_output_desc(1) == one.outputs_desc(1)
    with pytest.raises(NncaseError, match="there is no file 'nope"):
        one.load_kmodel("nope.kmodel")
    shrink_memory_pool()
    interpreter = Interpreter()
    interpreter.load_model(str(tmp_path / "m.kmodel"))
    assert interpreter.inputs_size == 1
    with pytest.raises(NncaseError, match="there is no file 'nope"):
        interpreter.load_model("nope.kmodel")


def test_damaged_kmodels_are_refused(kmodel: bytes, tmp_path: Path):
    nncase_models.plain(tmp_path / "m.onnx")
    data = np.random.default_rng(0).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)
    k210 = _compiled(tmp_path / "m.onnx", "k210", data)
    assert k210[:4] == b"LDMK"
    text = k210.replace(b'"scale":', b'"scale":-')
    text2 = k210.replace(b"[1,3,16,16]", b"[1,3,1,999]")
    assert text != k210 != text2
    for broken in (kmodel[:100], kmodel[:-64], k210[:300], text, text2, b"", b"RKNN" + kmodel[4:]):
        with pytest.raises(NncaseError, match=r"^load_model: [^\n]+$"):
            Simulator().load_model(broken)
