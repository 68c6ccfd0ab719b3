"""The op `sophgo.run`: types as numbers, and the C plug-in beside its simulator."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tests.npu.chips import mixed_networks
from tests.npu.chips.test_packaged import feeds_of

import intaglio
from intaglio import custom, native
from intaglio.custom import simulated
from intaglio.errors import BadInput, RunError
from intaglio.ir import Type
from intaglio.npu.chips import sophgo_run
from intaglio.npu.chips.bm1684x.variants import VARIANTS
from intaglio.npu.chips.cv18xx.commands import CHIPS

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "csrc" / "plugins" / "sophgo.c"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The plug-in, built with the warnings of the C compiler as errors."""
    path = tmp_path_factory.mktemp("plugin") / "libsophgo.so"
    includes = [f"-I{ROOT / 'csrc' / 'include'}", f"-I{ROOT / 'build' / 'include'}"]
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    try:
        command = ["cc", *flags, *includes, str(SOURCE), "-o", str(path), "-ldl", "-lpthread"]
        subprocess.run(command, check=True)
    except FileNotFoundError:
        pytest.skip("needs a C compiler")
    return path


@pytest.fixture
def plugged(library):
    """The plug-in, loaded; its libraries are on boards only."""
    assert custom.load(library) == ["sophgo.run"]
    yield
    custom.unregister("sophgo")


def test_types_are_numbers():
    types = [Type("i8", (1, 2, 3, 4)), Type("f32", (1, 1, 1, 9))]
    numbers = sophgo_run.numbers_of(types)
    assert len(numbers) == 10
    assert sophgo_run.types_of(numbers) == types


@pytest.mark.parametrize("numbers", [(), (1, 2, 3), (99, 1, 1, 1, 1), (1, 1, 0, 1, 1)])
def test_impossible_types_are_refused(numbers):
    with pytest.raises(BadInput, match=r"sophgo\.run: types has"):
        sophgo_run.types_of(numbers)


def test_too_many_results_are_refused():
    with pytest.raises(BadInput, match="17 results; at most 16"):
        sophgo_run.numbers_of([Type("i8", (1, 1, 1, 1))] * 17)


def test_every_chip_has_a_word():
    assert {*CHIPS, *VARIANTS} <= set(sophgo_run.CHIPS)


def test_the_plug_in_has_the_fields_of_its_simulator(library):
    text = "".join(re.findall(r'"([^"]*)"', SOURCE.read_text().split("#define CHIPS")[1][:400]))
    assert "|".join(sophgo_run.CHIPS) in text
    custom.load(library)
    try:
        assert native.ops()["sophgo.run"].declared == sophgo_run.FIELDS
        assert native.ops()["sophgo.run"].plugin.name == sophgo_run.PLUGIN
    finally:
        custom.unregister("sophgo")


def test_the_plug_in_takes_the_place_of_the_simulator(library):
    """Both run one package; what is open keeps what it was opened with."""
    package = intaglio.compile(mixed_networks.two_readers(), "cv181x", npu_code="chip")
    feeds = feeds_of(package.inputs)
    with intaglio.open(package) as on_pc:
        expected = on_pc.run(feeds)
        custom.load(library)
        try:
            with (
                intaglio.open(package) as on_board,
                pytest.raises(RunError, match=r"sophgo\.run 'npu0': cannot load .*libcviruntime"),
            ):
                on_board.run(feeds)
            assert (on_pc.run(feeds)["y0"] == expected["y0"]).all()
        finally:
            custom.unregister("sophgo")
    with intaglio.open(package) as again:
        assert (again.run(feeds)["y0"] == expected["y0"]).all()


@pytest.mark.usefixtures("plugged")
@pytest.mark.parametrize(("chip", "missing"), [("cv180x", "libcviruntime"), ("bm1688", "libbmlib")])
def test_a_missing_library_is_named(chip, missing):
    """Also compiled while the plug-in is loaded: it infers the same types."""
    package = intaglio.compile(mixed_networks.two_readers(), chip, npu_code="chip")
    words = rf"cannot load the vendor's library: {missing}\.so: .*; install it on the board, or"
    with intaglio.open(package) as session, pytest.raises(RunError, match=words):
        session.run(feeds_of(package.inputs))


def test_without_the_plug_in_c_says_which_to_load(tmp_path):
    program = ROOT / "build" / "example_run"
    if not program.exists():
        pytest.skip("the C examples are not built")
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), "cv181x", npu_code="chip")
    package.save(tmp_path / "m.itg")
    done = subprocess.run(
        [program, tmp_path / "m.itg"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs op 'sophgo.run' of plug-in 'sophgo' 1, which is not loaded" in done.stderr
    assert done.stderr.count("\n") == 1


def test_simulators_are_no_custom_operators():
    simulated.add()
    assert "sophgo.run" not in custom.registered()
