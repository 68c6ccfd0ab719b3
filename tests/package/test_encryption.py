"""Encrypted packages: they run, tell nothing, and are refused with another key or any change."""

from __future__ import annotations

import base64
import math
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from tests.package.samples import SAMPLES, ramp, t

import intaglio
from intaglio import BadFile, BadInput, BadKey, IntaglioError
from intaglio.package import Package, encryption, read
from intaglio.package import format as f
from intaglio.package.encryption import LEVELS
from intaglio.package.keys import Key
from intaglio.plan import Plan, Step, Tensor

pytest.importorskip("cryptography")

KEY = bytes(range(32))
SALT = bytes(range(100, 132))


def sealed(package: Package) -> np.ndarray:
    return np.frombuffer(package.bytes, np.uint8)


def encrypted(package: Package, level: str = "all", key: bytes = KEY, salt: bytes = SALT) -> bytes:
    return encryption.encrypt(sealed(package), level, key, salt).tobytes()


def fixed(data: bytes | bytearray) -> bytes:
    """The file with the checksums of its header and of section CRPT corrected."""
    data = bytearray(data)
    offset, size = struct.unpack_from("<QQ", data, 32 + 8)
    if offset + size <= len(data):
        struct.pack_into("<I", data, 32 + 24, zlib.crc32(data[offset : offset + size]))
    struct.pack_into("<I", data, 20, 0)
    count = min(struct.unpack_from("<I", data, 8)[0], 3)
    struct.pack_into("<I", data, 20, zlib.crc32(data[: 32 + 32 * count]))
    return bytes(data)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SAMPLES)
def test_it_runs_as_the_plain_package_does(name, level, tmp_path):
    sample = SAMPLES[name]()
    package = sample.package()
    package.save(tmp_path / "m.itg", encrypt=level, key=KEY)
    again = Package.load(tmp_path / "m.itg", key=KEY)
    assert again.bytes == package.bytes
    for source in (tmp_path / "m.itg", (tmp_path / "m.itg").read_bytes()):
        with intaglio.open(source, key=KEY, max_steps=10_000) as session:
            with intaglio.open(package, max_steps=10_000) as plain:
                assert session.inputs == plain.inputs
            if sample.outputs:
                outputs = session.run(sample.inputs)
                for output, wanted in sample.outputs.items():
                    np.testing.assert_array_equal(outputs[output], wanted)


def test_plain_packages_stay_reproducible_and_encrypted_ones_differ(tmp_path):
    package = SAMPLES["chain"]().package()
    assert package.bytes == SAMPLES["chain"]().package().bytes
    files = []
    for i in range(2):
        package.save(tmp_path / f"{i}.itg", encrypt="all", key=KEY)
        files.append((tmp_path / f"{i}.itg").read_bytes())
    assert files[0] != files[1]
    assert encrypted(package) == encrypted(package)  # with the same salt


def network(weights: int = 300_000) -> Package:
    """A package with names, a text in META, and weights that repeat: the easiest to see through."""
    w = Tensor.const(np.tile(ramp(10), weights // 10), t("f32", weights), "the_weights")
    x, y = Tensor(t("f32", weights), "input", name="the_input"), None
    y = Tensor(t("f32", weights), "output", name="the_output")
    plan = Plan([x], [y], [Step("add", [x, w], [y], {}, "the_node")])
    return Package.build([plan], meta={"name": "the_network", "labels": ["a cat", "a dog"]})


def entropy(data: bytes) -> float:
    """Bits per byte."""
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256)
    shares = counts[counts > 0] / len(data)
    return -sum(p * math.log2(p) for p in shares.tolist())


def strings(data: bytes, least: int = 5) -> list[bytes]:
    """Printable strings, as the program `strings` finds them."""
    return re.findall(rb"[ -~]{%d,}" % least, data)


WORDS = (b"the_weights", b"the_input", b"the_output", b"the_node", b"the_network", b"a cat", b"add")
KINDS = (b"META", b"PLAN", b"TENS", b"STEP", b"ARGS", b"ATTR", b"CNST", b"NAME")


def test_a_file_at_level_all_tells_nothing():
    package = network()
    data = encrypted(package)
    assert all(word in package.bytes for word in (*WORDS, *KINDS))
    assert entropy(package.bytes) < 5
    assert entropy(data) > 7.99
    assert not [word for word in (*WORDS[:-1], *KINDS) if word in data]
    assert len(data) - len(package.bytes) <= 256  # header, table, tags
    random_ones = len(strings(os.urandom(len(data))))
    assert len(strings(data)) < 2 * random_ones + 20
    zeros = re.findall(rb"\0{9,}", data[256:])  # no padding that shows where a section ends
    assert not zeros


def test_what_other_levels_leave_readable():
    package = network()
    weights, graph = encrypted(package, "weights"), encrypted(package, "graph")
    raw = ramp(10).tobytes() * 2
    assert raw in package.bytes
    assert raw not in weights
    assert raw not in graph
    assert all(word in weights for word in (*WORDS, *KINDS))
    assert not [word for word in WORDS[:-1] if word in graph]
    assert all(kind in graph for kind in KINDS)
    checksum = zlib.crc32(read(package.bytes).plans[0].steps[0].inputs[1].data.tobytes())
    assert struct.pack("<I", checksum) in package.bytes
    assert struct.pack("<I", checksum) not in weights  # it would tell which weights they are


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_part_in_two_files_differs(level):
    a = encrypted(network(), level)
    b = encrypted(network(), level, salt=bytes(32))
    tail = len(a) // 2
    same = np.frombuffer(a[tail:], np.uint8) == np.frombuffer(b[tail:], np.uint8)
    assert same.mean() < 0.01


# ---- keys ----
def test_sources_of_a_key(tmp_path, monkeypatch):
    data = encrypted(SAMPLES["chain"]().package())
    texts = {
        "raw": KEY,
        "hex": KEY.hex().encode(),
        "HEX": KEY.hex().upper().encode() + b"\n",
        "base64": base64.b64encode(KEY) + b"\r\n",
        "url": b"  " + base64.urlsafe_b64encode(KEY).rstrip(b"="),
    }
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
        intaglio.open(data, key=tmp_path / name).close()
        intaglio.open(data, key=str(tmp_path / name)).close()
        if name != "raw":
            monkeypatch.setenv("MODEL_KEY", text.decode())
            intaglio.open(data, key="env:MODEL_KEY").close()
    asked = []
    for key in (KEY, bytearray(KEY), lambda: asked.append(1) or KEY, Key(KEY)):
        intaglio.open(data, key=key).close()
    assert asked == [1]
    plain = SAMPLES["chain"]().package().bytes
    with pytest.raises(BadKey, match="is not encrypted, but a key was given"):
        intaglio.open(plain, key=lambda: asked.append(1) or KEY)
    assert asked == [1]  # a key is not asked for where it is not needed


def test_keys_that_are_refused(tmp_path, monkeypatch):
    data = encrypted(SAMPLES["chain"]().package())
    (tmp_path / "short").write_bytes(KEY[:31])
    (tmp_path / "long").write_bytes(KEY * 100)
    (tmp_path / "pem").write_bytes(b"-----BEGIN PRIVATE KEY-----\nabcd\n")
    (tmp_path / "empty").touch()
    monkeypatch.setenv("MODEL_KEY", KEY.hex()[:-1])
    for key, kind, words in [
        (None, BadKey, r"package is encrypted \(level all\); only its key opens it; give key="),
        (bytes(32), BadKey, "key does not fit the encrypted package"),
        (KEY[:31], BadKey, "key has 31 bytes; a key has 32"),
        (42, BadInput, "key is the class int; give 32 bytes, the path"),
        ("", BadInput, "key is the class str"),
        (tmp_path / "short", BadKey, "short has 31 bytes that are no key; a key is 32 bytes, 64"),
        (tmp_path / "long", BadKey, "long has .* bytes that are no key"),
        (tmp_path / "pem", BadKey, "that are no key"),
        (tmp_path / "empty", BadKey, "has 0 bytes that are no key"),
        (tmp_path / "none", BadKey, "cannot read key file .*none: No such file"),
        (tmp_path, BadKey, "cannot read key file .*: Is a directory"),
        ("env:NO_SUCH_KEY", BadKey, "environment variable NO_SUCH_KEY is not set"),
        ("env:MODEL_KEY", BadKey, "environment variable MODEL_KEY holds no key"),
        (lambda: KEY[:5], BadKey, "function of key= returns 5 bytes; a key has 32"),
        (lambda: "text", BadKey, "function of key= returns the class str"),
    ]:
        with pytest.raises(kind, match=words) as raised:
            intaglio.open(data, key=key)
        assert "\n" not in str(raised.value)


def test_an_exception_of_the_function_arrives():
    data = encrypted(SAMPLES["chain"]().package())

    def locked() -> bytes:
        raise ConnectionError("the vault is closed")

    with pytest.raises(ConnectionError, match="the vault is closed"):
        intaglio.open(data, key=locked)
    with pytest.raises(ConnectionError, match="the vault is closed"):
        encryption.encrypt(sealed(SAMPLES["chain"]().package()), "all", locked)


def test_no_message_tells_the_key(tmp_path, monkeypatch):
    data = encrypted(SAMPLES["chain"]().package(), key=bytes(32))
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "bad").write_text(KEY.hex() + "!")
    monkeypatch.setenv("MODEL_KEY", KEY.hex())
    monkeypatch.setenv("BAD_KEY", KEY.hex() + "0")
    text = base64.b64encode(KEY).decode()
    sources = [KEY, tmp_path / "key", tmp_path / "bad", "env:MODEL_KEY", "env:BAD_KEY", KEY.hex()]
    sources += [text, f"env:{KEY.hex()}", f"env:{text}", lambda: KEY, lambda: KEY * 2]
    for source in sources:
        with pytest.raises(IntaglioError) as raised:
            intaglio.open(data, key=source)
        shown = f"{raised.value!r} {Key(source)!r} {Key(source)}"
        for secret in (KEY.hex()[:8], text[:8], repr(KEY)[2:12]):
            assert secret not in shown, shown
    with pytest.raises(IntaglioError) as raised:
        intaglio.open(data, key=KEY, public_key=KEY)
    assert KEY.hex()[:8] not in str(raised.value)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Key(KEY))


def test_arguments_of_save_and_load(tmp_path):
    package = SAMPLES["chain"]().package()
    with pytest.raises(BadInput, match="encrypt= is given without key="):
        package.save(tmp_path / "m.itg", encrypt="all")
    with pytest.raises(BadInput, match="key= is given without encrypt="):
        package.save(tmp_path / "m.itg", key=KEY)
    with pytest.raises(BadInput, match="encrypt= is the string 'some'; it is one of \"weights\", "):
        package.save(tmp_path / "m.itg", encrypt="some", key=KEY)
    assert not list(tmp_path.iterdir())
    package.save(tmp_path / "m.itg", encrypt="all", key=KEY)
    with pytest.raises(BadKey, match=r"m\.itg: package is encrypted \(level all\)"):
        Package.load(tmp_path / "m.itg")
    with pytest.raises(BadKey, match=r"m\.itg: key does not fit"):
        Package.load(tmp_path / "m.itg", key=bytes(32))
    with pytest.raises(BadInput, match=r"key= is for files; .* give it to Package\.load"):
        intaglio.open(package, key=KEY)
    with pytest.raises(BadInput, match="encrypted already"):
        encryption.encrypt(np.frombuffer(encrypted(package), np.uint8), "all", KEY)
    with pytest.raises(BadKey, match="package is encrypted; only its key opens it"):
        read(encrypted(package))


def test_without_cryptography_packages_open_but_are_not_encrypted(tmp_path, monkeypatch):
    package = SAMPLES["chain"]().package()
    package.save(tmp_path / "m.itg", encrypt="all", key=KEY)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(intaglio.Unsupported, match="encryption needs the cryptography package"):
        package.save(tmp_path / "n.itg", encrypt="all", key=KEY)
    assert not (tmp_path / "n.itg").exists()
    intaglio.open(tmp_path / "m.itg", key=KEY).close()
    assert Package.load(tmp_path / "m.itg", key=KEY).bytes == package.bytes


# ---- changes ----
@pytest.mark.parametrize("level", LEVELS)
def test_every_changed_byte_is_refused(level):
    data = encrypted(SAMPLES["chain"]().package(), level)
    intaglio.open(data, key=KEY).close()
    rng = random.Random(level)
    for i in [*range(400), *(rng.randrange(len(data)) for _ in range(600))]:
        changed = bytearray(data)
        changed[i] ^= 1 << rng.randrange(8)
        for file in {bytes(changed), fixed(changed)} - {data}:
            with pytest.raises((BadFile, BadKey, intaglio.Unsupported)):
                intaglio.open(file, key=KEY)


def test_every_truncation_and_extension_is_refused():
    data = encrypted(SAMPLES["chain"]().package())
    for n in [*range(0, len(data), 7), len(data) + 1, len(data) + 64]:
        cut = bytearray((data + bytes(64))[:n])
        if n >= 128:
            for file in (cut, bytearray(cut)):
                with pytest.raises(IntaglioError):
                    intaglio.open(bytes(file), key=KEY)
                struct.pack_into("<Q", cut, 24, n)
                cut[:] = fixed(cut)
        with pytest.raises(IntaglioError):
            intaglio.open(bytes(cut), key=KEY)


def parts_of(data: bytes) -> tuple[int, np.ndarray, int]:
    """Offset of CRPT, its rows of parts, offset of BODY."""
    rows = np.frombuffer(data, f.SECTION, 2, 32)
    at, size = int(rows["offset"][0]), int(rows["size"][0])
    count = (size - f.CRYPT.itemsize) // f.PART.itemsize
    return at, np.frombuffer(data, f.PART, count, at + f.CRYPT.itemsize), int(rows["offset"][1])


def test_parts_of_another_file_are_refused(monkeypatch):
    """Under the same user's key; even with the whole record, or a part with its tag."""
    monkeypatch.setattr(encryption, "PART_BYTES", 256)
    package = SAMPLES["chain"]().package()
    a, b = encrypted(package), encrypted(package, salt=bytes(32))
    at, parts, body = parts_of(a)
    assert len(parts) > 3
    whole_record = a[:at] + b[at:body] + a[body:]
    whole_body = a[:body] + b[body:]
    one_part = bytearray(a)
    row = at + f.CRYPT.itemsize
    one_part[row : row + 32] = b[row : row + 32]
    one_part[body : body + 256] = b[body : body + 256]
    for file in (whole_record, whole_body, one_part):
        with pytest.raises((BadFile, BadKey), match=r"fails authentication|does not fit"):
            intaglio.open(fixed(file), key=KEY)


def test_parts_in_another_order_are_refused(monkeypatch):
    monkeypatch.setattr(encryption, "PART_BYTES", 256)
    data = encrypted(SAMPLES["chain"]().package())
    at, _, body = parts_of(data)
    row = at + f.CRYPT.itemsize
    swapped = bytearray(data)
    swapped[body : body + 512] = data[body + 256 : body + 512] + data[body : body + 256]
    with pytest.raises(BadFile, match="part 0 of the encrypted package fails authentication"):
        intaglio.open(bytes(swapped), key=KEY)
    swapped[row : row + 64] = data[row + 32 : row + 64] + data[row : row + 32]
    with pytest.raises(BadKey, match="does not fit the encrypted package, or somebody altered"):
        intaglio.open(fixed(swapped), key=KEY)


def test_a_hostile_package_of_a_key_holder_is_checked_as_any_other():
    """Whoever has the key can encrypt anything: the contents are checked as those of a file."""
    good = sealed(SAMPLES["chain"]().package())
    rng = random.Random(8)
    refused = 0
    for _ in range(200):
        changed = good.copy()
        changed[rng.randrange(40, len(changed))] ^= 1 << rng.randrange(8)
        try:
            made = encryption.encrypt(changed, "all", KEY).tobytes()
            intaglio.open(made, key=KEY).close()
        except IntaglioError:
            refused += 1
    assert 20 < refused < 200


def test_older_readers_refuse_an_encrypted_file_in_words():
    data = bytearray(encrypted(SAMPLES["chain"]().package()))
    data[12] |= 4  # a flag of the future
    with pytest.raises(BadFile, match="file has flags 0x5, which this runtime does not know"):
        intaglio.open(fixed(data), key=KEY)
    with pytest.raises(BadFile, match="flags 0x5, which this reader does not know"):
        read(bytes(data))


# ---- memory and threads ----
SEARCH = """
import gc, re, sys
import numpy as np
import intaglio
from intaglio.package import Package

path, key_file = sys.argv[1:]
session = intaglio.open(path, key=key_file)
package = Package.load(path, key=key_file)
for wrong in ("/nowhere", path, "env:NOTHING"):
    try:
        intaglio.open(path, key=wrong)
    except intaglio.IntaglioError:
        pass
gc.collect()
inverted = open(sys.argv[2] + ".inverted", "rb").read()[:16]  # no copy of the key of our own


def search():
    found = 0
    with open("/proc/self/smaps") as maps, open("/proc/self/mem", "rb", 0) as memory:
        for line in maps:
            if m := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                start, end = int(m[1], 16), int(m[2], 16)
            if not line.startswith("VmFlags: rd") or " dd" in line:
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, OverflowError, ValueError):
                continue
            found += inverted in (np.frombuffer(data, np.uint8) ^ 0x55).tobytes()
    return found


print(search())
kept = bytes(b ^ 0x55 for b in inverted)
print(search() > 0)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="needs Linux")
def test_a_key_from_a_file_is_in_no_memory_that_a_core_dump_has(tmp_path):
    key = os.urandom(32)
    SAMPLES["chain"]().package().save(tmp_path / "m.itg", encrypt="all", key=key)
    (tmp_path / "key").write_bytes(key)
    (tmp_path / "key.inverted").write_bytes(bytes(b ^ 0x55 for b in key))
    command = [sys.executable, "-c", SEARCH, tmp_path / "m.itg", tmp_path / "key"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]  # and the search finds a copy that is there


def test_decrypted_memory_is_left_out_of_core_dumps_and_wiped():
    data = np.frombuffer(encrypted(network()), np.uint8)
    image = encryption.decrypt(data, KEY)
    if Path("/proc/self/smaps").exists():
        flags = None
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if m := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
                inside = int(m[1], 16) <= image.ctypes.data < int(m[2], 16)
            elif line.startswith("VmFlags:") and inside:
                flags = line.split()
        assert flags is not None
        assert "dd" in flags
    view = image[:20]
    assert view.tobytes() == network().bytes[:20]
    del image
    assert view.any()  # a view keeps the memory


def test_many_threads_open_at_once(tmp_path):
    sample = SAMPLES["chain"]()
    sample.package().save(tmp_path / "m.itg", encrypt="all", key=KEY)
    failures: list[str] = []

    def work(number: int) -> None:
        for i in range(15):
            try:
                with intaglio.open(tmp_path / "m.itg", key=lambda: KEY) as session:
                    outputs = session.run(sample.inputs)
                np.testing.assert_array_equal(outputs["y"], sample.outputs["y"])
                with pytest.raises(BadKey):
                    intaglio.open(tmp_path / "m.itg", key=bytes([number, i] * 16))
            except BaseException as e:
                failures.append(repr(e))

    threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_large_packages_have_several_parts(monkeypatch):
    monkeypatch.setattr(encryption, "PART_BYTES", 100_000)
    package = network()
    for level in LEVELS:
        data = encrypted(package, level)
        _, parts, _ = parts_of(data)
        assert len(parts) > 10
        assert int(parts["size"].max()) <= 100_000
        assert encryption.decrypt(np.frombuffer(data, np.uint8), KEY).tobytes() == package.bytes
