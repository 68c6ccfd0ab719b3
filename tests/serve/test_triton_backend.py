"""The Triton backend in a host of the tests' own, with AddressSanitizer if the compiler has it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.serve.models import rows_model

from intaglio import native

ROOT = Path(__file__).parents[2]
BUILD = Path(native.library()._name).parent
pytestmark = pytest.mark.skipif(
    not shutil.which("cc") or not (BUILD / "include").is_dir(), reason="needs cc and a build"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    program = tmp_path_factory.mktemp("triton") / "host"
    sources = [ROOT / "tests/serve/triton_host.c", *sorted((ROOT / "csrc/triton").glob("*.c"))]
    sources.append(ROOT / "csrc/compat/rknn_json.c")
    places = [f"-I{p}" for p in (ROOT / "csrc/include", ROOT / "csrc/triton", BUILD / "include")]
    link = [f"-L{BUILD}", f"-Wl,-rpath,{BUILD}", "-lintaglio", "-lm"]
    command = ["cc", "-std=gnu11", "-g", *places, *sources, "-o", program, *link]
    checked = [*command, "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    if subprocess.run(checked, capture_output=True).returncode:
        subprocess.run(command, check=True)
    return program


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    (folder / "1").mkdir()
    rows_model((1, 2, 4)).save(folder / "1/model.itg")
    return folder


def config(max_batch: int = 4, **changed) -> str:
    tensor = {"data_type": "TYPE_FP32", "dims": ["3"]}
    made = {"max_batch_size": max_batch, "input": [{"name": "x", **tensor}]}
    return json.dumps({**made, "output": [{"name": "y", **tensor}], **changed})


def run(host, model, text: str, *requests: str) -> list[str]:
    done = subprocess.run(
        [host, model, text, *requests],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ASAN_OPTIONS": "verify_asan_link_order=0"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_requests_are_joined_up_to_the_largest_batch(host, model):
    assert run(host, model, config(), "1", "1", "2", "3", "1") == [
        "request 0: 1", "request 1: 3", "request 2: 5 5", "run of 4 rows",
        "request 3: 7 7 7", "request 4: 9", "run of 4 rows",
    ]  # fmt: skip


@pytest.mark.parametrize("flags", ["", "s", "u"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_every_batch_from_pieces_and_odd_addresses(host, model, rows, flags):
    asked = [f"{rows}{flags}"]
    assert run(host, model, config(), *asked) == [
        f"request 0:{' 1' * rows}", f"run of {rows} rows"
    ]  # fmt: skip


def test_requests_that_fail_leave_the_others(host, model):
    said = run(host, model, config(), "1", "1w", "1g", "2s", "1t", "9", "0", "1n")
    assert [line for line in said if "error" not in line] == [
        "request 0: 1", "request 3: 7 7", "request 7: no output", "run of 4 rows"
    ]  # fmt: skip
    errors = [line for line in said if "error" in line]
    assert [line.split(":")[0] for line in errors] == [f"request {n}" for n in (1, 4, 5, 6)]
    assert "does not take" in errors[0]
    assert "no output 'nothing'" in errors[1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (config(8), "max_batch_size is 8; the package's largest batch is 4"),
        (config(output=[]), "config.pbtxt names 0 tensors as output; the package has 1"),
        (
            config(input=[{"name": "z", "data_type": "TYPE_FP32"}]),
            "names the input 'z'; the package has none of this name, its first is 'x'",
        ),
        (
            config(input=[{"name": "x", "data_type": "TYPE_INT8"}]),
            "says TYPE_INT8 for 'x'; the package has TYPE_FP32",
        ),
        (config(parameters={"threads": {"string_value": "many"}}), "threads is 'many'"),
        ("{", "the configuration cannot be read"),
    ],
)
def test_what_does_not_fit_is_not_loaded(host, model, text, words):
    said = run(host, model, text, "1")
    assert len(said) == 1
    assert words in said[0]


def test_broken_packages_are_not_loaded(host, model, tmp_path):
    (tmp_path / "1").mkdir()
    data = (model / "1/model.itg").read_bytes()
    for size in (0, 3, 64, len(data) // 2, len(data) - 1):
        (tmp_path / "1/model.itg").write_bytes(data[:size])
        assert run(host, tmp_path, config(), "1")[0].startswith("error")
    assert "no such file" in run(host, tmp_path / "none", config(), "1")[0].lower()


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_and_changed_configurations(host, model, seed):
    """Good requests are answered whatever comes with them; nothing trips the sanitizers."""
    rng = random.Random(seed)
    for _ in range(4):
        asked = [f"{rng.randint(0, 6)}{rng.choice(['', '', 's', 'u', 'w', 'g', 't', 'n'])}"
                 for _ in range(rng.randint(1, 12))]  # fmt: skip
        said = "\n".join(run(host, model, config(), *asked))
        for i, one in enumerate(asked):
            good = one[0] in "1234" and one[1:] in ("", "s", "u")
            answer = f"request {i}:{f' {2 * i + 1}' * int(one[0])}\n"
            assert not good or answer in f"{said}\n", (asked, said)
        text = bytearray(config().encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text[at : at + rng.randint(0, 3)] = rng.choice([b"", b"9", b"-", b'"', b"[", b"}"])
        run(host, model, text.decode(), "1")


def test_without_batches_each_request_runs_alone(host, tmp_path):
    (tmp_path / "1").mkdir()
    rows_model((2,)).save(tmp_path / "1/model.itg")
    said = run(host, tmp_path, config(0), "2", "2s", "1")
    alone = ["request 0: 1 1", "run of 1 rows", "request 1: 3 3", "run of 1 rows"]
    assert [line for line in said if "error" not in line] == alone
    assert [line for line in said if line.startswith("request 2: error 3 input 'x' has 12 bytes")]
