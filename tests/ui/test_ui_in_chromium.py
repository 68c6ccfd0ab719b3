"""The live page in headless Chromium: a dropped picture, and a change of precision."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from tests.chromium import FRAME, dumped, needed
from tests.small_networks import classifier

import intaglio
import intaglio.ui
from intaglio.ui import server

pytestmark = [pytest.mark.slow, needed]
SCRIPT = (
    "<script>window.wrong = []; addEventListener('error', e => wrong.push(e.message));"
    + FRAME
    + """
addEventListener('load', async () => {
  const before = sessionStorage.getItem('before');
  if (!before) {
    const canvas = document.createElement('canvas'); canvas.width = 40; canvas.height = 30;
    canvas.getContext('2d').fillRect(0, 0, 20, 30);
    const blob = await new Promise(r => canvas.toBlob(r));
    await run(new File([blob], 'half.png'));
    const r = {wrong, said: said.textContent, engines: document.querySelectorAll('.engine').length,
      shown: $('results').textContent, picture: document.querySelectorAll('.seen img').length};
    await run(new File(['x'], 'bad.txt')); r.bad = said.textContent;
    const [layer, select] = [...selects][0];
    choose(layersOf.findIndex(l => l.includes(layer)));
    r.beside = document.querySelectorAll('#extra select').length;
    wish(layer, 'f32'); r.apply = apply.textContent; r.layer = layer;
    sessionStorage.setItem('before', JSON.stringify(r)); apply.click(); return;
  }
  const r = JSON.parse(before);
  r.trials = [...document.querySelectorAll('#trials tbody tr')].map(t => t.textContent);
  const pre = document.createElement('pre'); pre.id = 'found'; pre.textContent = JSON.stringify(r);
  document.body.append(pre);
});
</script>"""
)


def test_a_picture_and_a_change_of_precision(tmp_path, monkeypatch):
    path = tmp_path / "small.onnx"
    intaglio.save_onnx(classifier(1), path)
    real = server.live_page
    script = SCRIPT
    monkeypatch.setattr(
        server, "live_page", lambda bench: real(bench).replace("</body>", f"{script}</body>")
    )
    with intaglio.ui.start(path, target="rk3588", port=0) as page:
        html = dumped(page.url)
        layers = page.bench.scheme.layers
    found = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', html, re.S)[1]))
    assert found["wrong"] == []
    assert found["said"] == "half.png"
    assert found["engines"] == 3
    assert found["picture"] == 3
    assert "rk3588 simulator" in found["shown"]
    assert "cosine to float" in found["shown"]
    assert "no picture that can be read" in found["bad"]
    assert found["beside"] >= 1
    assert found["apply"] == "Apply 1"
    assert len(found["trials"]) == 2
    assert f"{found['layer']} f32" in found["trials"][1]
    assert layers[found["layer"]] == "f32"


def test_masks_lie_on_the_picture(monkeypatch):
    from tests.vision.test_masks import model

    real = server.live_page
    script = (
        "<script>"
        + FRAME
        + """addEventListener('load', async () => {
  const canvas = document.createElement('canvas'); canvas.width = 64; canvas.height = 32;
  const pen = canvas.getContext('2d'); pen.fillRect(0, 0, 64, 32);
  await run(new File([await new Promise(r => canvas.toBlob(r))], 'dark.png'));
  const picture = document.querySelector('.seen img'), masks = document.querySelector('.masks');
  await masks.decode(); pen.clearRect(0, 0, 64, 32); pen.drawImage(masks, 0, 0);
  const box = e => { const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; };
  const r = {said: said.textContent, at: [box(picture), box(masks)], alt: masks.alt,
    pixel: [...pen.getImageData(20, 20, 1, 1).data], none: pen.getImageData(1, 1, 1, 1).data[3],
    stroke: document.querySelector('.seen rect').getAttribute('stroke')};
  const pre = document.createElement('pre'); pre.id = 'found'; pre.textContent = JSON.stringify(r);
  document.body.append(pre);
});</script>"""
    )
    monkeypatch.setattr(
        server, "live_page", lambda bench: real(bench).replace("</body>", f"{script}</body>")
    )
    with intaglio.ui.start("masks.itg", package=model("yolov8")[0], port=0) as page:
        html = dumped(page.url)
    found = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', html, re.S)[1]))
    assert found["said"] == "dark.png"
    assert found["at"][0] == found["at"][1]
    assert found["alt"] == "masks of 2 objects"
    assert found["none"] == 0
    colour = [int(n) for n in re.findall(r"\d+", found["stroke"])]
    assert found["pixel"][:3] == pytest.approx(colour, abs=2)
    assert 0 < found["pixel"][3] < 255
