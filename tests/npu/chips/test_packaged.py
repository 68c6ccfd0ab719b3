"""Packages with the chip's own files inside: layers of the CPU around them, every bit as meant."""

from __future__ import annotations

import numpy as np
import pytest
from tests.npu.chips import mixed_networks
from tests.npu.chips.bm1684x import float_networks
from tests.npu.chips.k210.quantized_cnn import Cnn, random_cnn

import intaglio
from intaglio import dtypes, ops
from intaglio.analysis import vendor_performance
from intaglio.compiler import Compiled, trace
from intaglio.errors import BadInput, RunError
from intaglio.ir import Graph, Type, Value
from intaglio.npu.chips import sophgo_run
from intaglio.ops.registry import evaluate
from intaglio.package.vendor_files import ending_of

CHIPS = ("cv181x", "cv180x", "bm1684x")
NETWORKS = {"cpu_in_the_middle": 2, "two_readers": 2, "detector": 1, "attention": 3}  # with parts


def feeds_of(types, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for name, t in types.items():
        low, high = dtypes.limits(t.dtype)
        found[name] = rng.integers(low, high + 1, t.shape).astype(dtypes.numpy_of(t.dtype))
    return found


def meant(made: Compiled, files, feeds, monkeypatch) -> dict[str, np.ndarray]:
    """What the interpreter gives with the layers of each file in numpy instead of its commands."""
    graphs = {f.data: f.graph for f in files}

    def body(file, *inputs, **attrs):
        return tuple(evaluate(graphs[file.tobytes()], inputs))

    with monkeypatch.context() as patch:
        patch.setattr(sophgo_run.sophgo_run, "body", body)
        return intaglio.interpret(made.graph, feeds)


def compiled(graph: Graph, chip: str, monkeypatch, **options) -> tuple[Compiled, list]:
    """The package and its files with their meanings."""
    from intaglio.npu.chips import packaged

    files = []
    real = packaged.compile_programs

    def kept(graph, chip):
        files.extend(real(graph, chip))
        return files

    with monkeypatch.context() as patch:
        patch.setattr(packaged, "compile_programs", kept)
        return trace(graph, chip, npu_code="chip", **options), files


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("name", NETWORKS)
def test_sessions_give_the_bits_of_the_layers(name, chip, monkeypatch):
    made, files = compiled(getattr(mixed_networks, name)(), chip, monkeypatch)
    steps = [s.op for s in made.plan.steps]
    assert steps.count("sophgo.run") == len(files) == NETWORKS[name]
    assert set(steps) - {"sophgo.run"}
    feeds = feeds_of(made.package.inputs)
    expected = meant(made, files, feeds, monkeypatch)
    with intaglio.open(made.package) as session:
        got = session.run(feeds)
    for key, want in expected.items():
        np.testing.assert_array_equal(got[key], want)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_floats_are_files_too(precision, monkeypatch):
    graph = float_networks.small_cnn()
    (x,) = graph.inputs
    feeds = {x.name: np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)}
    exact = intaglio.interpret(graph, feeds)
    made, files = compiled(graph, "bm1684x", monkeypatch, precision=precision)
    assert len(files) == 1
    expected = meant(made, files, feeds, monkeypatch)
    with intaglio.open(made.package) as session:
        got = session.run(feeds)
    for key, want in expected.items():
        np.testing.assert_array_equal(got[key], want)
        near = 0.01 if precision == "f16" else 0.08
        np.testing.assert_allclose(got[key], exact[key], atol=near * np.abs(exact[key]).max())
    assert made.package.performance().npu_milliseconds > 0
    assert made.package.memory().total > 0


@pytest.mark.parametrize("seed", range(4))
def test_bm1684x_gives_the_bits_of_our_own_code(seed):
    """Its arithmetic is that of the integer ops, so both kinds of code agree in every bit."""
    graph = random_cnn(seed)
    feeds = feeds_of({v.name: v.type for v in graph.inputs})
    packages = [intaglio.compile(graph, "bm1684x", npu_code=code) for code in ("own", "chip")]
    own, chip = (intaglio.open(p).run(feeds) for p in packages)
    for key in own:
        np.testing.assert_array_equal(own[key], chip[key])


def test_maps_in_ddr_may_be_larger_than_local_memory():
    """A first convolution of a large picture: its rows are spread over channels in DDR."""
    net = Cnn(0, (1, 3, 640, 640))
    graph = net.graph(net.conv(net.input, 16, stride=2))
    feeds = feeds_of({v.name: v.type for v in graph.inputs})
    packages = [intaglio.compile(graph, "bm1684x", npu_code=code) for code in ("own", "chip")]
    own, chip = (intaglio.open(p).run(feeds)["y0"] for p in packages)
    np.testing.assert_array_equal(own, chip)


def test_a_saved_package_runs_again(tmp_path):
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), "cv181x", npu_code="chip")
    package.save(tmp_path / "m.itg")
    feeds = feeds_of(package.inputs)
    results = [intaglio.open(x).run(feeds)["y0"] for x in (package, tmp_path / "m.itg")]
    np.testing.assert_array_equal(*results)


def test_a_network_without_npu_layers_is_all_on_the_cpu():
    x = Value(Type("f32", (1, 4)), "x")
    graph = Graph([x], [ops.softmax(x, axis=1)], ["y"])
    package = intaglio.compile(graph, "cv181x", npu_code="chip")
    assert not package.vendor_files()
    assert intaglio.open(package).run({"x": np.zeros((1, 4), np.float32)})["y"].sum() == 1


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("k210", {"npu_code": "chip"}, r"for cv181x, cv180x, bm1684x, .*; the target is k210"),
        ("rk3588", {"npu_code": "chip"}, "the target is rk3588: leave it out"),
        ("cpu", {"npu_code": "chip"}, "is for chips with an NPU, the target is cpu"),
        ("cv181x", {"npu_code": "vendor"}, "npu_code is 'vendor'; it is one of auto, chip, own"),
        ("cv181x", {"npu_code": "chip", "by_layer": True}, "by_layer=True is for programs"),
        ("bm1688", {"npu_code": "chip", "cores": 2}, "cores=2 is for programs"),
        ("bm1688", {"npu_code": "own", "precision": "bf16"}, "write a file of the chip"),
    ],
)
def test_what_does_not_fit_is_refused(target, options, words):
    with pytest.raises(BadInput, match=words):
        intaglio.compile(mixed_networks.cpu_in_the_middle(), target, **options)


@pytest.mark.parametrize("chip", ["cv181x", "bm1684x"])
def test_speed_is_that_of_the_files_and_the_ops_between(chip):
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), chip)
    readers = vendor_performance.READERS
    files = [readers[ending_of(f)[1:]](f) for f in package.vendor_files().values()]
    found = package.performance()
    on_cpu = [r for r in found.layers if r.unit == "CPU" and r.op != "start"]
    assert len(files) > 1
    assert on_cpu
    wanted = sum(f.milliseconds for f in files) + sum(r.microseconds for r in on_cpu) / 1e3
    assert found.milliseconds == pytest.approx(wanted)
    modules = {f"npu{i}" for i in range(len(files))}
    assert {r.module for r in found.layers if r.unit == "NPU"} == modules
    convs = {r.name for r in found.layers if r.op == "conv"}
    assert convs
    assert not any("command" in name for name in convs)  # the network's names
    assert package.performance(clock=found.clock / 2).milliseconds > found.milliseconds
    with pytest.raises(BadInput, match=r"core_mask=.* is for programs of Intaglio's own"):
        package.performance(core_mask="0")


def test_memory_is_that_of_the_files():
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), "cv181x")
    report = package.memory()
    sizes = [m.weights + m.commands for m in report.modules]
    assert sizes == [len(f) for f in package.vendor_files().values()]


def test_files_of_the_chip_are_the_default():
    graph = mixed_networks.cpu_in_the_middle()
    assert intaglio.compile(graph, "cv180x").vendor_files()
    assert not intaglio.compile(graph, "cv180x", by_layer=True).vendor_files()
    assert not intaglio.compile(graph, "cv180x", npu_code="own").vendor_files()
    assert not intaglio.compile(graph, "k210").vendor_files()


def test_the_recipe_keeps_the_option():
    graph = mixed_networks.cpu_in_the_middle()
    package = intaglio.compile(graph, "cv181x", npu_code="chip")
    assert package.meta["recipe"]["npu_code"] == "chip"


def test_a_file_for_another_chip_is_refused():
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), "cv181x", npu_code="chip")
    (step,) = [s for s in package.plan.steps if s.op == "sophgo.run"][:1]
    feeds = [np.zeros(t.type.shape, np.int8) for t in step.inputs[1:]]
    with pytest.raises(BadInput, match="its file is for cv181x, the step for cv180x"):
        sophgo_run.sophgo_run.body(step.inputs[0].data, *feeds, **{**step.attrs, "chip": "cv180x"})


def test_damaged_files_are_refused_in_a_line(tmp_path):
    """Mutated files inside a package: an error of one line, or a run."""
    package = intaglio.compile(
        mixed_networks.cpu_in_the_middle(0, 8, 16), "cv181x", npu_code="chip"
    )
    file = next(iter(package.vendor_files().values()))
    feeds = feeds_of(package.inputs)
    raw, at = bytearray(package.bytes), package.bytes.find(file)
    assert at > 0
    rng, refused = np.random.default_rng(0), []
    for _ in range(40):
        damaged = bytearray(raw)
        for k in rng.integers(at, at + len(file), 3):
            damaged[k] ^= int(rng.integers(1, 256))
        (tmp_path / "m.itg").write_bytes(damaged)
        try:
            with intaglio.open(tmp_path / "m.itg", verify=False) as session:
                session.run(feeds)
        except (RunError, intaglio.BadFile, BadInput) as e:
            refused.append(str(e))
    assert refused
    assert not any("\n" in words for words in refused)


def test_encrypted_packages_and_those_with_a_weights_file_run(tmp_path):
    package = intaglio.compile(mixed_networks.two_readers(), "cv181x", npu_code="chip")
    feeds, key = feeds_of(package.inputs), bytes(range(32))
    expected = intaglio.open(package).run(feeds)["y0"]
    package.save(tmp_path / "w.itg", weights=tmp_path / "w.weights")
    np.testing.assert_array_equal(intaglio.open(tmp_path / "w.itg").run(feeds)["y0"], expected)
    pytest.importorskip("cryptography")
    package.save(tmp_path / "e.itg", encrypt="all", key=key)
    got = intaglio.open(tmp_path / "e.itg", key=key).run(feeds)["y0"]
    np.testing.assert_array_equal(got, expected)


def test_sessions_of_several_threads_share_a_file():
    package = intaglio.compile(mixed_networks.two_readers(), "cv181x", npu_code="chip")
    given = [feeds_of(package.inputs, seed) for seed in range(8)]
    with intaglio.open(package) as session:
        expected = [session.run(feeds) for feeds in given]
    with intaglio.SessionPool(package, 3) as pool:
        got = list(pool.map(given))
    for want, found in zip(expected, got, strict=True):
        np.testing.assert_array_equal(want["y0"], found["y0"])
