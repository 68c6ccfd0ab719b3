"""config.pbtxt, as `intaglio publish --triton` writes it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from tests.frontends.onnx_text import model
from tests.serve.models import rows_model

import intaglio
from intaglio.cli import cli
from intaglio.errors import Unsupported
from intaglio.serve.triton_config import MARK, config, write_config


def saved(folder, package):
    package.save(folder / "m.itg")
    return folder / "m.itg"


def test_batches_of_the_package(tmp_path):
    text = config(saved(tmp_path, rows_model((1, 2, 4))), "m", instances=3, threads=2)
    assert text.startswith(MARK)
    for line in (
        'name: "m"',
        'backend: "intaglio"',
        "max_batch_size: 4",
        'input [ { name: "x" data_type: TYPE_FP32 dims: [3] } ]',
        'output [ { name: "y" data_type: TYPE_FP32 dims: [3] } ]',
        "instance_group [ { kind: KIND_CPU count: 3 } ]",
        'parameters { key: "threads" value: { string_value: "2" } }',
        "dynamic_batching { preferred_batch_size: [1, 2, 4] }",
    ):
        assert line in text.splitlines()
    assert text.count("model_warmup") == 3


def test_open_dimensions_have_no_batch(tmp_path):
    proto = model("(int64[N,M] x) => (int64[N,M] y) { y = Add(x, x) }")
    package = intaglio.compile(proto, dims={"N": "1..4", "M": "1..8"})
    text = config(saved(tmp_path, package), "m")
    assert "max_batch_size: 0" in text
    assert "dims: [-1, -1]" in text
    assert "dynamic_batching" not in text
    assert "model_warmup" not in text


def test_command_keeps_what_the_user_wrote(tmp_path):
    package = saved(tmp_path, rows_model())
    arguments = ["publish", str(package), str(tmp_path / "repo"), "--triton"]
    for version in (1, 2):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        assert f"m/{version}/model.itg" in done.output
        assert "config.pbtxt: configuration for Triton's server" in done.output
    path = tmp_path / "repo/m/config.pbtxt"
    assert path.read_text().startswith(MARK)
    (path.parent / "labels.txt").write_text("a\nb\nc\n")
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    assert 'dims: [3] label_filename: "labels.txt" } ]' in path.read_text()
    path.write_text("# mine\n")
    assert "is not ours and was kept" in CliRunner().invoke(cli, arguments).output
    assert path.read_text() == "# mine\n"
    assert not write_config(package, path.parent, instances=1, threads=1)


def test_states_are_refused_before_anything_is_published(tmp_path):
    from tests.test_state import counting

    package = saved(tmp_path, intaglio.compile(counting()))
    with pytest.raises(Unsupported, match="has a state"):
        config(package, "m")
