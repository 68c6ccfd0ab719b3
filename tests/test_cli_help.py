"""Help, names and completion of the command line: groups, width, near names, the shell."""

from __future__ import annotations

import re
from collections import Counter

import click
import onnx
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

import intaglio
from intaglio.cli import COMMANDS, cli, main
from intaglio.cli.help import INPUT_GROUPS, ModelCommand
from intaglio.errors import did_you_mean

WIDTH = 80


def shown(*args: str, width: int = WIDTH) -> str:
    done = CliRunner().invoke(
        cli, args, prog_name="intaglio", terminal_width=width, max_content_width=width
    )
    assert done.exit_code == 0, done.output
    return done.output


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


MODEL_COMMANDS = [n for n in COMMANDS if isinstance(command(n), ModelCommand)]


def test_without_a_command_the_help_is_shown(capsys):
    main([])
    told = capsys.readouterr()
    assert told.out.startswith("Usage: intaglio")
    assert "\nCommands:\n" in told.out
    assert not told.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns(name: str):
    texts = [shown(name, "--help")]
    if name in MODEL_COMMANDS:
        texts.append(shown(name, "--help-input"))
    assert not [line for text in texts for line in text.splitlines() if len(line) > WIDTH]


def test_sixteen_commands_read_models():
    assert len(MODEL_COMMANDS) == 16


@pytest.mark.parametrize("name", MODEL_COMMANDS)
def test_input_options_have_their_own_help(name: str):
    flags = [f for group in INPUT_GROUPS.values() for f in group]
    own, inputs = shown(name, "--help"), shown(name, "--help-input")
    assert len(re.findall("--help-input", own)) == 1
    listed = Counter(re.findall(r"^  (--[a-z-]+)", inputs, re.M))
    assert listed == Counter(flags)
    # only the line about --help-input names some of them, or the help of another option
    assert not set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", own, re.M)) & set(flags)


@pytest.mark.parametrize("name", MODEL_COMMANDS)
def test_groups_name_options_of_the_command(name: str):
    made = command(name)
    known = {o for p in made.params for o in p.opts}
    assert isinstance(made, ModelCommand)
    grouped = [f for flags in made.groups.values() for f in flags]
    assert set(grouped) <= known
    assert len(grouped) == len(set(grouped))


# ---- near names ----
@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["compil", "m.onnx"], "no command is called 'compil'; did you mean 'compile'?"),
        (["compile", "--targt", "x"], "no option is called '--targt'; did you mean '--target'?"),
        (["compile", "m.onnx", "--target", "rk358"], "no target is called 'rk358'; did you mean"),
        (["targets", "k23"], "no chip is called 'k23'; did you mean 'k230'"),
        (["targets", "abacus"], "known are bm1684"),
    ],
)
def test_a_misspelt_name_gets_the_nearest(args, hint, capsys):
    with pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert hint in told
    assert len(told.splitlines()) == 1


def test_near_names_ignore_case_and_are_listed():
    assert did_you_mean("CONV", ["conv", "pool"]) == "; did you mean 'conv'?"
    assert did_you_mean("ab", ["ac", "ad", "xyz"], 3, 0.5) == "; did you mean 'ad' or 'ac'?"
    assert did_you_mean("nothing", ["conv"]) == ""


def test_chip_names_are_known_in_capitals(capsys):
    main(["targets", "RK3588"])
    assert capsys.readouterr().out.startswith("rk3588: ")
    assert intaglio.compiler.targets.find("RK3588").name == "rk3588"
    assert intaglio.compiler.targets.find("CPU").name == "cpu"


def model(op: str, domain: str = "") -> onnx.ModelProto:
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 3])
    node = onnx.helper.make_node(op, ["x"], ["y"], "n", domain=domain)
    graph = onnx.helper.make_graph([node], "g", [given], [made])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my.ops", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_a_misspelt_operator_gets_the_nearest():
    with pytest.raises(intaglio.Unsupported, match=r"Sigmoyd .*; did you mean 'Sigmoid'"):
        intaglio.load(model("Sigmoyd"))
    for known in (model("Bernoulli"), model("Sigmoid2", "my.ops")):
        with pytest.raises(intaglio.Unsupported) as refused:
            intaglio.load(known)
        assert "did you mean" not in str(refused.value)


def test_a_misspelt_darknet_section_gets_the_nearest(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_text("[net]\nwidth=8\nheight=8\nchannels=3\n[convolutionl]\nfilters=1\n")
    (tmp_path / "net.weights").write_bytes(bytes(20))
    with pytest.raises(intaglio.Unsupported, match="did you mean 'convolutional'"):
        intaglio.load(path)


# ---- completion ----
def completed(*words: str) -> list[str]:
    complete = BashComplete(cli, {}, "intaglio", "_INTAGLIO_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_the_shell_completes_names_of_chips():
    assert completed("compile", "m.onnx", "--target", "rk35") == [
        "rk3562",
        "rk3566",
        "rk3568",
        "rk3576",
        "rk3588",
    ]
    assert "cpu" in completed("quantize", "m.onnx", "--target", "")
    assert "cpu" not in completed("perf", "m.itg", "--target", "")
    assert completed("perf", "m.onnx", "--chips", "rk3588,k21") == ["rk3588,k210"]
    assert "all" in completed("matmul", "--chip", "")
    assert completed("targets", "BM") == ["bm1684", "bm1684x", "bm1688"]


def test_the_shell_completes_commands():
    assert completed("in") == ["inspect"]
    assert completed("compile", "--he") == ["--help-input", "--help"]
