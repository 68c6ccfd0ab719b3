"""Programs as users of onnxruntime write them. Each takes the module, and a folder with models.

`test_ort.py` runs each with onnxruntime and with intaglio.ort, and compares what it returns.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from tests.frontends.onnx_text import model

CPU = ["CPUExecutionProvider"]
RAISED = {
    "InvalidArgument", "Fail", "NoSuchFile", "InvalidProtobuf", "InvalidGraph", "NotImplemented",
}  # fmt: skip
SNIPPETS: dict[str, Callable[[Any, Path], Any]] = {}


def snippet(function: Callable[[Any, Path], Any]) -> Callable[[Any, Path], Any]:
    SNIPPETS[function.__name__] = function
    return function


def rows(n: int) -> np.ndarray:
    return np.linspace(-1, 1, 4 * n, dtype=np.float32).reshape(n, 4)


def write_models(folder: Path) -> None:
    """linear.onnx: any batch; image.onnx: fixed; two.onnx; overridable.onnx; external.onnx."""
    r = np.random.default_rng(0)
    weights = numpy_helper.from_array(r.standard_normal((4, 3)).astype(np.float32), "w")
    linear = model("(float[batch,4] x) => (float[batch,3] y, float[batch,3] p) { }")
    linear.graph.initializer.append(weights)
    linear.graph.node.extend(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Softmax", ["y"], ["p"])]
    )
    helper.set_model_props(linear, {"author": "a user", "task": "demo"})
    linear.producer_name, linear.doc_string, linear.domain = "tests", "A linear layer.", "demo"
    linear.model_version, linear.graph.doc_string = 7, "one layer"
    onnx.save(linear, folder / "linear.onnx")
    external = onnx.ModelProto()
    external.CopyFrom(linear)
    onnx.save(
        external,
        folder / "external.onnx",
        save_as_external_data=True,
        location="external.bin",
        size_threshold=0,
    )
    kernel = r.standard_normal((8, 3, 3, 3)).astype(np.float32)
    image = model("(float[1,3,16,16] image) => (float[1,8,14,14] features) { }")
    image.graph.initializer.append(numpy_helper.from_array(kernel, "k"))
    image.graph.node.append(helper.make_node("Conv", ["image", "k"], ["c"], name="conv"))
    image.graph.node.append(helper.make_node("Relu", ["c"], ["features"], name="act"))
    onnx.save(image, folder / "image.onnx")
    two = model(
        "(float[n,m] a, int64[2] shape, bool[] flip) => (float[p,q] r, float[n,m] s) "
        "{ r = Reshape(a, shape) t = Neg(a) s = Where(flip, t, a) }"
    )
    onnx.save(two, folder / "two.onnx")
    shifted = model(
        "(float[batch,4] x, float[4] shift) => (float[batch,4] y) { y = Add(x, shift) }"
    )
    zeros = numpy_helper.from_array(np.zeros(4, np.float32), "shift")
    shifted.graph.initializer.append(zeros)
    onnx.save(shifted, folder / "overridable.onnx")


# ---- loading and running -----------------------------------------------------------------------
@snippet
def load_and_run(ort, folder):
    session = ort.InferenceSession(str(folder / "linear.onnx"), providers=CPU)
    return session.run(None, {"x": rows(2)})


@snippet
def names_from_get_inputs(ort, folder):
    session = ort.InferenceSession(folder / "image.onnx", providers=CPU)
    name, label = session.get_inputs()[0].name, session.get_outputs()[0].name
    picture = np.ones(session.get_inputs()[0].shape, np.float32)
    return name, label, session.run([label], {name: picture})[0]


@snippet
def inputs_and_outputs(ort, folder):
    found = []
    for file in ("linear.onnx", "image.onnx", "two.onnx", "overridable.onnx"):
        session = ort.InferenceSession(folder / file, providers=CPU)
        for args in (session.get_inputs(), session.get_outputs()):
            found += [(a.name, a.shape, a.type, str(a)) for a in args]
    return found


@snippet
def dynamic_batch(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    return [session.run(["y"], {"x": rows(n)})[0] for n in (1, 7, 2, 7, 1, 0, 3)]


@snippet
def a_list_of_outputs(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    feed = {"x": rows(2)}
    chosen = (["p"], ["p", "y"], ["y", "y"], [], ("y",))
    return [session.run(names, feed) for names in chosen]


@snippet
def from_bytes(ort, folder):
    data = (folder / "linear.onnx").read_bytes()
    return ort.InferenceSession(data, providers=CPU).run(None, {"x": rows(3)})


@snippet
def external_data(ort, folder):
    return ort.InferenceSession(folder / "external.onnx", providers=CPU).run(None, {"x": rows(3)})


@snippet
def lists_and_other_layouts(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    turned = np.asfortranarray(rows(3))
    strided = np.repeat(rows(3), 2, axis=0)[::2]
    return [session.run(["y"], {"x": x})[0] for x in (rows(3).tolist(), turned, strided)]


@snippet
def inputs_that_decide_shapes(ort, folder):
    session = ort.InferenceSession(folder / "two.onnx", providers=CPU)
    results = []
    for shape, flip in (((2, 12), True), ((24, 1), False), ((4, -1), True), ((2, 12), False)):
        feed = {"a": rows(6), "shape": np.array(shape), "flip": np.array(flip)}
        results.append(session.run(None, feed))
    return results


@snippet
def overridable_initializers(ort, folder):
    session = ort.InferenceSession(folder / "overridable.onnx", providers=CPU)
    names = [(a.name, a.shape, a.type) for a in session.get_overridable_initializers()]
    shift = np.arange(4, dtype=np.float32)
    feeds = ({"x": rows(2)}, {"x": rows(2), "shift": shift}, {"x": rows(1)})
    return names, [session.run(None, f) for f in feeds], len(session.get_inputs())


# ---- options -----------------------------------------------------------------------------------
@snippet
def session_options(ort, folder):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(folder / "linear.onnx", sess_options=options, providers=CPU)
    kept = session.get_session_options()
    entry = options.get_session_config_entry("session.intra_op.allow_spinning")
    return session.run(None, {"x": rows(2)}), kept.intra_op_num_threads, entry


@snippet
def optimization_levels(ort, folder):
    results = []
    for level in ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_LAYOUT", "ENABLE_ALL"):
        options = ort.SessionOptions()
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{level}")
        session = ort.InferenceSession(folder / "image.onnx", options, providers=CPU)
        results += session.run(None, {"image": np.ones((1, 3, 16, 16), np.float32)})
    return results


@snippet
def optimized_model_file(ort, folder):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(folder / f"{ort.__name__}.onnx")
    ort.InferenceSession(folder / "linear.onnx", options, providers=CPU)
    again = ort.InferenceSession(folder / f"{ort.__name__}.onnx", providers=CPU)
    return again.run(None, {"x": rows(5)})


@snippet
def free_dimension_override(ort, folder):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_free_dimension_override_by_name("unknown", 9)
    session = ort.InferenceSession(folder / "linear.onnx", options, providers=CPU)
    shapes = [a.shape for a in (*session.get_inputs(), *session.get_outputs())]
    return (
        shapes,
        session.run(None, {"x": rows(2)}),
        refused(lambda: session.run(None, {"x": rows(3)})),
    )


@snippet
def replaced_initializer(ort, folder):
    value = ort.OrtValue.ortvalue_from_numpy(np.full((4, 3), 0.5, np.float32))
    options = ort.SessionOptions()
    options.add_initializer("w", value)
    session = ort.InferenceSession(folder / "linear.onnx", options, providers=CPU)
    return session.run(None, {"x": rows(2)})


@snippet
def providers(ort, folder):
    assert "CPUExecutionProvider" in ort.get_available_providers()
    assert "CPUExecutionProvider" in ort.get_all_providers()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = ort.InferenceSession(
            folder / "linear.onnx",
            providers=["CUDAExecutionProvider", ("CPUExecutionProvider", {})],
        )
    before = session.get_providers()
    session.set_providers(CPU)
    result = session.run(None, {"x": rows(1)})
    return ort.get_device(), before, session.get_providers(), session.get_provider_options(), result


@snippet
def profiling(ort, folder):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / f"profile_{ort.__name__}")
    session = ort.InferenceSession(folder / "image.onnx", options, providers=CPU)
    result = session.run(None, {"image": np.ones((1, 3, 16, 16), np.float32)})
    started = session.get_profiling_start_time_ns() > 0
    file = session.end_profiling()
    events = json.loads(Path(file).read_text())
    kinds = sorted({e["cat"] for e in events} & {"Session", "Node"})
    timed = all(e["dur"] >= 0 and e["ph"] == "X" for e in events if e["cat"] == "Node")
    runs = sum(e["name"] == "model_run" for e in events)
    return result, started, Path(file).name.startswith("profile_"), kinds, timed, runs


@snippet
def metadata(ort, folder):
    meta = ort.InferenceSession(folder / "linear.onnx", providers=CPU).get_modelmeta()
    names = (
        "custom_metadata_map description domain graph_description graph_name producer_name version"
    )
    return {n: getattr(meta, n) for n in names.split()}


@snippet
def run_options(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    options = ort.RunOptions()
    options.log_severity_level = 4
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    result = session.run(None, {"x": rows(1)}, run_options=options)
    options.terminate = True
    return result, refused(lambda: session.run(None, {"x": rows(1)}, options))


# ---- several threads ---------------------------------------------------------------------------
@snippet
def threads(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        found[n] = [session.run(["y"], {"x": rows(m)})[0] for m in (n, n + 1, n)]

    started = [threading.Thread(target=work, args=(n,)) for n in range(1, 6)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return dict(sorted(found.items()))


@snippet
def asynchronous(ort, folder):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(folder / "linear.onnx", options, providers=CPU)
    done, answers = threading.Event(), []

    def callback(results, user_data, error):
        answers.append((results, user_data, bool(error)))
        done.set()

    for names in (["y"], ["no such output"]):
        done.clear()
        session.run_async(names, {"x": rows(2)}, callback, "mine")
        assert done.wait(60)
    return answers


# ---- values and bindings -----------------------------------------------------------------------
@snippet
def values(ort, folder):
    array = rows(2)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    array[0, 0] = 5  # the memory is shared
    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64, "cpu", 0)
    empty.update_inplace(np.arange(6, dtype=np.int64).reshape(2, 3))
    half = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(3, np.uint16), 16)
    facts = [
        (v.shape(), v.data_type(), v.element_type(), v.device_name(), v.is_tensor(), v.has_value())
        for v in (value, empty, half)
    ]
    others = [value.is_sparse_tensor(), value.is_tensor_sequence(), value.tensor_size_in_bytes()]
    return facts, others, value.numpy(), empty.numpy(), np.asarray(empty)


@snippet
def run_with_ort_values(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    feed = {"x": ort.OrtValue.ortvalue_from_numpy(rows(3))}
    named = session.run_with_ort_values(["y"], feed)
    every = session.run_with_ort_values(None, feed)
    return [v.numpy() for v in (*named, *every)], every[0].data_type()


@snippet
def io_binding(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    x, y = rows(3), np.empty((3, 3), np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_output("p")
    session.run_with_iobinding(binding)
    first = y.copy()
    x *= 2  # read in place by the next run
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    return first, y, binding.copy_outputs_to_cpu(), [v.shape() for v in binding.get_outputs()]


@snippet
def io_binding_with_values(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    x = ort.OrtValue.ortvalue_from_numpy(rows(2))
    y = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    same = binding.get_outputs()[0].data_ptr() == y.data_ptr()
    result = y.numpy().copy()
    binding.clear_binding_outputs()
    binding.clear_binding_inputs()
    address = x.data_ptr()
    binding.bind_input("x", "cpu", 0, np.float32, [2, 4], address)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    return (
        same,
        result,
        binding.copy_outputs_to_cpu(),
        refused(lambda: binding.bind_cpu_input("z", y)),
    )


# ---- mistakes ----------------------------------------------------------------------------------
def refused(call: Callable[[], Any]) -> list[str]:
    """Names of the exceptions of onnxruntime and Python that a call raises."""
    try:
        call()
    except Exception as e:
        kinds = [c.__name__ for c in type(e).__mro__]
        lines = str(e).count("\n") if "intaglio" in type(e).__module__ else 0
        if lines:
            return [f"a message of {lines + 1} lines"]
        python = [n for n in ("ValueError", "TypeError", "RuntimeError") if n in kinds]
        return python[:1] or [n for n in kinds if n in RAISED][:1]
    return []


@snippet
def wrong_inputs(ort, folder):
    session = ort.InferenceSession(folder / "linear.onnx", providers=CPU)
    x = rows(2)
    calls = {
        "missing": lambda: session.run(None, {}),
        "unknown": lambda: session.run(None, {"x": x, "z": x}),
        "rank": lambda: session.run(None, {"x": x[0]}),
        "extent": lambda: session.run(None, {"x": x[:, :3]}),
        "dtype": lambda: session.run(None, {"x": x.astype(np.float64)}),
        "output": lambda: session.run(["z"], {"x": x}),
        "names": lambda: session.run("y", {"x": x}),
        "list": lambda: session.run(None, {"x": [[1, 2], [3]]}),
    }
    return {name: refused(call) for name, call in calls.items()}


@snippet
def wrong_models(ort, folder):
    unknown = model("(float[2] x) => (float[2] y) { y = NoSuchOperator(x) }").SerializeToString()
    loose = model("(float[2] x) => (float[2] y) { y = Add(x, z) }").SerializeToString()
    misfit = model("(float[2,3] x, float[4,5] w) => (float[2,5] y) { y = MatMul(x, w) }")
    calls = {
        "no file": lambda: ort.InferenceSession(folder / "none.onnx", providers=CPU),
        "garbage": lambda: ort.InferenceSession(b"garbage", providers=CPU),
        "operator": lambda: ort.InferenceSession(unknown, providers=CPU),
        "name": lambda: ort.InferenceSession(loose, providers=CPU),
        "shapes": lambda: ort.InferenceSession(misfit.SerializeToString(), providers=CPU),
        "type": lambda: ort.InferenceSession(5, providers=CPU),
        "device": lambda: ort.OrtValue.ortvalue_from_numpy(rows(1), "cuda", 0),
    }
    return {name: refused(call) for name, call in calls.items()}
