"""The client library in C, by examples/c/cascade.c and a program for split models."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.client.test_client import device, scores_answer, serving  # noqa: F401

from intaglio import native

ROOT = Path(__file__).parents[2]
BUILD = Path(native.library()._name).parent
LIBRARY = BUILD / "libintaglio_client.so"
pytestmark = pytest.mark.skipif(
    not shutil.which("cc") or not LIBRARY.exists(), reason="needs cc and libintaglio_client"
)
SPLIT = """
#include <intaglio_client.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
  itg_model *edge_model, *whole_model;
  itg_session *edge, *whole;
  itg_remote *server;
  itg_answer answer;
  itg_error e;
  (void)argc;
  float x[3] = {1, 2, 3};
  if (itg_model_open_file(argv[1], 0, &edge_model, &e)) return puts(e.words), 1;
  if (itg_model_open_file(argv[2], 0, &whole_model, &e)) return puts(e.words), 1;
  if (itg_session_create(edge_model, NULL, &edge, &e)) return puts(e.words), 1;
  if (itg_session_create(whole_model, NULL, &whole, &e)) return puts(e.words), 1;
  itg_remote_options o = {.host = "127.0.0.1", .port = (uint16_t)atoi(argv[3]), .model = "half",
                          .timeout_ms = 20000};
  if (itg_remote_create(&o, &server, &e)) return puts(e.words), 1;
  itg_set_input(edge, 0, x, sizeof x);
  itg_set_input(whole, 0, x, sizeof x);
  if (itg_split_run(edge_model, edge, whole, server, &answer))
    return puts(itg_remote_error(server)), 1;
  printf("%u %.2f %d\\n", answer.from_server, ((const float *)answer.output.data)[0],
         (int)answer.output.shape[1]);
  itg_remote_destroy(server);
  itg_session_destroy(edge);
  itg_session_destroy(whole);
  itg_model_close(edge_model);
  itg_model_close(whole_model);
  return 0;
}
"""


def compiled(source: Path, program: Path) -> Path:
    subprocess.run(
        [
            "cc",
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            ROOT / "csrc/include",
            "-I",
            ROOT / "csrc/client",
            "-I",
            BUILD / "include",
            source,
            "-o",
            program,
            f"-L{BUILD}",
            f"-Wl,-rpath,{BUILD}",
            "-lintaglio_client",
            "-lintaglio",
        ],
        check=True,
    )
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compiled(ROOT / "examples/c/cascade.c", tmp_path_factory.mktemp("c") / "cascade")


def run(program: Path, *arguments: object) -> str:
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=60
    )
    return done.stdout + done.stderr


@pytest.fixture
def files(tmp_path, device):  # noqa: F811
    device.save(tmp_path / "small.itg")
    for name, value in (("sure", 3), ("unsure", 0.01)):
        np.full((1, 3), value, np.float32).tofile(tmp_path / f"{name}.bin")
    return tmp_path


def test_cascade(program, files):
    with serving(lambda *_: scores_answer(0.1, 0.9)) as made:
        port = made.server_address[1]
        where = ("127.0.0.1", port, "large", 0.5)
        sure = run(program, files / "small.itg", files / "sure.bin", *where)
        unsure = run(program, files / "small.itg", files / "unsure.bin", *where, 3)
    assert sure.startswith("class 0 from the device, margin 1.000")
    assert unsure.count("class 1 from the server, margin 0.0") == 3
    assert len(made.seen) == 3
    assert {path for path, _, _ in made.seen} == {"/v2/models/large/infer"}
    assert made.seen[0][2]["inputs"][0]["shape"] == [1, 3]


def test_without_a_link(program, files):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        where = ("127.0.0.1", closed.getsockname()[1], "large", 0.5, 2)
        said = run(program, files / "small.itg", files / "unsure.bin", *where).splitlines()
    assert said[0].startswith("class 0 from the device")
    assert "does not answer" in said[0]
    assert "did not answer a moment ago" in said[1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((200, {}, b"not json"), "the answer has no outputs"),
        ((200, {"Inference-Header-Content-Length": "99"}, b"{}"), "wrong Inference-Header"),
        ((200, {"Content-Length": "99999999999"}, b""), "too large"),
        ((503, {}, b'{"error": "loading"}'), "answers 503: loading"),
        (
            (
                200,
                {"Inference-Header-Content-Length": "118"},
                b'{"outputs": [{"name": "s", "datatype": "FP32", "shape": [1000000000000, '
                b'4294967296], "parameters": {"binary_data_size": 8}}]}     12345678',
            ),
            "",
        ),
    ],
)
def test_an_answer_that_cannot_be_read_leaves_the_device(program, files, answer, words):
    with serving(lambda *_: answer) as made:
        where = ("127.0.0.1", made.server_address[1], "large", 0.5)
        said = run(program, files / "small.itg", files / "unsure.bin", *where)
    assert said.startswith("class 0 from the device"), said
    assert words in said


def test_a_silent_server_costs_the_timeout(program, files):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(4)
        where = ("127.0.0.1", silent.getsockname()[1], "large", 0.5, 1000)
        said = run(program, files / "small.itg", files / "unsure.bin", *where).splitlines()
    assert "no answer in time" in said[0]
    assert "a moment ago" in said[1]
    assert len(said) == 1000


def test_a_refused_request_is_an_error(program, files):
    with serving(lambda *_: (400, {}, b'{"error": "no input x"}')) as made:
        where = ("127.0.0.1", made.server_address[1], "large", 0.5)
        said = run(program, files / "small.itg", files / "unsure.bin", *where)
    assert "answers 400: no input x" in said
    assert "class" not in said


def test_split_model(tmp_path):
    from tests.frontends.onnx_text import model

    import intaglio

    edge = "(float[1,3] x) => (float[1,3] h) { h = Neg(x) }"
    whole = "(float[1,3] x) => (float[1,3] y) { h = Neg(x)  y = Relu(h) }"
    for name, text in (("edge", edge), ("whole", whole)):
        intaglio.compile(model(text)).save(tmp_path / f"{name}.itg")
    (tmp_path / "split.c").write_text(SPLIT)
    built = compiled(tmp_path / "split.c", tmp_path / "split")
    parts = (tmp_path / "edge.itg", tmp_path / "whole.itg")
    seen = []

    def reply(asked, binary):
        seen.append((asked["inputs"][0]["name"], np.frombuffer(binary, np.float32).tolist()))
        return scores_answer(7, 8, 9, name="y")

    with serving(reply) as made:
        assert run(built, *parts, made.server_address[1]) == "1 7.00 3\n"
    assert seen == [("h", [-1.0, -2.0, -3.0])]
    assert run(built, *parts, 9) == "0 0.00 3\n"
