"""Changed answers to the client library in C, which is built with AddressSanitizer and UBSan."""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.client.test_client import scores_answer

from intaglio import native

ROOT = Path(__file__).parents[2]
BUILD = Path(native.library()._name).parent
pytestmark = pytest.mark.skipif(
    not shutil.which("gcc") or not (BUILD / "include").is_dir(), reason="needs gcc and a build"
)
COUNT = 600


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("fuzz") / "fuzz_answers"
    sources = [Path(__file__).with_name("fuzz_answers.c"), ROOT / "csrc/compat/rknn_json.c"]
    sources += [ROOT / "csrc/client" / name for name in ("http.c", "remote.c")]
    places = [f"-I{p}" for p in (ROOT / "csrc/include", ROOT / "csrc/client", BUILD / "include")]
    flags = ["-std=gnu11", "-g", "-O1", "-fsanitize=address,undefined"]
    command = ["gcc", *flags, "-fno-sanitize-recover=undefined", *places, *sources, "-o", made]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this gcc has no sanitizers")
    return made


def answer(rng: random.Random) -> bytes:
    """A right answer, changed in up to three places."""
    status, headers, body = scores_answer(*[0.1] * rng.randint(1, 5))
    lines = {"Content-Length": str(len(body)), **headers}
    if rng.random() < 0.2:
        name = rng.choice(list(lines))
        lines[name] = rng.choice(["-1", "0", "9" * 18, "9" * 40, "1e3", "", str(len(body) + 1)])
    if rng.random() < 0.1:
        del lines[rng.choice(list(lines))]
    made = bytearray(f"HTTP/1.1 {status} OK\r\n".encode())
    made += "".join(f"{n}: {v}\r\n" for n, v in lines.items()).encode() + b"\r\n" + body
    for _ in range(rng.choice([0, 1, 2, 3])):
        at = rng.randrange(len(made) or 1)
        match rng.randrange(4):
            case 0:
                made[at : at + 1] = rng.randbytes(1)
            case 1:
                del made[at : at + rng.randint(1, 20)]
            case 2:
                made[at:at] = made[at : at + rng.randint(1, 20)] * rng.choice([1, 1, 500])
            case _:
                made = made[:at] or made
    return bytes(made)


@pytest.mark.parametrize("seed", range(2))
def test_changed_answers_are_answers_or_errors(program, seed):
    rng = random.Random(seed)
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve() -> None:
        for _ in range(COUNT):
            with listening.accept()[0] as s, suppress(OSError):  # the client may give up
                s.sendall(answer(rng))
                s.shutdown(socket.SHUT_WR)
                while s.recv(1 << 16):  # what is not read would reset the connection
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port = str(listening.getsockname()[1])
    done = subprocess.run([program, port, str(COUNT)], capture_output=True, text=True, timeout=300)
    listening.close()
    assert (done.returncode, done.stderr) == (0, "")
    taken = int(done.stdout.split()[0])
    assert COUNT // 10 < taken < COUNT
