// The live page: drop a picture, change precisions.
const changes = new Map(), base = new Map();
const said = $('said'), drop = $('drop'), file = $('file');
async function send(path, body, type) {
  const answer = await fetch(path, {method: 'POST', body, headers: {'Content-Type': type}});
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
async function run(f) {
  if (!f) return;
  said.textContent = `running ${f.name} …`; said.className = '';
  try {
    const found = await send('/api/run', f, 'application/octet-stream');
    show(found, f); said.textContent = f.name;
  } catch (e) { said.textContent = e.message; said.className = 'error'; $('results').replaceChildren(); }
}
let shownPicture = null;
function show(found, f) {
  if (shownPicture) URL.revokeObjectURL(shownPicture);
  shownPicture = found.size ? URL.createObjectURL(f) : null;
  $('results').innerHTML = found.results.map(r => {
    const [w, h] = found.size ?? [1, 1], near = r.cosine == null ? '' : `, cosine to ${text(found.results[0].engine)} ${r.cosine.toFixed(5)}`;
    const boxes = (r.detections ?? []).map(d => {
      const [a, b, c, e] = d.box, size = Math.max(w, h) / 38, tag = `${d.name} ${(d.score * 100).toFixed(0)}%`;
      return `<rect x="${a}" y="${b}" width="${c - a}" height="${e - b}" fill="none" stroke="${d.colour}" stroke-width="${size / 7}"/>` +
        `<rect x="${a}" y="${Math.max(b - size, 0)}" width="${tag.length * size * .56}" height="${size}" fill="${d.colour}"/>` +
        `<text x="${a + size * .15}" y="${Math.max(b, size) - size * .22}" font-size="${size * .8}" style="fill:#fff">${text(tag)}</text>`;
    }).join('');
    const picture = shownPicture ? `<div class="seen"><img src="${shownPicture}" alt="the picture">` +
      (r.masks ? `<img class="masks" src="${r.masks}" alt="masks of ${(r.detections ?? []).length} objects">` : '') +
      `<svg viewBox="0 0 ${w} ${h}" aria-label="${(r.detections ?? []).length} boxes">${boxes}</svg></div>` : '';
    const classes = (r.classes ?? []).map(c => `<tr><td>${text(c.name)}</td><td class="n">${c.score.toFixed(4)}</td>` +
      `<td class="share"><i style="width:${Math.max(0, Math.min(1, c.score)) * 100}%"></i></td></tr>`).join('');
    const listed = (r.detections ?? []).map(d => `<tr><td>${text(d.name)}</td><td class="n">${d.score.toFixed(3)}</td>` +
      `<td class="n">${d.box.map(Math.round).join(', ')}</td></tr>`).join('');
    const outputs = (r.outputs ?? []).map(o => `<tr><td>${text(o.name)}</td><td>${o.shape.join('x')}</td>` +
      `<td class="n">${o.low?.toPrecision(4) ?? ''} to ${o.high?.toPrecision(4) ?? ''}</td></tr>`).join('');
    return `<figure class="engine"><figcaption><b>${text(r.engine)}</b> ${r.milliseconds == null ? '' : r.milliseconds.toFixed(2) + ' ms'}` +
      `${r.predicted ? ' (predicted)' : ''}${near}</figcaption>${picture}<table>${classes}${listed}${outputs}</table></figure>`;
  }).join('');
}
file.addEventListener('change', () => run(file.files[0]));
drop.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); file.click(); } });
for (const kind of ['dragover', 'dragleave', 'drop']) document.addEventListener(kind, e => {
  e.preventDefault(); drop.classList.toggle('over', kind === 'dragover');
  if (kind === 'drop') { run(e.dataTransfer.files[0]); drop.scrollIntoView({block: 'nearest'}); }
});

// ---- precisions ----
const selects = new Map([...document.querySelectorAll('.precision')].map(s => [s.dataset.layer, s]));
const apply = $('apply'), waiting = $('waiting');
function wish(layer, precision) {
  const s = selects.get(layer);
  if (!s) return;
  s.value = precision;
  s.classList.toggle('wished', s.value !== s.dataset.now);
  const wished = [...selects.values()].filter(x => x.value !== x.dataset.now).length;
  apply.disabled = !wished; apply.textContent = wished ? `Apply ${wished}` : 'Apply';
}
async function requantize(layers) {
  apply.disabled = true; waiting.className = 'soft';
  waiting.textContent = 'quantising, comparing, timing …';
  try {
    await send('/api/precision', JSON.stringify({layers}), 'application/json');
    location.hash = 'precision'; location.reload();
  } catch (e) { waiting.textContent = e.message; waiting.className = 'error'; apply.disabled = false; }
}
if (apply) {
  selects.forEach((s, layer) => s.addEventListener('change', () => wish(layer, s.value)));
  apply.onclick = () => requantize(Object.fromEntries([...selects].flatMap(([k, s]) =>
    s.value !== s.dataset.now || s.closest('tr').lastElementChild.textContent ? [[k, s.value]] : [])));
  $('reset').onclick = () => requantize({});
}
listeners.push(i => {  // the node's layers beside its data
  const place = $('extra');
  for (const layer of layersOf[i] ?? []) {
    const s = selects.get(layer);
    if (!s) continue;
    const mine = s.cloneNode(true);
    mine.value = s.value; mine.onchange = () => wish(layer, mine.value);
    const words = document.createElement('label');
    words.append(`precision${(layersOf[i].length > 1 ? ` of ${layer}` : '')} `, mine);
    place.append(words);
  }
});
