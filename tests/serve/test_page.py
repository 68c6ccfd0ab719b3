"""The live page in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading

import pytest
from tests import chromium
from tests.serve.models import rows, rows_model
from tests.serve.running import running, tensor

from intaglio.serve.page import PAGE
from intaglio.serve.publish import publish
from intaglio.serve.settings import ModelSettings

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]


def rendered(url: str, folder, *more: str) -> str:
    """The page's elements after its scripts have run for 4 s of the browser's own time."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=4000"]
    command += ["--window-size=1200,420", *more, "--dump-dom", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_page_shows_models_traffic_and_latency(tmp_path):
    for factor in (2, 3):
        rows_model((1, 2, 4), factor).save(tmp_path / f"{factor}.itg")
        publish(tmp_path / f"{factor}.itg", tmp_path / "repo", "digits")
    publish(tmp_path / "2.itg", tmp_path / "repo", "faces")
    broken = tmp_path / "repo" / "digits" / "3"
    broken.mkdir()
    (broken / "model.itg").write_bytes((tmp_path / "2.itg").read_bytes()[:-64])
    chosen = ModelSettings(versions="latest:2", threads=1)
    with running(tmp_path / "repo", model=chosen) as server:
        ended = threading.Event()

        def load() -> None:
            n = 0
            while not ended.wait(0.002):
                n += 1
                x = [tensor("x", rows(*range(n % 4 + 1)))]
                server.request("POST", "/v2/models/digits/infer", {"inputs": x})
            server.request("POST", "/v2/models/faces/infer", {"inputs": [tensor("y", rows(1))]})

        thread = threading.Thread(target=load)
        thread.start()
        try:
            found = rendered(f"http://{server.http}/", tmp_path)
        finally:
            ended.set()
            thread.join()
        cells = [
            re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", found)
        ]
        table = {(c[0], c[1]): c for c in cells if len(c) > 2}
        assert re.search(r'id="state"[^>]*>ready<', found)
        busy = table["digits", "2"]
        assert busy[2] == "READY"
        assert "<polyline" in busy[3]
        assert float(busy[5].replace(",", "")) > 10
        assert 0 < float(busy[-2]) <= float(busy[-1]) < 10_000
        assert table["digits", "1"][2] == "READY"
        assert table["digits", "3"][2] == "UNAVAILABLE"
        assert any(len(c) == 1 and "truncated or damaged" in c[0] for c in cells)
        assert table["faces", "1"][5] == "0"
        picture = tmp_path / "page.png"
        rendered(f"http://{server.http}/", tmp_path, f"--screenshot={picture}")
        assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("width", [1200, 800, 600])
def test_all_columns_fit_the_window(width, tmp_path):
    """A long name and a reason wrap; no column lies behind the edge, the latency least of all."""
    busy = {"recent": list(range(60)), "rate": 1234.5, "inferences": 1_234_567, "failed": 1234}
    busy |= {"waiting": 256, "batch": 12.34, "p50": 123.456, "p99": 1234.567}
    row = {"name": "a-model-with-quite-a-long-name.v2", "version": "12", "reason": ""}
    broken = row | {"state": "UNAVAILABLE", "reason": "/models/digits/3/model.itg: " + "why " * 40}
    figures = {"ready": True, "models": [row | busy | {"state": "READY"}, broken]}
    asked = 'await (await fetch("live.json")).json()'
    page = PAGE.decode()
    assert asked in page
    script = """
      await pause(200);
      const box = document.querySelector("div"), cells = [...document.querySelectorAll("td")];
      return {over: box.scrollWidth - box.clientWidth, wrong: window.wrong,
              p99: cells.find(c => c.textContent === "1234.567")?.getBoundingClientRect().right};
    """
    found = chromium.run_in(page.replace(asked, json.dumps(figures)), script, width)
    assert found["over"] <= 0, found
    assert 0 < found["p99"] <= width, found
    assert not found["wrong"]
