"""Signed packages: altered, unsigned and others' packages are refused where a signature is asked
for."""

from __future__ import annotations

import base64
import random
import struct
import sys
import zlib

import numpy as np
import pytest
from tests.package.mutate import fix_checksums
from tests.package.samples import SAMPLES

import intaglio
from intaglio import BadFile, BadInput, BadKey, IntaglioError
from intaglio.package import Package, read, signing
from intaglio.package import format as f
from intaglio.package.keygen import write_signing_pair
from intaglio.package.read import sections

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")

SIGNER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = SIGNER.public_key().public_bytes_raw()
KEY = bytes(range(50, 82))


def protected(name: str = "chain", **how: object) -> bytes:
    return bytes(SAMPLES[name]().package().protected(sign=SIGNER, **how))


FORMS = {"plain": {}, "weights": {"encrypt": "weights"}, "all": {"encrypt": "all"}}


def open_form(data: bytes, form: str, public_key: object = PUBLIC) -> None:
    key = KEY if form != "plain" else None
    intaglio.open(data, key=key, public_key=public_key).close()


def signed(form: str) -> bytes:
    return protected(**FORMS[form], **({} if form == "plain" else {"key": KEY}))


@pytest.mark.parametrize("form", FORMS)
def test_a_signed_package_opens(form, tmp_path):
    data = signed(form)
    open_form(data, form)
    open_form(data, form, None)  # nobody asks for the signature
    (tmp_path / "m.itg").write_bytes(data)
    key = KEY if form != "plain" else None
    package = Package.load(tmp_path / "m.itg", key=key, public_key=PUBLIC)
    assert package.signature == signing.Signature(PUBLIC.hex(), True)
    sample = SAMPLES["chain"]()
    with intaglio.open(tmp_path / "m.itg", key=key, public_key=PUBLIC) as session:
        np.testing.assert_array_equal(session.run(sample.inputs)["y"], sample.outputs["y"])


@pytest.mark.parametrize("name", SAMPLES)
def test_signing_keeps_the_contents(name):
    package = SAMPLES[name]().package()
    data = protected(name)
    parts, isa = sections(data)
    before, isa_before = sections(package.bytes)
    assert isa == isa_before
    assert {k: bytes(v) for k, v in parts.items() if k != "SIGN"} == {
        k: bytes(v) for k, v in before.items()
    }
    open_form(data, "plain")
    assert all(int(s["offset"]) % f.ALIGN == 0 for s in np.frombuffer(data, f.SECTION, 1, 32))
    read(data)


def test_signing_again_replaces_the_signature():
    other = ed25519.Ed25519PrivateKey.generate()
    data = np.frombuffer(protected(), np.uint8)
    again = signing.sign(data, other)
    assert len(again) == len(data)
    open_form(again.tobytes(), "plain", other.public_key())
    assert signing.sign(again, SIGNER).tobytes() == data.tobytes()  # Ed25519 is deterministic


def test_sources_of_keys(tmp_path, monkeypatch):
    public = write_signing_pair(tmp_path / "release.pem")
    assert (tmp_path / "release.pem").stat().st_mode & 0o777 == 0o600
    sample = SAMPLES["chain"]()
    sample.package().save(tmp_path / "m.itg", sign=tmp_path / "release.pem")
    intaglio.open(tmp_path / "m.itg", public_key=public).close()
    intaglio.open(tmp_path / "m.itg", public_key=str(public)).close()
    raw = signing.private_key_of(tmp_path / "release.pem").public_key().public_bytes_raw()
    for text in (raw, raw.hex().encode(), base64.b64encode(raw), public.read_bytes() + b"\n"):
        (tmp_path / "public").write_bytes(text)
        intaglio.open(tmp_path / "m.itg", public_key=tmp_path / "public").close()
    crlf = public.read_bytes().replace(b"\n", b"\r\n")
    (tmp_path / "public").write_bytes(crlf)
    intaglio.open(tmp_path / "m.itg", public_key=tmp_path / "public").close()
    sample.package().save(tmp_path / "m.itg", sign=bytes(range(32)))
    intaglio.open(tmp_path / "m.itg", public_key=SIGNER.public_key()).close()


def test_keys_that_are_refused(tmp_path):
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import x25519

    package = SAMPLES["chain"]().package()
    write_signing_pair(tmp_path / "release.pem")
    other = x25519.X25519PrivateKey.generate()
    pem, pkcs8 = s.Encoding.PEM, s.PrivateFormat.PKCS8
    (tmp_path / "x.pem").write_bytes(other.private_bytes(pem, pkcs8, s.NoEncryption()))
    locked = SIGNER.private_bytes(pem, pkcs8, s.BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    spki = s.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "x.pub").write_bytes(other.public_key().public_bytes(pem, spki))
    (tmp_path / "junk").write_text("junk")
    for key, kind, words in [
        (tmp_path / "x.pem", BadKey, "is of another kind; packages are signed with Ed25519"),
        (tmp_path / "locked.pem", BadKey, "has a password"),
        (tmp_path / "junk", BadKey, "holds no private key"),
        (tmp_path / "release.pub", BadKey, "holds no private key"),
        (tmp_path / "none", BadKey, "cannot read private key .*none: No such file"),
        (b"short", BadInput, "sign= is the class bytes; give the path"),
        (7, BadInput, "sign= is the class int"),
    ]:
        with pytest.raises(kind, match=words):
            package.save(tmp_path / "m.itg", sign=key)
    assert not (tmp_path / "m.itg").exists()
    package.save(tmp_path / "m.itg", sign=tmp_path / "release.pem")
    for public, kind, words in [
        (tmp_path / "x.pub", BadKey, "that are no key; a public key is PEM of Ed25519"),
        (tmp_path / "release.pem", BadKey, "that are no key; a public key is PEM"),
        (tmp_path / "none", BadKey, "cannot read key file"),
        (b"short", BadKey, "public_key has 5 bytes; an Ed25519 key has 32"),
        (7, BadInput, "public_key= is the class int"),
    ]:
        with pytest.raises(kind, match=words):
            intaglio.open(tmp_path / "m.itg", public_key=public)


@pytest.mark.parametrize("form", FORMS)
def test_one_clear_line_each(form):
    data = signed(form)
    with pytest.raises(BadKey, match=rf"is signed with another key, {PUBLIC.hex()[:8]}\.\.\.; "):
        open_form(data, form, ed25519.Ed25519PrivateKey.generate().public_key())
    package = SAMPLES["chain"]().package()
    how = {} if form == "plain" else {**FORMS[form], "key": KEY}
    with pytest.raises(BadKey, match="package has no signature; public_key= asks for one"):
        open_form(bytes(package.protected(**how)), form)
    body = len(data) // 2
    changed = data[:body] + bytes([data[body] ^ 1]) + data[body + 1 :]
    with pytest.raises(BadFile, match="signature does not fit the package; the file was altered"):
        open_form(changed, form)
    with pytest.raises(BadFile, match="truncated"):
        open_form(data[:-64], form)


@pytest.mark.parametrize("form", FORMS)
def test_every_changed_byte_is_refused(form):
    data = signed(form)
    rng = random.Random(form)
    for i in [*range(500), *(rng.randrange(len(data)) for _ in range(300)), *range(-130, 0)]:
        changed = bytearray(data)
        changed[i] ^= 1 << rng.randrange(8)
        files = {bytes(changed)}
        if form == "plain":
            files.add(fix_checksums(changed))
        for file in files - {data}:
            with pytest.raises(IntaglioError):
                open_form(file, form)


def test_a_signature_of_another_package_is_refused():
    a, b = protected("chain"), bytearray(protected("two_shapes"))
    record = bytes(sections(a)[0]["SIGN"])
    rows = np.frombuffer(bytes(b), f.SECTION, struct.unpack_from("<I", b, 8)[0], 32)
    at = int(rows["offset"][rows["kind"] == b"SIGN"][0])
    b[at : at + len(record)] = record
    with pytest.raises(BadFile, match="signature does not fit"):
        open_form(fix_checksums(b), "plain")


def test_section_sign_is_checked_before_it_is_used():
    data = bytearray(protected())
    count = struct.unpack_from("<I", data, 8)[0]
    row = 32 + 32 * (count - 1)
    assert bytes(data[row : row + 4]) == b"SIGN"
    for offset, size in [(0, 96), (len(data) - 32, 96), (2**63, 96), (len(data), 96), (64, 95)]:
        changed = bytearray(data)
        struct.pack_into("<QQ", changed, row + 8, offset, size)
        struct.pack_into("<I", changed, 20, 0)
        struct.pack_into("<I", changed, 20, zlib.crc32(changed[: 32 + 32 * count]))
        with pytest.raises(BadFile, match="section SIGN lies outside of the file"):
            open_form(bytes(changed), "plain")
    two = bytearray(data)
    two[row - 32 : row - 28] = b"SIGN"
    with pytest.raises(BadFile, match="two sections SIGN"):
        open_form(fix_checksums(two), "plain")


def test_an_altered_package_is_reported(tmp_path):
    data = bytearray(protected())
    assert signing.signature_of(np.frombuffer(bytes(data), np.uint8)).intact
    data[700] ^= 1
    found = signing.signature_of(np.frombuffer(fix_checksums(data), np.uint8))
    assert found == signing.Signature(PUBLIC.hex(), False)
    bare = SAMPLES["chain"]().package()
    assert signing.signature_of(np.frombuffer(bare.bytes, np.uint8)) is None
    assert bare.signature is None


def test_a_file_with_a_signature_is_read_not_mapped(tmp_path):
    """Whoever may write the file cannot change it after its signature was checked."""
    sample = SAMPLES["chain"]()
    path = tmp_path / "m.itg"
    sample.package().save(path, sign=SIGNER)
    with intaglio.open(path, public_key=PUBLIC) as session, path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        np.testing.assert_array_equal(session.run(sample.inputs)["y"], sample.outputs["y"])


def test_without_cryptography_signatures_are_checked_but_not_made(monkeypatch):
    data = protected()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    with pytest.raises(intaglio.Unsupported, match="signing needs the cryptography package"):
        protected()
    open_form(data, "plain")
