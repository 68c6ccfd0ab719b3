"""Encrypted and signed packages on the command line: keys, what is printed, and refusals."""

from __future__ import annotations

import json
import re
import resource
from pathlib import Path

import pytest

from intaglio.cli import main

pytest.importorskip("cryptography")

DIGITS = str(Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx")
COMPILE = ("compile", DIGITS, "--dim", "batch=1")
HEX = re.compile("[0-9a-f]{64}")


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """A folder with a key, a pair of keys, and packages: plain, encrypted, signed."""
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    monkeypatch.chdir(tmp_path)
    main(["keygen", "model.key"])
    main(["keygen", "--signing", "release.pem"])
    main([*COMPILE, "-o", "plain.itg", "-q"])
    main([*COMPILE, "-o", "secret.itg", "-q", "--encrypt", "all", "--key-file", "model.key"])
    main([*COMPILE, "-o", "signed.itg", "-q", "--sign", "release.pem"])
    capsys.readouterr()
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_CORE, limits)


def said(capsys, *args: str) -> str:
    main(list(args))
    return capsys.readouterr().out


def refused(capsys, *args: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(list(args))
    told = capsys.readouterr()
    assert end.value.code == 2
    assert told.err.count("\n") == 1
    return told.err


def test_keygen(folder, capsys):
    key = (folder / "model.key").read_text()
    assert HEX.fullmatch(key.strip())
    for name in ("model.key", "release.pem"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    assert "BEGIN PUBLIC KEY" in (folder / "release.pub").read_text()
    out = said(capsys, "keygen", "other.key")
    assert (folder / "other.key").read_text() not in out
    assert not HEX.search(out)
    for args, words in [
        (("keygen", "model.key"), "model.key exists; a key is never overwritten"),
        (("keygen", "--signing", "release.pem"), "release.pub exists; a key is never overwritten"),
        (("keygen", "--signing", "a.pub"), "ends in .pub, as the public key does"),
        (("keygen", "no/a.key"), "cannot write no/a.key: No such file or directory"),
    ]:
        assert words in refused(capsys, *args)
    assert (folder / "model.key").read_text() == key


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--fill", "zeros"),
        ("bench", "--seconds", "0.02"),
        ("inspect",),
        ("inspect", "--graph"),
    ],
)
def test_commands_open_with_a_key(folder, capsys, monkeypatch, command):
    name, *options = command
    monkeypatch.setenv("MODEL_KEY", (folder / "model.key").read_text())
    plain = said(capsys, name, "plain.itg", *options)
    for key in (("--key-file", "model.key"), ("--key-env", "MODEL_KEY")):
        out = said(capsys, name, "secret.itg", *options, *key)
        if name == "run":
            assert out == plain
        assert len(out.splitlines()) >= len(plain.splitlines())
    assert said(capsys, name, "signed.itg", *options, "--public-key", "release.pub")


def test_perf_and_memory_open_with_a_key(folder, capsys):
    to_chip = ("--target", "rk3588", "-q", "-o", "npu.itg")
    main([*COMPILE, *to_chip, "--encrypt", "graph", "--key-file", "model.key"])
    capsys.readouterr()
    for command in ("perf", "memory"):
        assert "rk3588" in said(capsys, command, "npu.itg", "--key-file", "model.key")
        words = refused(capsys, command, "npu.itg")
        assert "npu.itg: package is encrypted (level graph); only its key opens it; give" in words
        assert words.rstrip().endswith("give --key-file")


def test_inspect_without_the_key_says_what_is_missing(folder, capsys):
    out = said(capsys, "inspect", "secret.itg")
    assert "encrypted   AES-256-GCM, level all" in out
    assert "contents    need the key; give --key-file FILE or --key-env NAME" in out
    facts = json.loads(said(capsys, "inspect", "secret.itg", "--json"))
    assert facts == {"encrypted": "all", "signed_by": None, "signature_intact": None}
    with_key = said(capsys, "inspect", "secret.itg", "--json", "--key-file", "model.key")
    assert json.loads(with_key)["encrypted"] == "all"


def test_inspect_reports_signatures(folder, capsys):
    facts = json.loads(said(capsys, "inspect", "signed.itg", "--json"))
    assert HEX.fullmatch(facts["signed_by"])
    assert facts["signature_intact"] is True
    out = said(capsys, "inspect", "signed.itg")
    assert f"signed      by the key {facts['signed_by']}; intact" in out
    assert "signed" not in said(capsys, "inspect", "plain.itg")


def test_compile_prints_what_it_did(folder, capsys):
    both = ("--encrypt", "weights", "--key-file", "model.key", "--sign", "release.pem")
    out = said(capsys, *COMPILE, "-o", "m.itg", *both)
    assert "package is encrypted (level weights) and signed" in out
    assert "next: intaglio bench m.itg --key-file model.key" in out
    facts = json.loads(said(capsys, *COMPILE, "-o", "m.itg", *both, "--json"))
    assert (facts["encrypted"], facts["signed"]) == ("weights", True)
    facts = json.loads(said(capsys, *COMPILE, "-o", "m.itg", "--json"))
    assert (facts["encrypted"], facts["signed"]) == (None, False)


def test_encrypt_and_sign_packages_that_exist(folder, capsys):
    out = said(capsys, "encrypt", "plain.itg", "-o", "e.itg", "--key-file", "model.key")
    assert "encrypted (level all)" in out
    assert "signed with the key" in said(capsys, "sign", "e.itg", "--private-key", "release.pem")
    options = ("--key-file", "model.key", "--public-key", "release.pub")
    assert said(capsys, "run", "e.itg", "--fill", "zeros", *options)
    said(capsys, "sign", "plain.itg", "--private-key", "release.pem", "-o", "s.itg")
    assert said(capsys, "run", "s.itg", "--fill", "zeros", "--public-key", "release.pub")
    assert "no signature" in refused(capsys, "inspect", "plain.itg", "--public-key", "release.pub")


def test_refusals(folder, capsys, monkeypatch):
    main(["keygen", "other.key"])
    main(["keygen", "--signing", "other.pem"])
    capsys.readouterr()
    key = ("--key-file", "model.key")
    broken = bytearray((folder / "secret.itg").read_bytes())
    broken[-1000] ^= 1
    (folder / "broken.itg").write_bytes(broken)
    (folder / "short.itg").write_bytes(broken[:-64])
    monkeypatch.delenv("NO_KEY", raising=False)
    run = ("--fill", "zeros")
    for args, words in [
        (
            ("run", "secret.itg", *run),
            "is encrypted (level all); only its key opens it; give --key",
        ),
        (("run", "secret.itg", *run, "--key-file", "other.key"), "key does not fit the encrypted"),
        (("run", "secret.itg", *run, "--key-file", "none"), "cannot read key file none"),
        (("run", "secret.itg", *run, "--key-env", "NO_KEY"), "variable NO_KEY is not set"),
        (("run", "secret.itg", *run, *key, "--key-env", "A"), "--key-file and --key-env are given"),
        (
            ("run", "broken.itg", *run, *key),
            "fails authentication; the file was altered or damaged",
        ),
        (("run", "short.itg", *run, *key), "it is truncated or damaged"),
        (("run", "plain.itg", *run, *key), "is not encrypted, but a key was given"),
        (("run", DIGITS, *run, *key), "is a model; --key-file is for packages; leave it out"),
        (("inspect", DIGITS, "--public-key", "a"), "is a model; --public-key is for packages"),
        (
            ("run", "plain.itg", *run, "--public-key", "release.pub"),
            "has no signature; --public-key",
        ),
        (("run", "signed.itg", *run, "--public-key", "other.pub"), "is signed with another key"),
        ((*COMPILE, "--encrypt", "all"), "no key is given; add --key-file FILE or --key-env NAME"),
        ((*COMPILE, *key), "a key is given without --encrypt"),
        ((*COMPILE, "--encrypt", "all", "--key-file", "none"), "cannot read key file none"),
        ((*COMPILE, "--sign", "none"), "cannot read private key none"),
        ((*COMPILE, "--encrypt", "some", *key), "'some' is not one of"),
        (("encrypt", "plain.itg", "-o", "x.itg"), "no key is given"),
        (("encrypt", "secret.itg", "-o", "x.itg", *key), "is encrypted (level all)"),
        (("encrypt", DIGITS, "-o", "x.itg", *key), "is no package; compile it with --encrypt all"),
        (("sign", DIGITS, "--private-key", "release.pem"), "is no package; compile it with --sign"),
    ]:
        told = refused(capsys, *args)
        assert words in told, told
        assert (folder / "model.key").read_text()[:8] not in told


def test_no_core_dump_holds_the_key(folder, capsys):
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    said(capsys, "run", "secret.itg", "--fill", "zeros", "--key-file", "model.key")
    assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
