"""Files are written whole or not at all, and nothing but a regular file is replaced."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from intaglio import files
from intaglio.errors import BadInput
from intaglio.files import refuse_unwritable, write_atomically


@pytest.fixture(params=["unnamed", "named"])
def temporary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of temporary file: without a name, and with one where O_TMPFILE is missing."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(request.param)


def test_a_file_is_written_and_replaced(tmp_path: Path, temporary: str):
    path = tmp_path / "m.itg"
    write_atomically(path, b"old")
    os.chmod(path, 0o640)
    write_atomically(path, [b"ne", memoryview(b"w")])
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["m.itg"]


def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, temporary: str):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "m.itg", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "m.itg").stat().st_mode) == 0o640


def test_data_reach_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            files.os, name, lambda *a, n=name, r=real, **k: (calls.append(n), r(*a, **k))[1]
        )
    write_atomically(tmp_path / "m.itg", b"new")
    assert calls == ["fsync", "replace", "fsync"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path, temporary: str):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.itg", tmp_path / "link.itg"
    link.symlink_to("there/real.itg")
    for content in (b"created", b"replaced"):
        write_atomically(link, content)
        assert link.is_symlink()
        assert real.read_bytes() == content
    assert os.listdir(tmp_path / "there") == ["real.itg"]


def test_only_regular_files_are_replaced(tmp_path: Path):
    pipe, folder, link, sock = (tmp_path / n for n in ("pipe", "folder", "link", "sock"))
    os.mkfifo(pipe)
    folder.mkdir()
    link.symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sock))
        kinds = {
            pipe: "a pipe",
            folder: "a folder",
            link: "a device",
            sock: "a socket",
            Path("/dev/null"): "a device",
            Path("/dev/full"): "a device",
        }
        for path, kind in kinds.items():
            for write in (lambda p: write_atomically(p, b"x"), refuse_unwritable):
                with pytest.raises(BadInput, match=f"cannot write {path}: it is {kind}"):
                    write(path)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_links_in_a_circle_and_missing_folders_are_refused(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for path in (tmp_path / "a", tmp_path / "no" / "m.itg", tmp_path / ("n" * 300)):
        with pytest.raises(BadInput, match="cannot write"):
            write_atomically(path, b"x")


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path, temporary: str):
    path = tmp_path / "m.itg"
    path.write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, parts())
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.itg"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no O_TMPFILE")
def test_a_killed_writer_leaves_nothing_behind(tmp_path: Path):
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        pytest.skip("this file system has no O_TMPFILE")
    program = """
import sys, time
from intaglio.files import write_atomically
def parts():
    yield b"half"
    print("writing", flush=True)
    time.sleep(60)
write_atomically(sys.argv[1], parts())
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "m.itg"], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "writing\n"
        child.send_signal(signal.SIGKILL)
    assert os.listdir(tmp_path) == []
