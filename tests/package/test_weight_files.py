"""Packages without weights: they run, share one mapping, and refuse files that do not fit."""

from __future__ import annotations

import gc
import hashlib
import os
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest
from tests.package.mutate_weights import fix
from tests.package.samples import SAMPLES, Sample, const, ramp, t

import intaglio
from intaglio import BadFile, BadInput, BadKey
from intaglio.package import Package
from intaglio.package import format as f
from intaglio.package.read import sections
from intaglio.package.weight_file import NewWeightFile, WeightFile
from intaglio.package.write import assemble
from intaglio.plan import Plan, State, Step, Tensor


def big(scale: float = 1.0, rows: int = 4) -> Sample:
    """y = x * a + b, with a constant that every size shares and a small one."""
    x = Tensor(t("f32", rows, 50_000), "input", name="x")
    y = Tensor(t("f32", rows, 50_000), "output", name="y")
    a, b = Tensor.const(ramp(50_000) * np.float32(scale), t("f32", 50_000)), const([0.5])
    inner = Tensor(t("f32", rows, 50_000))
    steps = [Step("mul", [x, a], [inner]), Step("add", [inner, b], [y])]
    data = np.ones((rows, 50_000), np.float32)
    assert a.data is not None
    want = data * a.data + np.float32(0.5)
    return Sample([Plan([x], [y], steps, inner.size)], {"x": data}, {"y": want})


def run(source: object, sample: Sample, **options: object) -> None:
    with intaglio.open(source, max_steps=10_000, **options) as session:  # type: ignore[arg-type]
        outputs = session.run(sample.inputs)
        for name, wanted in sample.outputs.items():
            np.testing.assert_array_equal(outputs[name], wanted)


def renamed(package: bytes, name: bytes) -> bytes:
    """The package with another name of its weight file."""
    parts, isa = sections(package)
    rows = np.frombuffer(parts["WGTS"], f.WEIGHTS).copy()
    rows["name"] = len(parts["NAME"])
    changed = {"NAME": bytes(parts["NAME"]) + name + b"\0", "WGTS": rows.tobytes()}
    return assemble({**parts, **changed}, isa)


@pytest.mark.parametrize("swappable", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_it_runs_as_the_whole_package_does(name, swappable, tmp_path):
    sample = SAMPLES[name]()
    sample.package().save(tmp_path / "m.itg", weights="m.weights", swappable=swappable)
    run(tmp_path / "m.itg", sample)
    run(tmp_path / "m.itg", sample, verify=False)
    run(tmp_path / "m.itg", sample, copy=True)
    run(Package.load(tmp_path / "m.itg"), sample)
    run((tmp_path / "m.itg").read_bytes(), sample, weights=tmp_path / "m.weights")
    run((tmp_path / "m.itg").read_bytes(), sample, weights=tmp_path)


def test_the_package_holds_no_constants_and_blobs_are_aligned(tmp_path):
    big().package().save(tmp_path / "m.itg", weights="m.weights")
    assert (tmp_path / "m.itg").stat().st_size < 8192
    file = WeightFile.open(tmp_path / "m.weights")
    assert not np.any(file.blobs["offset"] % 64)
    assert sorted(file.blobs["size"]) == [4, 200_000]
    assert Package.load(tmp_path / "m.itg").weight_files[0].bytes == 200_004


def test_the_same_package_gives_the_same_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        big().package().save(tmp_path / name / "m.itg", weights="m.weights")
    for file in ("m.itg", "m.weights"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_initial_states_lie_in_the_weight_file(tmp_path):
    x, s = Tensor(t("f32", 3), "input", name="x"), Tensor(t("f32", 3), "input", slot=1, name="s")
    y = Tensor(t("f32", 3), "output", name="y")
    again = Tensor(t("f32", 3), "output", slot=1, name="s")
    steps = [Step("add", [x, s], [y]), Step("add", [x, s], [again])]
    plan = Plan([x, s], [y, again], steps, states=[State(1, 1, ramp(3))])
    Package.build([plan]).save(tmp_path / "m.itg", weights="m.weights", swappable=True)
    for source in (tmp_path / "m.itg", Package.load(tmp_path / "m.itg")):
        with intaglio.open(source) as session:
            one = np.ones(3, np.float32)
            session.run({"x": one})
            np.testing.assert_array_equal(session.run({"x": one})["y"], ramp(3) + 2)
            session.reset()
            np.testing.assert_array_equal(session.state["s"], ramp(3))


# ---- sharing -----------------------------------------------------------------------------------
def test_two_packages_share_a_weight_file(tmp_path):
    big().package().save(tmp_path / "a.itg", weights="a.weights")
    big(rows=7).package().save(tmp_path / "b.itg", weights_from=tmp_path / "a.itg")
    big(2.0).package().save(tmp_path / "c.itg", weights_from=[tmp_path / "a.weights"])
    for name in ("a", "b"):
        assert (tmp_path / f"{name}.itg").stat().st_size < 8192
        run(tmp_path / f"{name}.itg", big(rows=7 if name == "b" else 4))
    assert (tmp_path / "c.itg").stat().st_size > 200_000  # the large constant differs
    run(tmp_path / "c.itg", big(2.0))
    assert [p.bytes for p in Package.load(tmp_path / "c.itg").weight_files] == [4]
    big(2.0).package().save(
        tmp_path / "d.itg", weights_from=tmp_path / "a.weights", weights="d.weights"
    )
    run(tmp_path / "d.itg", big(2.0))
    run((tmp_path / "d.itg").read_bytes(), big(2.0), weights=tmp_path)
    run(tmp_path / "d.itg", big(2.0), weights=tmp_path / "a.weights")
    assert [p.name for p in Package.load(tmp_path / "d.itg").weight_files] == [
        "a.weights",
        "d.weights",
    ]
    big(3.0).package().save(tmp_path / "e.itg", weights="e.weights")
    with pytest.raises(BadFile, match="is none of the 2 that the package names"):
        intaglio.open(tmp_path / "d.itg", weights=tmp_path / "e.weights")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_one_mapping_serves_all_models_of_a_process(tmp_path):
    big().package().save(tmp_path / "a.itg", weights="a.weights")
    big(rows=7).package().save(tmp_path / "b.itg", weights_from=tmp_path / "a.weights")

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path / "a.weights"))

    sessions = [intaglio.open(tmp_path / f"{n}.itg") for n in ("a", "b", "a")]
    assert mapped() == 1
    threads = [
        threading.Thread(target=lambda: sessions.append(intaglio.open(tmp_path / "b.itg")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(sessions), mapped()) == (11, 1)
    sessions.clear()
    gc.collect()
    assert mapped() == 0


def test_a_replaced_file_is_mapped_anew(tmp_path):
    big().package().save(tmp_path / "m.itg", weights="m.weights", swappable=True)
    old = intaglio.open(tmp_path / "m.itg")
    package = big(2.0).package()
    package.weight_files = Package.load(tmp_path / "m.itg").weight_files
    package.save_weights(tmp_path / "m.weights")
    run(tmp_path / "m.itg", big(2.0))
    np.testing.assert_array_equal(old.run(big().inputs)["y"], big().outputs["y"])


def test_a_forked_child_opens_weights(tmp_path):
    big().package().save(tmp_path / "m.itg", weights="m.weights")
    code = """
import os, sys, threading, intaglio
path = sys.argv[1]
kept = intaglio.open(path)
threading.Thread(target=lambda: [intaglio.open(path).close() for _ in range(200)]).start()
for _ in range(20):
    pid = os.fork()
    if not pid:
        intaglio.open(path).close()
        kept.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "m.itg"], timeout=120)
    assert done.returncode == 0


# ---- refusals ----------------------------------------------------------------------------------
OPENERS = [intaglio.open, Package.load]


@pytest.mark.parametrize("opened", OPENERS)
def test_a_missing_truncated_or_other_file(opened, tmp_path):
    path, weights = tmp_path / "m.itg", tmp_path / "m.weights"
    big().package().save(path, weights="m.weights")
    good = weights.read_bytes()
    for size in (0, 1, 63, 64, 200, len(good) - 64, len(good) - 1):
        weights.write_bytes(good[:size])
        with pytest.raises(BadFile, match=r"is empty|is truncated"):
            opened(path)
    weights.write_bytes(good + bytes(64))
    with pytest.raises(BadFile, match=r"header says"):
        opened(path)
    weights.write_bytes(b"ITG1" + good[4:])
    with pytest.raises(BadFile, match="does not start with ITGW"):
        opened(path)
    weights.unlink()
    with pytest.raises(BadFile, match=r"'m.weights' is missing; it belongs beside the package"):
        opened(path)
    SAMPLES["chain"]().package().save(tmp_path / "o.itg", weights="o.weights", swappable=True)
    with pytest.raises(BadFile, match="was made for another model"):
        opened(path, weights=tmp_path / "o.weights")
    (tmp_path / "o.weights").rename(weights)
    with pytest.raises(BadFile, match=r"'m.weights' was made for another model"):
        opened(path)
    big(2.0).package().save(tmp_path / "o.itg", weights="o.weights")
    with pytest.raises(BadFile, match="has other contents than the package was made with"):
        opened(path, weights=tmp_path / "o.weights")


@pytest.mark.parametrize("opened", OPENERS)
def test_any_changed_byte_is_noticed(opened, tmp_path):
    path, weights = tmp_path / "m.itg", tmp_path / "m.weights"
    SAMPLES["chain"]().package().save(path, weights="m.weights")
    good = weights.read_bytes()
    used = {i for r in WeightFile.open(weights).blobs for i in range(r[0], r[0] + r[1])}
    head = 64 + 56 * len(WeightFile.open(weights).blobs)
    for at in [*range(head), *used]:
        changed = bytearray(good)
        changed[at] ^= 1 << at % 8
        weights.write_bytes(changed)
        with pytest.raises(BadFile):
            opened(path)
        if at >= head:
            continue
        fix(changed)
        weights.write_bytes(changed)
        if changed != good:
            with pytest.raises(BadFile):
                opened(path)


@pytest.mark.parametrize("opened", OPENERS)
@pytest.mark.parametrize(
    "name",
    [b"../m.weights", b"/etc/passwd", b"sub/m.weights", b"..", b".", b"", b"a\\b", b".m", b"a\nb"],
)
def test_only_plain_names_are_looked_up(opened, name, tmp_path):
    (tmp_path / "sub").mkdir()
    big().package().save(tmp_path / "sub" / "m.itg", weights="m.weights")
    hostile = renamed((tmp_path / "sub" / "m.itg").read_bytes(), name)
    (tmp_path / "sub" / "h.itg").write_bytes(hostile)
    os.link(tmp_path / "sub" / "m.weights", tmp_path / "m.weights")
    with pytest.raises(BadFile, match="only plain names of files beside it are allowed"):
        opened(tmp_path / "sub" / "h.itg")


@pytest.mark.parametrize("opened", OPENERS)
def test_links_pipes_and_folders_are_not_followed(opened, tmp_path):
    path, weights = tmp_path / "m.itg", tmp_path / "m.weights"
    big().package().save(path, weights="m.weights")
    weights.rename(tmp_path / "real")
    weights.symlink_to(tmp_path / "real")
    with pytest.raises(BadFile, match="is a symbolic link, which is not followed"):
        opened(path)
    opened(path, weights=weights)  # the user may give a link
    weights.unlink()
    os.mkfifo(weights)
    for options in ({}, {"weights": weights}):
        with pytest.raises(BadFile, match="is no regular file"):
            opened(path, **options)
    weights.unlink()
    weights.mkdir()
    with pytest.raises(BadFile, match="is no regular file"):
        opened(path)


def test_weights_for_a_package_that_needs_none(tmp_path):
    big().package().save(tmp_path / "m.itg")
    for opened in OPENERS:
        with pytest.raises(BadInput, match="holds its weights itself, but weights= was given"):
            opened(tmp_path / "m.itg", weights=tmp_path / "m.itg")
    with pytest.raises(BadInput, match="weights= is for files; a Package is open"):
        intaglio.open(big().package(), weights=tmp_path)


def test_bytes_alone_say_what_is_missing(tmp_path):
    big().package().save(tmp_path / "m.itg", weights="m.weights")
    data = (tmp_path / "m.itg").read_bytes()
    with pytest.raises(BadFile, match="was not opened as a file; give weights="):
        intaglio.open(data)
    with pytest.raises(BadFile, match="has its weights in another file"):
        Package(data).contents  # noqa: B018


def test_a_constant_outside_of_the_blobs(tmp_path):
    path = tmp_path / "m.itg"
    big().package().save(path, weights="m.weights", swappable=True)
    parts, isa = sections(path.read_bytes())
    size = (tmp_path / "m.weights").stat().st_size
    for field, value in (("offset", 0), ("offset", size), ("slot", 2), ("size", 1 << 40)):
        rows = np.frombuffer(parts["TENS"], f.TENSOR).copy()
        rows[field][np.flatnonzero(rows["memory"] == 0)[0]] = value
        path.write_bytes(assemble({**parts, "TENS": rows.tobytes()}, isa))
        with pytest.raises(BadFile, match=r"lies outside of section WGTS|weight file 2"):
            intaglio.open(path)


def test_too_many_weight_files(tmp_path):
    path = tmp_path / "m.itg"
    big().package().save(path, weights="m.weights")
    parts, isa = sections(path.read_bytes())
    path.write_bytes(assemble({**parts, "WGTS": bytes(parts["WGTS"]) * 9}, isa))
    for opened in OPENERS:
        with pytest.raises(BadFile, match="names 9 weight files; at most 8 are allowed"):
            opened(path)


def test_where_weight_files_may_lie(tmp_path):
    package, folder = big().package(), tmp_path / "sub"
    folder.mkdir()
    with pytest.raises(BadInput, match="does not lie beside the package; give its name alone"):
        package.save(tmp_path / "m.itg", weights=folder / "m.weights")
    for name in (".hidden", "a:b"):
        with pytest.raises(BadInput, match="has no plain name"):
            package.save(tmp_path / "m.itg", weights=name)
    with pytest.raises(BadInput, match="is the package or a shared weight file"):
        package.save(tmp_path / "m.itg", weights="m.itg")
    package.save(folder / "m.itg", weights=folder / "m.weights")
    with pytest.raises(BadInput, match="does not lie in the folder of the package"):
        package.save(tmp_path / "n.itg", weights_from=folder / "m.weights")
    package.save(folder / "whole.itg")
    with pytest.raises(BadInput, match="holds its weights itself; move them to a file first"):
        package.save(folder / "n.itg", weights_from=folder / "whole.itg")
    with pytest.raises(BadInput, match="swappable is for a package with a weight file"):
        package.save(folder / "n.itg", swappable=True)
    with pytest.raises(BadInput, match="was not loaded from one with swappable weights"):
        Package.load(folder / "m.itg").save_weights(folder / "n.weights")


def test_an_empty_weight_file_of_a_package_without_constants(tmp_path):
    SAMPLES["quantised"]().package().save(tmp_path / "m.itg", weights="m.weights")
    assert (tmp_path / "m.weights").stat().st_size == 64
    run(tmp_path / "m.itg", SAMPLES["quantised"]())


# ---- encryption and signatures -----------------------------------------------------------------
def with_same_crc(data: bytearray, start: int) -> None:
    """Change byte `start`, and the four after it so that the CRC-32 of `data` stays."""
    wanted = zlib.crc32(data)
    data[start] ^= 0x55
    zeros = bytes(len(data))
    effects = []  # of each bit of the four bytes on the checksum, which is linear
    for bit in range(32):
        probe = bytearray(len(data))
        probe[start + 1 + bit // 8] = 1 << bit % 8
        effects.append((zlib.crc32(probe) ^ zlib.crc32(zeros), 1 << bit))
    left, chosen = zlib.crc32(data) ^ wanted, 0
    for bit in range(32):
        pivot = next(i for i in range(bit, 32) if effects[i][0] >> bit & 1)
        effects[bit], effects[pivot] = effects[pivot], effects[bit]
        for i in range(32):
            if i != bit and effects[i][0] >> bit & 1:
                effects[i] = (effects[i][0] ^ effects[bit][0], effects[i][1] ^ effects[bit][1])
    for bit in range(32):
        if left >> bit & 1:
            chosen ^= effects[bit][1]
    for i, byte in enumerate(struct.pack("<I", chosen)):
        data[start + 1 + i] ^= byte
    assert zlib.crc32(data) == wanted


def test_a_signature_covers_the_weights(tmp_path):
    pytest.importorskip("cryptography")
    from intaglio.package.signing import private_key_of, sign

    private = bytes(range(32))
    public = private_key_of(private).public_key().public_bytes_raw()
    path, weights = tmp_path / "m.itg", tmp_path / "m.weights"
    big().package().save(path, weights="m.weights", sign=private)
    run(path, big(), public_key=public)
    run(Package.load(path, public_key=public), big())
    data = bytearray(weights.read_bytes())
    blob = max(WeightFile.open(weights).blobs, key=lambda r: r["size"])
    part = data[blob["offset"] : blob["offset"] + blob["size"]]
    with_same_crc(part, 1000)
    data[blob["offset"] : blob["offset"] + blob["size"]] = part
    weights.write_bytes(data)
    intaglio.open(path).close()  # checksums do not find a forgery
    for opened in OPENERS:
        with pytest.raises(BadFile, match=r"not the one that was signed|that was not signed"):
            opened(path, public_key=public)
    with pytest.raises(BadInput, match="swappable weights may change after the signature"):
        big().package().save(path, weights="m.weights", swappable=True, sign=private)
    big().package().save(path, weights="m.weights", swappable=True)
    with pytest.raises(BadInput, match="may be swapped, which a signature cannot cover"):
        sign(np.fromfile(path, np.uint8), private)


def test_public_key_refuses_swappable_weights(tmp_path, monkeypatch):
    pytest.importorskip("cryptography")
    from intaglio.package import signing

    private = bytes(range(32))
    public = signing.private_key_of(private).public_key().public_bytes_raw()
    big().package().save(tmp_path / "m.itg", weights="m.weights", swappable=True)
    monkeypatch.setattr(signing, "_refuse_swappable", lambda data: None)
    signed = signing.sign(np.fromfile(tmp_path / "m.itg", np.uint8), private)
    (tmp_path / "m.itg").write_bytes(signed.tobytes())
    for opened in OPENERS:
        with pytest.raises(BadKey, match=r"takes any contents of weight file 'm.weights'"):
            opened(tmp_path / "m.itg", public_key=public)


def test_encrypted_packages_hold_their_weights(tmp_path):
    pytest.importorskip("cryptography")
    from intaglio.package.encryption import encrypt

    key = bytes(range(32))
    with pytest.raises(BadInput, match="an encrypted package holds its own weights"):
        big().package().save(tmp_path / "m.itg", weights="m.weights", encrypt="all", key=key)
    big().package().save(tmp_path / "m.itg", weights="m.weights")
    hidden = encrypt(np.fromfile(tmp_path / "m.itg", np.uint8), "all", key)
    (tmp_path / "m.itg").write_bytes(hidden.tobytes())
    for opened in OPENERS:
        with pytest.raises(BadFile, match="weight"):
            opened(tmp_path / "m.itg", key=key)


def test_hashes_are_those_of_the_bytes():
    new = NewWeightFile()
    new.add(np.arange(100, dtype=np.uint8))
    new.add(np.arange(7, dtype=np.uint8))
    pieces, content = new.pieces(bytes(range(32)))
    data = np.frombuffer(b"".join(pieces), np.uint8)
    file = WeightFile(data, "w", hashed=True)
    assert (file.content, file.layout) == (content, bytes(range(32)))
    first = hashlib.sha256(bytes(range(100))).digest()
    assert file.places[100, first] == new.offsets[0] == 192
