"""The page `GET /`: models, versions, traffic and latency, renewed every second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intaglio.serve.server import Server


def live_figures(server: Server) -> dict[str, Any]:
    """What the page shows."""
    rows = []
    for found in server.repository.index():
        row: dict[str, Any] = dict(found)
        entry = server.repository.entries[row["name"]]
        model = entry.serving.get(int(row["version"] or 0))
        if model is not None:
            if not model.alive:
                row["state"] = "STARTING"  # its process has ended, and another is being warmed up
            s = model.statistics
            seconds = s.recent()
            row |= {
                "recent": seconds,
                "rate": round(sum(seconds[-5:]) / 5, 1),
                "inferences": s.inferences,
                "failed": sum(s.refused.values()),
                "waiting": model.batcher.waiting,
                "batch": round(s.inferences / s.executions, 2) if s.executions else None,
                "p50": _ms(s.recent_latency(0.5)),
                "p99": _ms(s.recent_latency(0.99)),
            }
        rows.append(row)
    return {"ready": server.is_ready(), "models": rows}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


PAGE = b"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>intaglio serve</title>
<meta name="viewport" content="width=device-width"><style>
body{font:15px system-ui,sans-serif;margin:2em auto;max-width:84em;padding:0 1em;color:#222}
h1{font-size:1.3em}#state{font-weight:normal;color:#080}
div{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.4em .6em;border-bottom:1px solid #ddd;white-space:nowrap}
th:nth-child(-n+4),td:nth-child(-n+4){text-align:left}
td:first-child{white-space:normal;overflow-wrap:anywhere;min-width:6em}svg{vertical-align:middle}
#state.bad,.bad{color:#b00}td.reason{white-space:normal;overflow-wrap:anywhere;padding-left:2em}
@media(max-width:60em){body{font-size:13px}th,td{padding:.3em}#rows svg{width:60px}}
@media(max-width:44em){:is(th,td):is(:nth-child(4),:nth-child(6),:nth-child(9)){display:none}}
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}th,td{border-color:#333}
#state{color:#6c6}#state.bad,.bad{color:#f77}a{color:#9bf}}
</style></head><body><h1>intaglio serve <span id="state"></span></h1><div><table><thead><tr>
<th>model</th><th>version</th><th>state</th><th>last minute</th><th>rows/s</th><th>rows</th>
<th>failed</th><th>waiting</th><th>batch</th><th>p50 ms</th><th>p99 ms</th></tr></thead>
<tbody id="rows"></tbody></table></div>
<p>p50 and p99 are those of the last minute. <a href="/metrics">metrics</a> \xc2\xb7
<a href="/v2/models/stats">statistics</a></p><script>
const body = document.getElementById("rows"), state = document.getElementById("state");
function line(values) {
  const top = Math.max(1, ...values), n = values.length;
  const points = values.map((v, i) => `${i * 120 / (n - 1)},${24 - 22 * v / top}`).join(" ");
  const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg");
  svg.setAttribute("width", 120); svg.setAttribute("height", 26);
  const l = document.createElementNS(ns, "polyline");
  l.setAttribute("points", points); l.setAttribute("fill", "none");
  l.setAttribute("stroke", "currentColor"); svg.append(l); return svg;
}
async function renew() {
  try {
    const found = await (await fetch("live.json")).json();
    state.textContent = found.ready ? "ready" : "not ready";
    state.className = found.ready ? "" : "bad";
    body.replaceChildren(...found.models.flatMap(m => {
      const row = document.createElement("tr");
      const cells = [m.name, m.version, m.state, m.recent ? line(m.recent) : "",
        m.rate, m.inferences, m.failed, m.waiting, m.batch,
        m.p50, m.p99];
      for (const c of cells) {
        const cell = document.createElement("td"); cell.append(c ?? ""); row.append(cell);
      }
      if (m.state !== "READY") row.children[2].className = "bad";
      if (!m.reason) return [row];
      const why = document.createElement("tr"), cell = document.createElement("td");
      cell.colSpan = cells.length; cell.className = "reason bad";
      cell.append(m.reason); why.append(cell);
      return [row, why];
    }));
  } catch { state.textContent = "no answer"; state.className = "bad"; }
}
renew(); setInterval(renew, 1000);
</script></body></html>"""
