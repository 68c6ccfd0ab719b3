"""Packages in registries: what is pushed comes back, and nothing else does."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest
from click.testing import CliRunner
from tests.oci.registry_server import registry
from tests.serve.models import rows_model

import intaglio
from intaglio.cli import cli
from intaglio.errors import BadFile, BadInput
from intaglio.oci.reference import Reference

pytest.importorskip("oras", reason='registries need pip install "intaglio[oci]"')
from intaglio.oci.artifact import ARTIFACT, TITLE, pull, push


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    path = tmp_path_factory.mktemp("package") / "m.itg"
    rows_model((1, 2)).save(path)
    return path


@pytest.fixture
def server():
    with registry() as made:
        yield made


def test_what_is_pushed_comes_back(server, package, tmp_path):
    reference = f"{server.address}/models/m:3"
    more = tmp_path / "labels.txt"
    more.write_text("cat\ndog\n")
    done = push([package, more], reference, {"team": "vision"})
    found = pull(reference, tmp_path / "out")
    assert [p.name for p in found.files] == ["m.itg", "labels.txt"]
    assert found.files[0].read_bytes() == package.read_bytes()
    assert found.digest == done.digest
    assert sorted(os.listdir(tmp_path / "out")) == ["labels.txt", "m.itg"]
    manifest = json.loads(server.manifests["3"])
    assert manifest["artifactType"] == ARTIFACT
    assert manifest["annotations"] == {"team": "vision", TITLE: "m.itg"}
    config = json.loads(server.blobs[manifest["config"]["digest"]])
    assert config["inputs"] == {"x": "f32[1x3]"}
    by_digest = pull(f"{server.address}/models/m@{done.digest}", tmp_path / "again")
    assert by_digest.files[0].read_bytes() == package.read_bytes()


def test_the_same_files_have_the_same_digest_and_are_sent_once(server, package):
    first = push([package], f"{server.address}/m:1")
    uploads = server.uploads
    second = push([package], f"{server.address}/m:2")
    assert first.digest == second.digest
    assert (server.uploads, second.sent) == (uploads, 0)


@pytest.mark.parametrize(
    ("kind", "fault", "words"),
    [
        ("blobs", lambda d: d[:-1], "that are not those of sha256"),
        ("blobs", lambda d: d + b"x", "sends more than"),
        ("blobs", lambda d: bytes([d[0] ^ 1]) + d[1:], "that are not those of sha256"),
        ("manifests", lambda d: b"[1]", "no JSON object"),
        ("manifests", lambda d: b"[" * 5000, "no JSON object"),
        ("manifests", lambda d: b" " * (5 << 20), "sends more than"),
        ("manifests", lambda d: d.replace(ARTIFACT.encode(), b"x"), "no package of Intaglio but x"),
        ("manifests", lambda d: d.replace(b'"m.itg"', b'"../m.itg"'), "no plain file name"),
        ("manifests", lambda d: d.replace(b'"m.itg"', b'".bashrc"'), "no plain file name"),
        ("manifests", lambda d: d.replace(b"sha256:", b"sha256:/"), "no plain file name"),
        ("manifests", lambda d: d.replace(b'"layers":[', b'"layers":["x",'), "no plain file name"),
    ],
)
def test_faults_of_a_registry_leave_nothing(server, package, tmp_path, kind, fault, words):
    push([package], f"{server.address}/m:1")
    server.fault = lambda at, data: fault(data) if at == kind else data
    with pytest.raises(BadFile, match=words):
        pull(f"{server.address}/m:1", tmp_path / "out")
    assert not (tmp_path / "out").exists() or os.listdir(tmp_path / "out") == []


def test_another_manifest_than_the_digest_says_is_refused(server, package, tmp_path):
    digest = push([package], f"{server.address}/m:1").digest
    server.manifests[digest] = server.manifests["1"].replace(b"m.itg", b"n.itg")
    with pytest.raises(BadFile, match="sent another manifest"):
        pull(f"{server.address}/m@{digest}", tmp_path)


def test_a_broken_package_is_not_put_in_place(server, package, tmp_path):
    broken = tmp_path / "m.itg"
    push([package], f"{server.address}/m:1")
    broken.write_bytes(package.read_bytes()[:-64])
    with pytest.raises(BadInput, match="truncated"):
        push([broken], f"{server.address}/m:2")
    import hashlib

    data = broken.read_bytes()
    manifest = json.loads(server.manifests["1"])
    layer = manifest["layers"][0]
    layer["digest"], layer["size"] = f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)
    server.blobs[layer["digest"]] = data
    server.manifests["2"] = json.dumps(manifest).encode()
    with pytest.raises(BadFile, match="truncated"):
        pull(f"{server.address}/m:2", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


def test_registries_that_are_not_there_or_refuse(server, package, tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        start = time.monotonic()
        with pytest.raises(BadInput, match=r"registry 127\.0\.0\.1:\d+ fails: .*refused"):
            pull(f"127.0.0.1:{closed.getsockname()[1]}/m:1", tmp_path)
        assert time.monotonic() - start < 20
    with pytest.raises(BadInput, match=r"has no .*: status 404, MANIFEST_UNKNOWN"):
        pull(f"{server.address}/m:9", tmp_path)


def test_logins_of_docker_are_used(package, tmp_path, monkeypatch):
    login = base64.b64encode(b"me:secret").decode()
    with registry(token=f"Basic {login}") as made:
        monkeypatch.setenv("HOME", str(tmp_path))
        with pytest.raises(BadInput, match="registry"):
            push([package], f"{made.address}/m:1")
        (tmp_path / ".docker").mkdir()
        auths = {"auths": {made.address: {"auth": login}}}
        (tmp_path / ".docker/config.json").write_text(json.dumps(auths))
        push([package], f"{made.address}/m:1")
        assert pull(f"{made.address}/m:1", tmp_path / "out").files


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:5000/a/b:3", ("localhost:5000", "a/b", "3", None)),
        ("oci://ghcr.io/me/m", ("ghcr.io", "me/m", None, None)),
        (f"r.io/m@sha256:{'a' * 64}", ("r.io", "m", None, f"sha256:{'a' * 64}")),
        ("[::1]:5000/m:1", ("[::1]:5000", "m", "1", None)),
    ],
)
def test_references(text, parts):
    found = Reference.parse(text)
    assert (found.registry, found.repository, found.tag, found.digest) == parts
    assert found.local == (parts[0].startswith(("localhost", "[::1]")))


@pytest.mark.parametrize(
    "text",
    ["m", "models/m:1", "r.io/", "r.io/M", "r.io/../m", "r.io/m:", "r.io/m@sha256:1", "a b/c"],
)
def test_names_that_are_no_references(text):
    with pytest.raises(BadInput, match="is no name of an artifact; give registry/repository:tag"):
        Reference.parse(text)


def test_commands(server, package, tmp_path):
    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, list(words))
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    reference = f"{server.address}/models/m:1"
    digest = run("push", str(package), reference).split()[-1]
    assert digest.startswith("sha256:")
    assert run("pull", reference, "-o", str(tmp_path / "out")).split()[-1] == digest
    run("pull", reference, "--publish", str(tmp_path / "repo"), "--name", "rows")
    with intaglio.open(tmp_path / "repo/rows/1/model.itg") as session:
        assert list(session.inputs) == ["x"]
    found = json.loads(run("pull", reference, "-o", str(tmp_path / "out"), "--json"))
    assert found["digest"] == digest


REGISTRY = shutil.which("docker-registry") or shutil.which("registry")


@pytest.mark.slow
@pytest.mark.skipif(REGISTRY is None, reason="needs Debian's docker-registry")
def test_a_real_registry(package, tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    config = tmp_path / "config.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/blobs}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\nlog: {{level: error}}\n"
    )
    large = tmp_path / "weights.bin"
    large.write_bytes(os.urandom(1 << 20) * 80)  # above the limit of one request
    server = subprocess.Popen([REGISTRY, "serve", str(config)], stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=5)
                break
            except OSError:
                assert time.monotonic() < end
                time.sleep(0.1)
        reference = f"127.0.0.1:{port}/models/m:1"
        done = push([package, large], reference)
        assert done.sent > 80 << 20
        assert push([package, large], reference).sent == 0
        found = pull(f"127.0.0.1:{port}/models/m@{done.digest}", tmp_path / "out")
        assert found.files[1].read_bytes() == large.read_bytes()
        with pytest.raises(BadInput, match="status 404"):
            pull(f"127.0.0.1:{port}/models/m:2", tmp_path / "out")
    finally:
        server.terminate()
        server.wait(20)
