"""Options in messages: keyword arguments for callers of the API, flags on the command line."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import intaglio
from intaglio.cli import cli, main
from intaglio.cli.flags import with_flags
from intaglio.errors import option

SOURCE = Path(intaglio.__file__).parent


@pytest.mark.parametrize(
    ("name", "value", "keyword", "flag"),
    [
        ("dims", {"batch": 1, "h": 8}, 'dims={"batch": 1, "h": 8}', "--dim batch=1 --dim h=8"),
        ("shapes", {"x": (1, 3)}, 'shapes={"x": (1, 3)}', "--shape x=1x3"),
        ("shapes", {"x": (5,)}, 'shapes={"x": (5,)}', "--shape x=5"),
        ("shapes", {"x": ...}, 'shapes={"x": ...}', "--shape x=..."),
        ("shapes", None, "shapes=", "--shape"),
        ("values", {"k": 0}, 'values={"k": 0}', "--value k=0"),
        ("outputs", ["a", "b"], 'outputs=["a", "b"]', "--output a --output b"),
        ("signature", "s", 'signature="s"', "--signature s"),
        ("state", True, "state=True", "--state"),
        ("weights", "net.weights", 'weights="net.weights"', "--blobs net.weights"),
        ("dtypes", {"x": "i64"}, 'dtypes={"x": "i64"}', "--shape x=SHAPE:i64"),
        ("mean", (1, 2.5, 3), "mean=(1, 2.5, 3)", "--mean 1,2.5,3"),
        ("input_type", "uint8", 'input_type="uint8"', "--input-type uint8"),
        ("level", 2, "level=2", "--level 2"),
        ("nothing", 2, "nothing=2", "nothing=2"),
    ],
)
def test_an_option_is_a_keyword_argument_and_becomes_a_flag(name, value, keyword, flag):
    assert option(name, value) == keyword
    command = cli.get_command(None, "compile")
    assert with_flags(f"give {keyword}, or not", command) == f"give {flag}, or not"


def test_weights_are_a_type_or_a_file():
    command = cli.get_command(None, "quantize")
    assert with_flags('give weights="int4"', command) == "give --weights int4"
    assert with_flags('give weights="FILE.weights"', command) == "give --blobs FILE.weights"
    assert (
        with_flags("dims= and weights=", cli.get_command(None, "targets")) == "dims= and weights="
    )


@pytest.mark.parametrize(
    ("api", "command_line"),
    [
        ("run it with intaglio.open", "run it with `intaglio run`"),
        ("use intaglio.quantize(model, samples)", "use `intaglio quantize`"),
        ('intaglio.compile("a.onnx").save("a.itg")', "`intaglio compile`"),
        ("intaglio.compile(m, inputs=(x,))", "intaglio.compile(m, inputs=(x,))"),
        ("see intaglio.compiler", "see intaglio.compiler"),
    ],
)
def test_a_function_becomes_a_command(api: str, command_line: str):
    assert with_flags(api, cli.get_command(None, "targets")) == command_line


@pytest.fixture
def open_model(tmp_path):
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,3] y) {y=Relu(x)}'
    path = tmp_path / "open.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def test_each_user_reads_the_words_of_their_interface(open_model, capsys):
    with pytest.raises(intaglio.BadInput, match=re.escape('add for example dims={"N": 1}')):
        intaglio.compile(open_model)
    with pytest.raises(SystemExit):
        main(["compile", str(open_model)])
    assert "add for example --dim N=1, or a range: --dim N=1..8\n" in capsys.readouterr().err
    graph = intaglio.load(open_model, dims={"N": 1})
    with pytest.raises(intaglio.BadInput, match=re.escape('shapes={"x": (2, 3)}')):
        intaglio.interpret(graph, {"x": np.zeros((2, 3), np.float32)})


def test_warnings_are_one_line_in_the_words_of_the_command_line(open_model, capsys, monkeypatch):
    def load(*args, **kwargs):
        warnings.warn(f"state starts anew; give {option('state', True)}", stacklevel=2)
        raise intaglio.BadInput("enough")

    monkeypatch.setattr(intaglio, "load", load)
    with pytest.raises(SystemExit):
        main(["compile", str(open_model)])
    told = capsys.readouterr().err.splitlines()
    assert told == ["intaglio: warning: state starts anew; give --state", "intaglio: enough"]


def test_the_library_names_no_flags():
    """Outside of cli/ and compat/, messages name options by `option`; comments are free."""
    flag = re.compile(r"[\"' (]--[a-z]")
    command = re.compile(r"`(intaglio|python) [^`\n]*`?|  # .*")
    found = [
        f"{p.relative_to(SOURCE)}:{i}: {line.strip()}"
        for p in sorted(SOURCE.rglob("*.py"))
        if p.relative_to(SOURCE).parts[0] not in ("cli", "compat")
        and p != SOURCE / "analysis" / "document.py"
        for i, line in enumerate(p.read_text().splitlines(), 1)
        if flag.search(command.sub("", line)) and "var(--" not in line and "{ --" not in line
    ]
    assert not found


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("compile M -o out.onnx", "a package is no .onnx file; give a name that ends in .itg"),
        ("compile M -o M", "a package is no .onnx file"),
        ("optimize M -o out.itg", "the optimised model is ONNX; give a name that ends in .onnx"),
        ("compile M --precision int8", "quantise the model first, with `intaglio quantize`"),
        ("compile M --shape 1x3", "`intaglio inspect` lists names"),
        ("compile M --dim batch=1", "leave --dim batch=1 out, or give whole shapes with --shape"),
        ("compile M --dim batch=0", "dimension 'batch' is 0; give a whole number of at least 1"),
        ("compile M.npy", "is a numpy array, not a model"),
        ("compile .", "is a folder"),
        ("quantize . --data m.onnx.npy", "is a folder"),
    ],
)
def test_mistakes_in_commands(command, words, tmp_path, monkeypatch, capsys):
    """One line in the words of the command line, and no file is written or lost."""
    monkeypatch.chdir(tmp_path)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1,3] x) => (float[1,3] y) {y=Relu(x)}'
    onnx.save(onnx.parser.parse_model(text), "m.onnx")
    np.save("m.onnx.npy", np.zeros(3))
    before = sorted((p.name, p.stat().st_mtime_ns) for p in tmp_path.iterdir())
    with pytest.raises(SystemExit) as e:
        main(["m.onnx" + w[1:] if w[0] == "M" else w for w in command.split()])
    assert e.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in tmp_path.iterdir())


@pytest.mark.parametrize(
    ("start", "what"), [(b"\xee\xaa\x55\xff", "a bmodel"), (b"CviModel", "a cvimodel")]
)
def test_files_of_chips_are_no_models(start, what, tmp_path, capsys):
    path = tmp_path / "compiled.bin"
    path.write_bytes(start + bytes(64))
    for command in ("memory", "bench", "optimize"):
        with pytest.raises(SystemExit) as e:
            main([command, str(path)])
        assert e.value.code == 2
        assert f"is {what}, a compiled file; `intaglio inspect`" in capsys.readouterr().err
