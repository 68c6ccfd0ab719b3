"""How the command ends when something goes wrong: one line, an exit code, no traceback."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import intaglio
from intaglio import startup
from intaglio.cli import main
from intaglio.files import write_atomically

ROOT = Path(__file__).parents[1]
DIGITS = str(ROOT / "examples" / "digits" / "digits.onnx")
FULL = Path("/dev/full")
has_full = pytest.mark.skipif(
    not FULL.exists() or not stat.S_ISCHR(FULL.stat().st_mode), reason="no /dev/full"
)


def lines_of(capsys: pytest.CaptureFixture[str], code: int, *args: str) -> list[str]:
    """The lines on stderr of a command that ends with this code."""
    with pytest.raises(SystemExit) as end:
        main(list(args))
    assert end.value.code == code
    return capsys.readouterr().err.splitlines()


# ---- Ctrl-C ----
def interrupted_import(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command whose first import of numpy is interrupted."""
    fake = tmp_path / "numpy"
    fake.mkdir()
    press = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"
    (fake / "__init__.py").write_text(press)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # background jobs ignore it
    )


def test_interrupted_while_python_imports_the_module(tmp_path: Path):
    done = interrupted_import(tmp_path, "-m", "intaglio", "targets")
    assert done.stderr == "intaglio: interrupted\n"
    assert done.returncode == 130


def test_interrupted_while_the_installed_script_imports(tmp_path: Path):
    script = tmp_path / "intaglio"
    script.write_text("import sys\nfrom intaglio.cli import main\nsys.exit(main())\n")
    done = interrupted_import(tmp_path, str(script), "targets")
    assert done.stderr == "intaglio: interrupted\n"
    assert done.returncode == 130


def test_other_programs_keep_their_interrupts(tmp_path: Path):
    done = interrupted_import(tmp_path, "-c", "import intaglio")
    assert "KeyboardInterrupt" in done.stderr
    assert signal.getsignal(signal.SIGINT) is not startup._end


@pytest.mark.parametrize(
    ("argv", "original", "is_one"),
    [
        (["/usr/bin/intaglio", "targets"], ["python", "/usr/bin/intaglio", "targets"], True),
        (["-m", "targets"], ["python", "-m", "intaglio", "targets"], True),
        (["-m", "x"], ["python", "-m", "pytest", "intaglio"], False),
        (["-m"], ["python", "-m"], False),
        (["server.py"], ["python", "server.py"], False),
        ([], [], False),
    ],
)
def test_only_the_command_itself_is_ended_at_once(argv, original, is_one):
    assert startup.is_command(argv, original) is is_one


def test_interrupted_while_a_command_works(capsys, monkeypatch):
    def load(*args, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(intaglio, "load", load)
    assert lines_of(capsys, 130, "inspect", DIGITS, "--dim", "batch=1") == ["intaglio: interrupted"]


# ---- memory ----
def test_out_of_memory_is_one_line(capsys, monkeypatch):
    def load(*args, **keywords):
        raise MemoryError("Unable to allocate 4.00 TiB for an array with shape (1, 2)")

    monkeypatch.setattr(intaglio, "load", load)
    (line,) = lines_of(capsys, 2, "inspect", DIGITS, "--dim", "batch=1")
    assert line.startswith("intaglio: out of memory: Unable to allocate 4.00 TiB")
    assert "smaller shape" in line


# ---- files ----
@pytest.mark.parametrize("out", [".", "/", "some/"])
@pytest.mark.parametrize(
    "command",
    [
        ("compile", DIGITS, "--dim", "batch=1", "-o"),
        ("quantize", DIGITS, "--mode", "weights", "--dim", "batch=1", "--report"),
        ("perf", DIGITS, "--target", "rk3588", "--dim", "batch=1", "--trace"),
        ("memory", DIGITS, "--target", "rk3588", "--dim", "batch=1", "--svg"),
    ],
    ids=lambda c: c[0],
)
def test_a_folder_is_no_output(command, out, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (line,) = lines_of(capsys, 2, *command, out)
    assert "folder" in line or "directory" in line or "ending" in line
    assert not list(tmp_path.iterdir())


@has_full
def test_a_full_output_is_one_line():
    for command in (["targets"], ["targets", "rk3588"], ["--help"]):
        with open(FULL, "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "intaglio", *command],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                timeout=60,
            )
        assert done.stderr == "intaglio: cannot write the output: No space left on device\n"
        assert done.returncode == 2


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m intaglio targets rk3588 | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        timeout=60,
    )
    assert done.stdout.startswith("rk3588: ")
    assert not done.stderr


def test_an_interrupt_leaves_no_half_file(tmp_path: Path):
    def parts():
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", parts())
    assert not list(tmp_path.iterdir())
