"""All chip files load and name the sources of their figures; invalid files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from intaglio.cli import cli
from intaglio.errors import BadFile, BadInput
from intaglio.targets import chip, chipfile

NAMES = chip.names()
GOOD = (chip.CHIPS / "rk3588.toml").read_text()


ASKED = [
    "rk3562",
    "rk3566",
    "rk3568",
    "rk3576",
    "rk3588",
    "rk2118",
    "rv1103",
    "rv1103b",
    "rv1106",
    "rv1106b",
    "rv1126b",
    "k210",
    "k230",
    "k510",
    "bm1684",
    "bm1684x",
    "bm1688",
    "cv186x",
    "cv180x",
    "cv181x",
    "sg2260",
]


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_all_chips_are_listed():
    assert sorted(ASKED) == sorted(NAMES)
    assert [n for n in NAMES if chip.load(n).estimate] == ["k510", "rk2118"]


@pytest.mark.parametrize("name", NAMES)
def test_a_chip_is_whole(name: str):
    c = chip.load(name)
    assert c.name == name
    assert set(c.c2) >= set(c.units["conv"].rate)
    assert c.c2["u8"] == c.c2["i8"]
    assert c.sram % c.banks == 0
    for unit in c.units.values():
        for t in c.units["conv"].rate if unit.name == "depthwise" else ():
            assert t in unit.rate, f"{unit.name} has no rate of {t}"
    for key, text in c.sources.items():
        assert len(text.removeprefix(chip.ESTIMATE)) > 5, f"{key} says nothing: {text}"
    assert 0.05 < c.tops() < 300


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_source(name: str):
    """Finds numbers in the file that the loader does not check for a source."""
    c = chip.load(name)
    told = {f"chip.{k}" for k in (*chipfile.FIGURES, "c2")} | {f"host.{k}" for k in chipfile.HOST}
    for unit in c.units.values():
        told |= {f"units.{unit.name}.rate"}
        told |= {f"units.{unit.name}.{k}" for k in ("in_atom", "out_atom") if getattr(unit, k)}
        told |= {f"units.{unit.name}.limits"} if unit.limits else set()
    told |= {f"timing.{k.partition('.')[0]}" for k in c.timing} | (
        {"chip.sparse"} if c.sparse else set()
    )
    told |= {"chip.packed"} if c.packed else set()
    told |= {k for k in c.sources if k.startswith("matmul.")} if c.matmul else set()
    assert told == set(c.sources)


def test_figures_that_the_sources_state():
    big, small = chip.load("rk3588"), chip.load("rk3566")
    assert (big.cores, big.sram, big.banks, big.shared) == (3, 12 * 32768, 12, 956 * 1024)
    assert big.tops() == pytest.approx(6.144)
    assert (big.c2["i8"], small.c2["i8"]) == (16, 8)
    assert big.units["conv"].out_atom["i8"] == 2 * small.units["conv"].out_atom["i8"] == 32
    assert chip.load("k230").sram == chip.load("k230").shared == 2 << 20
    lanes = chip.load("bm1684x")
    assert chip.load("rk3576").sparse == ("2:4 in", "2:4 out", "16:4")
    assert chip.load("rk3568").compatible == small.compatible != big.compatible
    assert (lanes.sram, lanes.c2["i8"], lanes.align) == (64 * 256 * 1024, 64, 64 * 64)


def test_a_users_file_is_a_chip(tmp_path: Path):
    path = write(tmp_path, GOOD.replace("cores = { value = 3", "cores = { value = 2"))
    c = chip.load(str(path))
    assert (c.name, c.cores) == ("mine", 2)
    assert chip.load(path) == c


def test_an_unknown_name_is_refused_with_a_list():
    with pytest.raises(BadInput, match=r"no chip is called 'rk9'; known are .*rk3588"):
        chip.load("rk9")


def test_limits_say_why():
    unit = chip.Unit("conv", {"i8": 1}, limits={"kernel": (1, 3), "stride": 2})
    assert unit.why_not("kernel", 3) is None
    assert unit.why_not("kernel", 2) == "kernel is 2; conv does 1 or 3"
    assert unit.why_not("stride", 4) == "stride is 4; conv does at most 2"
    assert unit.why_not("pad", 99) is None


BAD = [
    ('family = "rknpu"', 'family = "gpu"', "family: is 'gpu'; known are rknpu, kpu, sophgo"),
    ('family = "rknpu"\n', "", "family: is missing"),
    ('title = "Rockchip RK3588"', "title = 5", "title: is 5; a str is needed"),
    ('title = "Rockchip RK3588"', 'title = "x"\ncolour = 1', "colour: is not known here"),
    ("cores = {", "kernels = {", "chip.kernels: is not known here"),
    ("cores = { value = 3", "cores = { value = 0", "chip.cores.value: is 0; a whole number from 1"),
    ("cores = { value = 3", "cores = { value = 2.5", "chip.cores.value: is 2.5; a whole"),
    ("cores = { value = 3", "cores = { value = true", "chip.cores.value: is True; a whole"),
    ("cores = { value = 3", "cores = { count = 3", "chip.cores.count: is not known here"),
    ('cores = { value = 3, source = "trm" }', "cores = 3", "chip.cores: is 3; { value = "),
    (
        'value = 3, source = "trm"',
        "value = 3",
        "chip.cores: has no source; it needs either a source",
    ),
    ('value = 3, source = "trm"', 'source = "trm"', "chip.cores.value: is missing"),
    ('value = 3, source = "trm"', 'value = 3, source = ""', "chip.cores.source: is ''"),
    ('value = 3, source = "trm"', 'value = 3, source = "tim"', "begins with 'tim', which"),
    ('value = 3, source = "trm"', 'value = 3, source = "trm", estimate = "x"', "source and est"),
    ("clock = { value = 1000", "clock = { value = -1", "chip.clock.value: is -1; a number above 0"),
    ("align = { value = 128", "align = { value = 100", "chip.align.value: is 100; a power of two"),
    ("banks = { value = 12", "banks = { value = 7", "chip.banks: is 7, which does not divide"),
    ("c2 = { i8 = 16, i16 = 8, f16", "c2 = { i8 = 16, f16", "chip.c2.i16: is missing, but"),
    ("c2 = { i8 = 16", "c2 = { int8 = 16", "chip.c2.int8: is not known here"),
    ("moves = { value = 0.8", "moves = { value = 0", "host.moves.value: is 0; a number above 0"),
    ("functions = {", "magic = {", "host.magic: is not known here; known are cores, clock,"),
    ("[host]", "[timing.host]", "host: is missing"),
    ("[units.copy]", "[units.fly]", "units.fly: is not known here"),
    ("in_atom = { i8 = 32, i16", "in_atom = { i16", "units.conv.in_atom.u8: is missing"),
    ("kernel = 31", "kernle = 31", "units.conv.limits.kernle: is not known here"),
    ("kernel = 31", 'kernel = "x"', "units.conv.limits.kernel: is 'x'; a whole number or a list"),
    ("\n[sources]\n", "\n[sources]\nbad = 1\n", "sources.bad: is 1; an identifier with a text"),
    ('title = "', 'title = "\n', "is not valid TOML"),
    ('"i4,i4,i16"]', '"i4,i4"]', "matmul.types.value: is ['f16,f16,f16'"),
    ('"i4,i4,i16"]', '"i4,i4,i64"]', "matmul.c.i64: is missing"),
    ("i4 = [64, 32]", "i4 = [64]", "matmul.b.i4: is [64]; two powers of two"),
    ("segment = { value = 8192", "part = { value = 8192", "matmul.part: is not known here"),
    (
        "transposed = { value = true",
        "transposed = { value = 1",
        "matmul.transposed.value: is 1; true or false",
    ),
    ("packed = { value = true", "packed = { value = 1", "chip.packed.value: is 1;"),
]


@pytest.mark.parametrize(("old", "new", "said"), BAD, ids=lambda x: x[:30])
def test_a_bad_file_is_refused_in_one_line_that_names_the_key(tmp_path, old, new, said):
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(BadFile) as e:
        chip.load(path)
    assert str(e.value).startswith(f"{path}: ")
    assert said in str(e.value)
    assert "\n" not in str(e.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BadFile, match="cannot be read: No such file"):
        chip.load(tmp_path / "none.toml")


def said(*args: str) -> str:
    done = CliRunner().invoke(cli, ["targets", *args], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_the_command_lists_every_chip():
    lines = said().splitlines()
    assert {line.partition(" ")[0] for line in lines} >= {"cpu", *NAMES}
    (row,) = (line for line in lines if line.startswith("rk3588"))
    words = "rk3588 rknpu 3 6.14 384 KiB + 956 KiB 33.8 i8 i16 f16 bf16"
    assert " ".join(row.split()) == words
    rows = json.loads(said("--json"))
    assert [r["name"] for r in rows] == list(NAMES)
    assert all(r["tops"] > 0 and r["types"] for r in rows)


@pytest.mark.parametrize("name", NAMES)
def test_the_command_explains_every_chip(name: str):
    text, found = said(name), json.loads(said(name, "--json"))
    assert text.count("estimate: ") == len(found["estimates"])
    assert text.count("  from ") == len(found["sources"]) - len(found["estimates"])


def test_the_command_explains_a_chip_with_its_sources(tmp_path: Path):
    text = " ".join(said("rk3568").split())
    for words in (
        "rk3568: Rockchip RK3568, family rknpu",
        "compatible with rk3566",
        "SRAM of a core 262,144 bytes from rkt_ml.h",
        "estimate: 32 bit of LPDDR4",
        "kernel 31, stride 7, pad 15",
    ):
        assert words in text
    found = json.loads(said("rk3568", "--json"))
    assert found["units"]["conv"]["rate"]["i8"] == 512
    assert set(found["estimates"]) < set(found["sources"])
    assert "mine: Rockchip RK3588" in said(str(write(tmp_path, GOOD)))
    assert "avx2" in said("cpu")
