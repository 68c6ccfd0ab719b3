"""Headless Chromium for tests of pages: screenshots, and scripts that run in a page."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needed = pytest.mark.skipif(PROGRAM is None, reason="no Chromium; apt-get install chromium")
LIMIT = 120  # seconds of one run
# What runs in the page: returns a value as JSON. `frame` ends when the next frame is painted.
FRAME = """
const frame = () => new Promise(r => requestAnimationFrame(() => setTimeout(r, 0)));
const pause = ms => new Promise(r => setTimeout(r, ms));
const type = (e, words) => {
  e.value = words; e.dispatchEvent(new Event('input', {bubbles: true})); };
const cpu = async () => (await fetch('/cpu')).json();  // milliseconds of all Chromium's processes
const press = (e, key) =>
  e.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
"""


def arguments(folder: str) -> list[str]:
    return [
        str(PROGRAM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage",
        "--password-store=basic", f"--user-data-dir={folder}",
    ]  # fmt: skip


def screenshot(url: str, path: Path, width: int, height: int, dark: bool = False) -> None:
    """A PNG of the top of a page."""
    with tempfile.TemporaryDirectory() as folder:
        scheme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        size = [f"--window-size={width},{height}", f"--screenshot={path}"]
        command = [*arguments(folder), *scheme, *size, "--virtual-time-budget=3000", url]
        subprocess.run(command, check=True, timeout=LIMIT, capture_output=True)


def cpu_milliseconds(pid: int) -> float:
    """The CPU time of the threads of a process and of those that it started, by now."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    mine = {pid}
    while more := {p for p, parent in parents.items() if parent in mine} - mine:
        mine |= more
    total = 0
    for path in (t for p in mine for t in Path(f"/proc/{p}/task").glob("*/schedstat")):
        with contextlib.suppress(OSError):
            total += int(path.read_text().split()[0])
    return total / 1e6


def run_in(page: str, script: str, width: int = 1200, height: int = 900) -> dict:
    """Serve a page, run the body of an async function in it, and return what it returns."""
    found: list[dict] = []
    done = threading.Event()
    code = (
        f"<script>{FRAME}addEventListener('load', async () => {{ let r; "
        f"try {{ r = await (async () => {{ {script} }})(); }} "
        "catch (e) { r = {failed: String(e.stack)}; } "
        "await fetch('/result', {method: 'POST', body: JSON.stringify(r ?? null)}); });</script>"
    )
    errors = (
        "<script>window.wrong = []; addEventListener('error', e => wrong.push(e.message));</script>"
    )
    data = page.replace("<head>", f"<head>{errors}").replace("</body>", f"{code}</body>").encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(
                json.dumps(cpu_milliseconds(program.pid)).encode() if self.path == "/cpu" else data
            )

        def do_POST(self):
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            done.set()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        size = f"--window-size={width},{height}"
        command = [*arguments(folder), size, "--remote-debugging-port=0", url]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        program = subprocess.Popen(command, **quiet)
        try:
            assert done.wait(LIMIT), "the page did not answer"
        finally:
            program.terminate()
            program.wait(10)
            server.shutdown()
            server.server_close()
    assert "failed" not in (found[0] or {}), found[0]
    return found[0]


def dumped(url: str, width: int = 1200, height: int = 900, milliseconds: int = 20_000) -> str:
    """The page at an address as HTML, after its scripts ran for some (virtual) time."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        budget = f"--virtual-time-budget={milliseconds}"
        command = [*arguments(folder), f"--window-size={width},{height}", budget, "--dump-dom", url]
        done = subprocess.run(command, check=True, timeout=LIMIT, capture_output=True, text=True)
    return done.stdout
