// The graph of a report: drawn from places computed in Python; search, zoom, colours, keyboard.
const data = JSON.parse(document.getElementById('data').textContent);
const nodes = data.nodes, edges = data.edges;
const $ = id => document.getElementById(id);
const text = s => String(s).replace(/[&<>"]/g, c => ({'&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;'})[c]);
const stage = $('stage'), svg = $('net'), view = $('view'), side = $('side');
const readers = nodes.map(() => []), sources = nodes.map(() => []);
edges.forEach(e => { readers[e.from].push(e.to); sources[e.to].push(e.from); });
const short = (s, n) => s.length <= n ? s : '…' + s.slice(1 - n);
const bytes = n => n >= 2e6 ? (n / 1e6).toFixed(2) + ' MB' : n >= 2e3 ? (n / 1e3).toFixed(1) + ' kB' : n + ' B';

// ---- drawing ----
const path = p => {
  let d = `M${p[0][0]} ${p[0][1]}`;
  for (let i = 1; i < p.length; i++) {
    const [x0, y0] = p[i - 1], [x, y] = p[i], m = (y0 + y) / 2;
    d += x0 === x ? `L${x} ${y}` : `C${x0} ${m} ${x} ${m} ${x} ${y}`;
  }
  return d;
};
view.innerHTML = edges.map(e => `<path class="edge" d="${path(e.path)}"/>`).join('') + nodes.map((n, i) =>
  `<g class="node" data-i="${i}" transform="translate(${n.x - n.w / 2} ${n.y - 23})">` +
  `<rect width="${n.w}" height="46" rx="6"/><text class="op" x="9" y="19">${text(n.op)}</text>` +
  `<text class="who" x="9" y="36">${text(short(n.name, Math.floor((n.w - 14) / 6.3)))}</text></g>`).join('');
const shapes = [...view.querySelectorAll('.node')], lines = [...view.querySelectorAll('.edge')];

// ---- colours ----
const most = key => nodes.reduce((m, n) => Math.max(m, n[key] ?? 0), 1e-30);
const scales = {  // mode -> function of a node and the largest value
  error: (n, top) => n.error == null ? null : n.error / Math.max(top.error, 1e-3),
  time: (n, top) => n.us == null ? null : Math.sqrt(n.us / top.us),
  memory: (n, top) => n.live == null ? null : n.live / top.live,
  work: (n, top) => n.macs ? Math.sqrt(n.macs / top.macs) : null,
};
const legend = {
  error: 'error of the layer alone (else of the whole model), relative to the largest', time: 'time of the layer, relative to the slowest',
  memory: 'internal memory that is live in the step, relative to the peak', work: 'multiply-accumulates',
  kind: 'CPU steps are grey, NPU layers blue, layers with weights darker' };
function colour(mode) {
  const scale = scales[mode], top = {error: most('error'), us: most('us'), live: most('live'), macs: most('macs')};
  shapes.forEach((g, i) => {
    const n = nodes[i], rect = g.firstChild, s = scale ? scale(n, top) : null;
    rect.style.fill = scale
      ? s == null ? 'var(--panel)' : `color-mix(in oklab, var(--hot) ${(s * 100).toFixed(0)}%, var(--cold))`
      : n.unit === 'NPU' ? 'var(--npu)' : n.unit ? (n.macs ? 'var(--cpu2)' : 'var(--cpu)') : 'var(--panel)';
    g.classList.toggle('strong', !!scale && s > .55);
  });
  $('legend').textContent = legend[mode];
}
$('colour').addEventListener('change', e => colour(e.target.value));

// ---- zoom ----
const size = data.size, at = {k: 1, x: 0, y: 0};
function place() {
  view.setAttribute('transform', `translate(${at.x} ${at.y}) scale(${at.k})`);
  svg.classList.toggle('far', at.k < .45);
}
function zoom(f, cx = svg.clientWidth / 2, cy = svg.clientHeight / 2) {
  const k = Math.max(.02, Math.min(4, at.k * f));
  at.x = cx - (cx - at.x) * k / at.k; at.y = cy - (cy - at.y) * k / at.k; at.k = k; place();
}
function fit() {
  at.k = Math.min(svg.clientWidth / size[0], svg.clientHeight / size[1], 1) || 1;
  at.x = (svg.clientWidth - size[0] * at.k) / 2; at.y = (svg.clientHeight - size[1] * at.k) / 2; place();
}
function start() {  // the first layers at a size that can be read
  at.k = Math.max(Math.min(svg.clientWidth / size[0], 1), .6);
  const first = nodes[0] || {x: 0};
  at.x = svg.clientWidth / 2 - first.x * at.k; at.y = 0; place();
}
function centre(i) {
  if (at.k < .45) at.k = .8;
  const high = matchMedia('(max-width: 46em)').matches ? .22 : .5;  // on phones the node's data lie below
  at.x = svg.clientWidth / 2 - nodes[i].x * at.k; at.y = svg.clientHeight * high - nodes[i].y * at.k; place();
}
svg.addEventListener('wheel', e => {
  if (!e.ctrlKey && document.activeElement !== svg) return;  // the page scrolls
  e.preventDefault();
  const r = svg.getBoundingClientRect();
  zoom(Math.exp(-e.deltaY * (e.ctrlKey ? .01 : .0015)), e.clientX - r.left, e.clientY - r.top);
}, {passive: false});
const pointers = new Map();
let moved = 0;
svg.addEventListener('pointerdown', e => { pointers.set(e.pointerId, [e.clientX, e.clientY]); moved = 0; });
svg.addEventListener('pointermove', e => {
  const old = pointers.get(e.pointerId);
  if (!old) return;
  const now = [e.clientX, e.clientY], other = [...pointers].find(([id]) => id !== e.pointerId);
  moved += Math.abs(now[0] - old[0]) + Math.abs(now[1] - old[1]);
  if (moved > 4 && !svg.hasPointerCapture(e.pointerId)) svg.setPointerCapture(e.pointerId);
  if (other) {
    const [x, y] = other[1], far = p => Math.hypot(p[0] - x, p[1] - y), r = svg.getBoundingClientRect();
    zoom(far(now) / Math.max(far(old), 1), (x + now[0]) / 2 - r.left, (y + now[1]) / 2 - r.top);
  } else { at.x += now[0] - old[0]; at.y += now[1] - old[1]; place(); }
  pointers.set(e.pointerId, now);
});
for (const end of ['pointerup', 'pointercancel', 'pointerleave'])
  svg.addEventListener(end, e => pointers.delete(e.pointerId));
$('in').onclick = () => zoom(1.4); $('out').onclick = () => zoom(1 / 1.4);
$('fit').onclick = fit; $('whole').onclick = () => {
  stage.classList.toggle('whole'); $('whole').setAttribute('aria-pressed', stage.classList.contains('whole')); start(); };

// ---- selection ----
let chosen = -1;
const listeners = [];
function choose(i, move = true) {
  shapes[chosen]?.classList.remove('chosen');
  lines.forEach((l, k) => l.classList.toggle('near', edges[k].from === i || edges[k].to === i));
  chosen = i;
  document.querySelectorAll('tr.chosen').forEach(r => r.classList.remove('chosen'));
  if (i < 0) { side.hidden = true; return; }
  shapes[i].classList.add('chosen');
  if (move) centre(i);
  document.querySelectorAll(`tr[data-i="${i}"]`).forEach(r => r.classList.add('chosen'));
  describe(i);
  listeners.forEach(f => f(i));
}
function describe(i) {
  const n = nodes[i], link = k => `<button class="link" data-i="${k}">${text(nodes[k].name || nodes[k].op)}</button>`;
  const rows = Object.entries(n.facts).map(([k, v]) => `<dt>${text(k)}</dt><dd>${text(v)}</dd>`);
  if (sources[i].length) rows.push(`<dt>reads</dt><dd>${sources[i].map(link).join(' ')}</dd>`);
  if (readers[i].length) rows.push(`<dt>read by</dt><dd>${readers[i].map(link).join(' ')}</dd>`);
  side.hidden = false;
  side.innerHTML = `<button id="close" aria-label="Close">×</button><h3>${text(n.op)}</h3>` +
    `<p class="name">${text(n.name)}</p><div id="extra"></div>` +
    (n.histogram ? histogram(n, 260, 110) : '') + `<dl>${rows.join('')}</dl>`;
  side.querySelectorAll('.link').forEach(b => b.onclick = () => choose(+b.dataset.i));
  $('close').onclick = () => { choose(-1); svg.focus({preventScroll: true}); };
}
view.addEventListener('click', e => {
  const g = e.target.closest('.node');
  if (g && moved < 5) choose(+g.dataset.i, false);
});
const firstOf = list => list.length ? list[0] : -1;
function beside(i, step) {
  const row = nodes.map((n, k) => k).filter(k => Math.abs(nodes[k].y - nodes[i].y) < 5).sort((a, b) => nodes[a].x - nodes[b].x);
  return row[row.indexOf(i) + step] ?? -1;
}
svg.addEventListener('keydown', e => {
  const act = {
    '+': () => zoom(1.3), '=': () => zoom(1.3), '-': () => zoom(1 / 1.3), '0': fit, '/': () => $('search').focus(),
    Escape: () => choose(-1), Enter: () => side.hidden || side.querySelector('button').focus(),
    ArrowDown: () => go(chosen < 0 ? 0 : firstOf(readers[chosen])), ArrowUp: () => go(chosen < 0 ? 0 : firstOf(sources[chosen])),
    ArrowLeft: () => go(chosen < 0 ? 0 : beside(chosen, -1)), ArrowRight: () => go(chosen < 0 ? 0 : beside(chosen, 1)),
  }[e.key];
  if (act && !e.ctrlKey && !e.metaKey) { e.preventDefault(); act(); }
});
const go = i => { if (i >= 0) choose(i); };

// ---- search: dims other nodes and hides other rows ----
const haystack = nodes.map(n => `${n.name} ${n.op} ${n.facts.result ?? ''} ${n.unit} ${n.facts.tensor ?? ''} ${n.facts.name ?? ''} ${n.also.join(' ')}`.toLowerCase());
const table = $('rows'), rowOf = table ? [...table.tBodies[0].rows] : [];
let hits = [];
function freeze() {  // columns keep their widths, so that rows are hidden without a new layout of all
  if (!table || table.style.tableLayout) return;
  const titles = [...table.tHead.rows[0].cells], widths = titles.map(c => c.offsetWidth);
  table.style.width = table.offsetWidth + 'px';
  titles.forEach((c, i) => { c.style.width = widths[i] + 'px'; c.style.boxSizing = 'border-box'; });
  table.style.tableLayout = 'fixed';
}
addEventListener('resize', () => { if (table) { table.style.tableLayout = table.style.width = ''; } });
function filter(words) {
  freeze();
  const all = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = haystack.map(h => all.every(w => h.includes(w)));
  shapes.forEach((g, i) => g.classList.toggle('dim', !found[i]));
  rowOf.forEach(r => { r.hidden = !found[+r.dataset.i]; });
  hits = all.length ? found.flatMap((f, i) => f ? [i] : []) : [];
  const count = found.filter(Boolean).length;
  $('hits').textContent = all.length ? `${count} of ${nodes.length}` : '';
  if ($('rowcount')) $('rowcount').textContent = all.length ? `${rowOf.filter(r => !r.hidden).length} of ${rowOf.length} layers` : '';
}
const inputs = [...document.querySelectorAll('.search')];
inputs.forEach(input => {
  input.addEventListener('input', () => { inputs.forEach(o => { o.value = input.value; }); filter(input.value); });
  input.addEventListener('keydown', e => {
    if (e.key === 'Enter' && hits.length) {
      const next = hits.find(i => i > chosen);
      choose(e.shiftKey ? hits.filter(i => i < chosen).pop() ?? hits.at(-1) : next ?? hits[0]);
    }
    if (e.key === 'Escape') { input.value = ''; input.dispatchEvent(new Event('input')); }
  });
});
document.addEventListener('keydown', e => {
  if (e.key === '/' && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { e.preventDefault(); $('search').focus(); }
});
document.querySelectorAll('.find .link').forEach(b => {
  b.onclick = () => { choose(+b.dataset.i); stage.scrollIntoView({block: 'nearest'}); }; });
rowOf.forEach(r => r.addEventListener('click', e => {
  if (!e.target.closest('button')) return;
  choose(+r.dataset.i); stage.scrollIntoView({block: 'nearest'});
}));

// ---- histograms ----
function histogram(n, wide, high) {
  const h = n.histogram, top = Math.log1p(Math.max(...h.counts)), floor = high - 18, span = h.high - h.low || 1;
  const low = Math.min(h.low, n.limits?.[0] ?? h.low), all = Math.max(h.high, n.limits?.[1] ?? h.high) - low || 1;
  const x = v => (v - low) / all * wide, step = span / h.counts.length;
  const out = n.limits ? v => v < n.limits[0] || v > n.limits[1] : () => false;
  const bars = h.counts.map((c, i) => {
    const a = h.low + i * step, tall = Math.log1p(c) / top * (floor - 6);
    return c ? `<rect class="${out(a + step / 2) ? 'cut' : 'bin'}" x="${x(a).toFixed(1)}" y="${(floor - tall).toFixed(1)}" ` +
      `width="${Math.max(x(a + step) - x(a) - .4, .6).toFixed(1)}" height="${tall.toFixed(1)}"/>` : '';
  }).join('');
  const f = v => Math.abs(v) >= 1e4 || (v && Math.abs(v) < 1e-3) ? v.toExponential(1) : +v.toPrecision(3);
  const edge = (n.limits ?? []).map(v => `<line class="limit" x1="${x(v).toFixed(1)}" x2="${x(v).toFixed(1)}" y1="2" y2="${floor}"/>`).join('');
  const words = n.limits ? `range kept: ${f(n.limits[0])} to ${f(n.limits[1])}` : 'not clipped';
  return `<svg class="hist" viewBox="-2 0 ${wide + 4} ${high}" role="img" aria-label="Histogram of ${text(n.name)}, ${words}">` +
    `<line class="floor" x1="0" x2="${wide}" y1="${floor}" y2="${floor}"/>${bars}${edge}` +
    `<text x="0" y="${high - 4}">${f(low)}</text><text x="${wide / 2}" y="${high - 4}" text-anchor="middle">${words}</text>` +
    `<text x="${wide}" y="${high - 4}" text-anchor="end">${f(low + all)}</text></svg>`;
}
const grid = $('hists');
if (grid) {
  const shown = nodes.flatMap((n, i) => n.histogram ? [i] : []).sort((a, b) => (nodes[b].error ?? 0) - (nodes[a].error ?? 0));
  grid.innerHTML = shown.slice(0, 24).map(i => `<figure><figcaption><button class="link" data-i="${i}">` +
    `${text(short(nodes[i].name, 34))}</button> ${text(nodes[i].op)}</figcaption>${histogram(nodes[i], 260, 110)}</figure>`).join('');
  grid.querySelectorAll('.link').forEach(b => b.onclick = () => { choose(+b.dataset.i); stage.scrollIntoView({block: 'nearest'}); });
}
function refresh() { start(); colour($('colour').value); }
refresh();
if (data.guilty >= 0) choose(data.guilty);  // the layer that the verdict names
if (location.hash.startsWith('#node=')) choose(nodes.findIndex(n => n.name === decodeURIComponent(location.hash.slice(6))));
