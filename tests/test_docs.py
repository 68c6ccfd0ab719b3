"""README and docs: links lead somewhere, commands and Python blocks run, shown outputs are true.

A page's blocks of `sh` and `python` run in order, in a folder of their own that holds what a fresh
clone has (examples/, csrc/, build/) and stand-ins for the reader's files (model.onnx, images/, see
`stand_ins`). Python blocks may use `intaglio`, `np` and `array`, an input of model.onnx. A block of
`text` behind one is its output, see `matches`. A block that cannot run here has on the line before
it `<!-- not run: reason -->`; of `<!-- not run: quoted from FILE -->` every line must be in FILE.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from tests.npu.chips.rockchip import rknn_samples

import intaglio
from intaglio.cli import cli
from intaglio.compat.conformance import facades

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / n for n in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


# ---- links ----
def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    heads = re.findall(r"^#+ +(.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).lower() for h in heads]
    return {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain}


@pytest.mark.parametrize("name", NAMES)
def test_links(name: str):
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{name}: {link} leads nowhere"
        if anchor and place.suffix == ".md" and "reference" not in place.parts:
            assert anchor in anchors(place), f"{name}: {link}: no such heading"


# ---- commands: they exist, with the options that are shown ----
def shown(page: Path) -> Iterator[str]:
    """The commands of a page: lines of code blocks, and code within the text."""
    text = page.read_text().replace("\\\n", " ")
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S):
        if language in ("", "sh", "bash", "console"):
            yield from (line.strip().removeprefix("$ ") for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


def words(line: str) -> list[str]:
    """A command in words: without its comment, its pipe and the brackets of optional parts."""
    line = re.split(r"\s#|\s\||&&|;\s", line.replace("...", " ").replace("…", " "))[0]
    line = re.sub(r"[\[\]]", " ", line)
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


VENDOR_OPTIONS = {n for c in facades()["sophgo"].commands for o in c.options for n in o.names}
VENDOR_OPTIONS.add("-o")


@pytest.mark.parametrize("name", NAMES)
def test_commands(name: str):
    for line in shown(ROOT / name):
        got = words(line)
        if len(got) < 2 or got[0] != "intaglio" or "|" in got[1]:
            continue
        command = cli.get_command(click.Context(cli), got[1]) or cli
        assert command is not cli or got[1].startswith("--"), f"{name}: {line}: no such command"
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        known |= VENDOR_OPTIONS if got[1] == "compat" else set()
        for word in got[2 if command is not cli else 1 :]:
            for option in re.findall(r"^(--?[a-zA-Z][\w-]*)", word):
                assert option in known, f"{name}: {line}: no option {option}"


def test_commands_are_found():
    found = [line for page in PAGES for line in shown(page)]
    assert sum(line.startswith("intaglio ") for line in found) > 80
    assert sum("python -m benchmarks" in line for line in found) > 10


@pytest.mark.parametrize("name", NAMES)
def test_modules(name: str):
    """`python -m some.module --option`: the module is there, and names the option."""
    for line in shown(ROOT / name):
        got = words(re.sub(r"^[A-Z_]+=\S+ ", "", line).removeprefix(".venv/bin/"))
        if got[:2] not in (["python", "-m"], ["python3", "-m"]):
            continue
        if got[2].split(".")[0] in ("pip", "pytest", "venv"):
            continue
        where = got[2].replace(".", "/")
        places = [
            ROOT / base / end
            for base in ("", "src")
            for end in (f"{where}.py", f"{where}/__main__.py", f"{where}/__init__.py")
        ]
        found = [p for p in places if p.exists()]
        assert found, f"{name}: {line}: no module {got[2]}"
        source = "".join(p.read_text() for p in found)
        vendors = VENDOR_OPTIONS if got[2] == "intaglio.compat" else set()
        options = (w.split("=")[0] for w in got[3:] if w.startswith("--"))
        for option in (o for o in options if o not in vendors):
            assert f'"{option}"' in source, f"{name}: {line}: no option {option}"


# ---- blocks: they run, and print what is shown ----
BLOCK = re.compile(
    r"(?P<mark><!-- not run: [^>]+ -->\n)?^(?P<indent> *)```(?P<language>\w+)[^\n]*\n"
    r"(?P<code>.*?)^(?P=indent)```$",
    re.M | re.S,
)


# Blocks that no test runs or compares, by page. They are few; a new one needs a good reason.
NOT_RUN = {
    "docs/how-to/zero-copy.md": 1,  # PyTorch is not installed; tests/test_zero_copy.py runs it
    "docs/boards.md": 1,  # a compiler and Python on a board
    "docs/adding-an-operator.md": 3,  # outlines of source, one quoted from its file
    "docs/compiler.md": 1,  # an outline of a rule
    "docs/custom-operators.md": 1,  # tables of the example, quoted; tests/custom builds it
    "docs/frontends.md": 1,  # a live module: needs PyTorch
    "docs/predict.md": 2,  # reports of networks that torch exports
    "docs/serving/oci.md": 1,  # needs a registry; tests/oci has one
    "docs/serving/scale-out.md": 1,  # starts a cluster; tests/serve/test_ray.py does
    "docs/serving/triton.md": 1,  # needs Triton's server; tests/serve/test_triton.py has it
    "docs/tutorials/c.md": 5,  # digits.c, quoted; tests/test_cmake.py builds the rest
}


def blocks(page: Path) -> list[dict[str, str]]:
    """The blocks of a page; `shows` says that one stands directly behind the block before it."""
    text, found, end = page.read_text(), [], 0
    for m in BLOCK.finditer(text):
        shows = "yes" if end and not text[end : m.start()].strip() else ""
        found.append({**m.groupdict(""), "code": textwrap.dedent(m["code"]), "shows": shows})
        end = m.end()
    return found


def test_blocks_that_are_not_run_are_few_and_have_reasons():
    marked = {n: sum(bool(b["mark"]) for b in blocks(ROOT / n)) for n in NAMES}
    assert {n: count for n, count in marked.items() if count} == NOT_RUN
    assert sum(NOT_RUN.values()) <= 15


def stand_ins(folder: Path) -> None:
    """The files that how-to pages call the reader's own: a small classifier and pictures for it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from PIL import Image

    rng = np.random.default_rng(0)
    shapes = {"w1": (32, 3, 3, 3), "w2": (64, 32, 3, 3), "w3": (64, 10), "b3": (10,)}
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.1, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    make = helper.make_node
    nodes = [
        make("Conv", ["input", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1], strides=[2, 2]),
        make("Relu", ["c1"], ["r1"], "relu1"),
        make("Conv", ["r1", "w2"], ["c2"], "conv2", pads=[1, 1, 1, 1], strides=[2, 2]),
        make("Relu", ["c2"], ["r2"], "relu2"),
        make("GlobalAveragePool", ["r2"], ["p"], "pool"),
        make("Flatten", ["p"], ["f"], "flatten"),
        make("Gemm", ["f", "w3", "b3"], ["logits"], "logits"),
        make("Softmax", ["logits"], ["scores"], "scores", axis=1),
    ]
    for name, batch, side in (
        ("any-size.onnx", "batch", ["height", "width"]),
        ("open.onnx", "batch", [64, 64]),
        ("model.onnx", 1, [64, 64]),
    ):
        ends = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            for n, s in (("input", [batch, 3, *side]), ("scores", [batch, 10]))
        ]
        graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(made, folder / name)
    for tensor in made.graph.initializer:  # another training of model.onnx
        other = numpy_helper.to_array(tensor) * np.float32(1.25)
        tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    onnx.save(made, folder / "retrained.onnx")
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "seq", 8])
    table = numpy_helper.from_array(rng.random((30, 8), np.float32), "table")
    look_up = helper.make_graph([make("Gather", ["table", "ids"], ["y"])], "t", [ids], [y], [table])
    opset = [helper.make_opsetid("", 17)]
    made = helper.make_model(look_up, opset_imports=opset, ir_version=8)
    onnx.save(made, folder / "text.onnx")
    unknown = [make("Fancy", ["input"], ["scores"], "fancy1", domain="my.ops")]
    graph = helper.make_graph(unknown, "fancy", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "fancy.onnx")
    (folder / "images").mkdir()
    for i in range(24):
        pixels = rng.integers(0, 256, (40, 48, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{i:02}.png")
    np.save(folder / "image.npy", rng.random((1, 3, 64, 64), np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantized = intaglio.quantize(folder / "model.onnx", folder / "images", std=255)
    intaglio.save_onnx(quantized, folder / "model.int8.onnx")
    intaglio.compile(folder / "model.onnx").save(folder / "model.itg")


@pytest.fixture(scope="module")
def readers_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    stand_ins(folder)
    return folder


def test_what_differs_does_not_match():
    """The comparison can fail: on words, on lines, on numbers beyond a tenth."""
    assert matches("a 1.00 ms\n...\nb", "a  1.05 ms\nx\ny\nb\n")
    assert not matches("a 1.00 ms", "a 1.20 ms")
    assert not matches("a 1.00 ms", "b 1.00 ms")
    assert not matches("a\nb", "a")
    assert not matches("3 steps", "4 steps")


@pytest.mark.parametrize("name", NAMES)
def test_unlabelled_blocks_show_no_commands(name: str):
    """A block without a language is not run: it has no command, and no output of one."""
    text = (ROOT / name).read_text()
    for block in re.findall(
        r"^```\n(.*?)^```", re.sub(r"^```\w.*?^```", "", text, flags=re.M | re.S), re.M | re.S
    ):
        for line in block.splitlines():
            assert not re.match(r"\$ |intaglio |(\.venv/bin/)?pip |make ", line), f"{name}: {line}"


@pytest.fixture
def no_custom_operators() -> Iterator[None]:
    from tests.custom.models import forget_all

    yield
    forget_all()


@pytest.mark.usefixtures("no_custom_operators")
@pytest.mark.parametrize("name", NAMES)
def test_blocks(
    name: str, readers_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(readers_files, tmp_path, dirs_exist_ok=True)
    if name == "docs/frontends.md":
        pytest.importorskip("tflite")
        from tests.docs_models import write_models

        write_models(tmp_path)
    if name == "docs/boards/rk3588.md":
        (tmp_path / "vendor.rknn").write_bytes(rknn_samples.tables())
    for part in ("examples", "csrc", "build"):
        (tmp_path / part).symlink_to(ROOT / part)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"intaglio": intaglio, "np": np, "array": np.load("image.npy")}
    printed = ""
    for block in blocks(ROOT / name):
        where = f"{name}:\n{block['code']}"
        if block["mark"]:
            printed = "..."
            check_quoted(block, where)
        elif block["language"] == "python":
            printed = run_python(block["code"], names, where)
        elif block["language"] == "sh":
            printed = "".join(run_line(line, where) for line in lines_of(block["code"]))
        elif block["language"] == "text" and block["shows"]:
            assert printed, f"{where}\nis shown, but nothing is printed"
            assert matches(block["code"], printed), f"{where}\nis not what is printed:\n{printed}"


def check_quoted(block: dict[str, str], where: str) -> None:
    for file in re.findall(r"quoted from (\S+)", block["mark"]):
        source = squeezed((ROOT / file).read_text())
        for line in block["code"].splitlines():
            assert squeezed(line) in source, f"{where}\n{line}: is not in {file}"


def squeezed(code: str) -> str:
    """Code without blanks, and without commas before a closing bracket, as formatters add them."""
    return re.sub(r",(?=[)\]])", "", "".join(code.split()))


def run_python(code: str, names: dict[str, Any], where: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, where, "exec"), names)
    return out.getvalue()


def lines_of(code: str) -> list[str]:
    return [line for line in code.replace("\\\n", " ").splitlines() if line.strip()]


def run_line(line: str, where: str) -> str:
    """What one command prints; commands that set up a machine are only checked."""
    got = shlex.split(line, comments=True)
    if not got:
        return ""
    got[0] = got[0].removeprefix(".venv/bin/")
    if got[0] == "intaglio":
        result = CliRunner().invoke(cli, got[1:], prog_name="intaglio")
        assert result.exit_code == 0, f"{where}\n{line}: {result.output}{result.exception!r}"
        return result.output
    if got[0] == "make":
        targets = re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), re.M)
        assert all(t in targets for t in got[1:] if "=" not in t), f"{where}\n{line}: no target"
        return "..."
    if got[:2] == ["pip", "install"]:
        check_extras(line, where)
        return "..."
    if got[0] in ("git", "cd", "source"):
        return "..."
    if got[:2] == ["python", "-m"] and got[2].split(".")[0] in ("benchmarks", "tests", "pytest"):
        return "..."  # test_modules checks them
    if got[0] == "python":
        got[0] = sys.executable
    done = subprocess.run(got, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{where}\n{line}: {done.stdout}{done.stderr}"
    return done.stdout


def check_extras(line: str, where: str) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extras in re.findall(r"\[([\w,]+)\]", line):
        assert set(extras.split(",")) <= set(known), f"{where}\n{line}: no such extra"


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is as shown: `...` is anything, fractions may differ by a tenth."""

    def tidy(text: str) -> str:
        return "\n".join(" ".join(line.split()) for line in text.strip().splitlines())

    if printed == "...":
        return True
    parts = re.split(r"( ?\.\.\. ?|(?<![\w.])\d+\.\d+)", tidy(expected))
    fractions = [float(p) for p in parts[1::2] if "..." not in p]
    pattern = "".join(
        re.escape(p) if i % 2 == 0 else ".*?" if "..." in p else r"(\d+\.\d+)"
        for i, p in enumerate(parts)
    )
    found = re.fullmatch(pattern, tidy(printed), re.S)
    return found is not None and np.allclose(
        [float(g) for g in found.groups()], fractions, rtol=0.1
    )


# ---- layout ----
LONGEST_LINE = 160
LONGEST_CELL = 140  # of a table: longer ones are sentences, which are read better as a paragraph


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_short(name: str):
    lines = (ROOT / name).read_text().splitlines()
    long = [i for i, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]
    assert not long, f"{name}: lines {long} have more than {LONGEST_LINE} characters"
    cells = [
        (i, cell)
        for i, line in enumerate(lines, 1)
        if line.startswith("|")
        for cell in re.split(r"(?<!\\)\|", line)
        if len(cell.strip()) > LONGEST_CELL
    ]
    assert not cells, f"{name}: table cells longer than {LONGEST_CELL}: {cells}"


# ---- the API reference ----
def test_api_reference_is_complete():
    page = (ROOT / "docs/reference/api.md").read_text()
    shown = re.findall(r"^::: intaglio\.(\w+)", page, re.M)
    missing = set(intaglio.__all__) - set(shown)
    assert not missing, f"docs/reference/api.md lacks {missing}"


# ---- the site ----
@pytest.mark.slow
def test_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path):
    """Strict: a broken link, anchor or docstring reference fails. Pages work without a network."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings_handlers.python")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]* src=\"https?:|<link[^>]* href=\"https?:"
    )
    assert not [p.name for p in pages if loaded.search(p.read_text())]
    assert "__index" in (tmp_path / "search/search_index.js").read_text()[:20]
