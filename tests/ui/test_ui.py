"""The live page: runs of dropped files, changes of precisions, and who may read it."""

import base64
import http.client
import io
import json
import socket

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from tests.small_networks import SIZE, classifier, samples

import intaglio
import intaglio.ui
import intaglio.vision
from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.ui.server import LivePage
from intaglio.ui.workbench import whole_layers


def png(width=24, height=20):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("ui") / "small.onnx"
    intaglio.save_onnx(classifier(1), path)
    np.savez(path.with_name("s.npz"), input=np.concatenate([s["input"] for s in samples(2)]))
    return path


@pytest.fixture(scope="module")
def page(model):
    how = {"std": 64, "mean": 128, "resize": "stretch"}
    data = str(model.with_name("s.npz"))
    with intaglio.ui.start(model, data=data, target="rk3588", port=0, prediction=how) as page:
        yield page


def ask(page, path, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    connection.request("GET" if body is None else "POST", path, body, headers)
    answer = connection.getresponse()
    data = answer.read().decode()
    connection.close()
    return answer.status, data, answer


def test_the_page_and_its_data(page):
    status, html, answer = ask(page, "/")
    assert status == 200
    assert '<section id="try">' in html
    assert '<section id="precision">' in html
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert json.loads(ask(page, "/api/report")[1])["target"] == "rk3588"
    assert ask(page, "/nothing")[0] == 404


def test_a_picture_runs_in_float_int8_and_the_simulator(page):
    status, data, _ = ask(page, "/api/run", png())
    found = json.loads(data)
    assert status == 200
    assert found["size"] == [24, 20]
    assert [r["engine"] for r in found["results"]] == ["float", "int8", "rk3588 simulator"]
    assert all(len(r["classes"]) == 4 for r in found["results"])
    assert all(r["cosine"] > 0.98 for r in found["results"][1:])
    assert [r["predicted"] for r in found["results"]] == [False, False, True]
    out = io.BytesIO()
    np.save(out, samples(1)[0]["input"])
    rows = json.loads(ask(page, "/api/run", out.getvalue())[1])["results"]
    assert rows[0]["outputs"][0]["shape"] == [1, 4]
    for bad in (b"x", b"\x93NUMPY", b"PK\x03\x04"):
        status, words, _ = ask(page, "/api/run", bad)
        assert status == 400
        assert "drop a" in words


def test_precisions_change_accuracy_and_time_and_are_exported(page, model, tmp_path):
    bench = page.bench
    before = bench.trials[0]
    layer = next(k for k, v in bench.scheme.layers.items() if v == "int8")
    status, data, _ = ask(page, "/api/precision", json.dumps({"layers": {layer: "f32"}}))
    trial = json.loads(data)
    assert status == 200
    assert trial["changes"] == {layer: "f32"}
    assert trial["milliseconds"] != before.milliseconds
    assert bench.scheme.layers[layer] == "f32"
    assert f"{layer} f32" in ask(page, "/")[1]
    status, words, _ = ask(page, "/scheme.yaml")
    (tmp_path / "s.yaml").write_text(words)
    again = intaglio.quant.Scheme.load(tmp_path / "s.yaml")
    assert again.layers[layer] == "f32"
    ask(page, "/api/precision", json.dumps({"layers": {}}))
    assert bench.trials[-1].cosine == before.cosine
    assert bench.trials[-1].file == before.file
    for body, words in (
        (b'{"layers": {"nope": "f32"}}', "no layer is called 'nope'"),
        (json.dumps({"layers": {layer: "f8"}}), "has no 'f8'; it has int8"),
        (b"[]", "send"),
    ):
        status, said, _ = ask(page, "/api/precision", body)
        assert status == 400
        assert words in said


def test_other_sites_are_refused(page):
    assert ask(page, "/", Host="example.org")[0] == 403
    assert ask(page, "/api/run", png(), Origin="http://example.org")[0] == 403
    same = f"http://127.0.0.1:{page.port}"
    assert ask(page, "/api/run", png(), Origin=same)[0] == 200
    assert ask(page, "/api/run", b"", **{"Content-Length": str(1 << 40)})[0] == 413


def test_beyond_loopback_a_token_is_needed(page):
    with_token = LivePage(page.bench, "0.0.0.0", 0)
    try:
        assert with_token.token in with_token.url
        assert ask(with_token, "/api/report")[0] == 403
        assert ask(with_token, "/api/report?token=x")[0] == 403
        status, _, answer = ask(with_token, f"/api/report?token={with_token.token}")
        assert status == 200
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert ask(with_token, "/api/report", Cookie=cookie.split(";")[0])[0] == 200
    finally:
        with_token._server.shutdown()
        with_token._server.server_close()


def test_a_package_is_served_beside_its_float_model(model, tmp_path):
    path = tmp_path / "m.itg"
    intaglio.compile(str(model)).save(path)
    package = intaglio.Package.load(path)
    bench = intaglio.ui.Workbench(path, model, package=package)
    assert list(bench.engines) == ["float", "package"]
    assert bench.run(png())["results"][1]["cosine"] > 0.9999
    bench.close()
    alone = intaglio.ui.Workbench(path, package=package)
    with pytest.raises(BadInput, match="float model"):
        alone.change({"x": "f32"})
    assert alone.run(png(SIZE, SIZE))["results"][0]["classes"]
    alone.close()


def test_mistakes_are_one_line(model, tmp_path):
    run = CliRunner().invoke
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for args, words in (
            ([str(model), "--port", str(port)], f"port {port} is in use; give another one"),
            ([str(model), "--port", "99999"], "0 to 65535"),
            ([str(model), "--host", "no.such.host.invalid", "--port", "0"], "cannot serve on"),
            (["none.itg", "--port", "0"], "none.itg: no such file"),
        ):
            with pytest.raises(BadInput, match=words):
                run(cli, ["ui", *args], catch_exceptions=False, standalone_mode=False)


def test_an_activation_changes_with_its_product(page):
    bench = page.bench
    base = bench.base
    pairs = [
        (n.outputs[0].name, reader.outputs[0].name)
        for n in base.float_graph.nodes() if n.op == "conv"
        for reader in n.outputs[0].uses if reader.op in ("relu", "clip")
    ]  # fmt: skip
    product, activation = next(p for p in pairs if set(p) <= set(base.scheme.layers))
    both = {product: "f32", activation: "f32"}
    assert whole_layers(base, {activation: "f32"}) == both
    assert whole_layers(base, {product: "f32"}) == both
    assert whole_layers(base, {product: "f32", activation: "int8"})[activation] == "int8"
    trial = bench.change({activation: "f32"})
    assert trial.changes == {activation: "f32"}
    assert trial.milliseconds != bench.trials[0].milliseconds
    bench.change({})


def test_masks_of_instances_come_with_their_colours(tmp_path):
    from tests.vision.test_masks import PICTURE
    from tests.vision.test_masks import model as with_masks

    with_masks("yolov8")[0].save(tmp_path / "masks.itg")
    package = intaglio.Package.load(tmp_path / "masks.itg")
    out = io.BytesIO()
    Image.fromarray(PICTURE).save(out, "PNG")
    with intaglio.ui.start("masks.itg", package=package, port=0) as page:
        found = json.loads(ask(page, "/api/run", out.getvalue())[1])["results"][0]
    image = Image.open(io.BytesIO(base64.b64decode(found["masks"].partition(",")[2])))
    assert image.size == (64, 32)
    with intaglio.open(package) as session:
        made = intaglio.vision.predict(session, PICTURE)
    pixels, first = np.asarray(image), made.detections[0]
    left, top, right, bottom = map(int, first.box)
    inside = pixels[top:bottom, left:right][first.mask]
    colour = ",".join(map(str, inside[0, :3]))
    assert found["detections"][0]["colour"] == f"rgb({colour})"
    assert (inside == inside[0]).all()
    assert 0 < inside[0, 3] < 255
    seen = np.zeros((32, 64), bool)
    for d in made.detections:
        left, top, right, bottom = intaglio.vision.masks.pixels(d.box, (32, 64))
        seen[top:bottom, left:right] |= d.mask
    assert ((pixels[..., 3] > 0) == seen).all()
