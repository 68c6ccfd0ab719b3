"""Damaged and malicious PyTorch files: each is refused in words; no code of a file is executed."""

from __future__ import annotations

import random
import resource
import time

import pytest
from tests.frontends.test_torch_files import NET, W, X, net, program
from tests.frontends.torch_build import Object, Pickler, Raw, records_of, script, weights, zipped

import intaglio
from intaglio.errors import BadFile, BadInput, IntaglioError
from intaglio.frontends.options import ImportOptions
from intaglio.frontends.torch import load_torch


# ---- no code of a file is executed ---------------------------------------------------------------
def test_calls_in_a_pickle_are_refused():
    calls = Raw(b"cos\nsystem\n(X\x04\x00\x00\x00truetR")
    with pytest.raises(
        BadFile, match=r"asks to call 'os\.system'.*no code of a file is ever executed"
    ):
        load_torch(script({"__torch__": NET}, Object("__torch__.Net", {"a": calls})))
    with pytest.raises(BadFile, match=r"asks to make a 'subprocess\.Popen'"):
        load_torch(script({"__torch__": NET}, Object("subprocess.Popen", {})))
    inst = Raw(b"(X\x04\x00\x00\x00trueios\nsystem\n")
    with pytest.raises(BadFile, match="opcode INST"):
        load_torch(script({"__torch__": NET}, Object("__torch__.Net", {"a": inst})))


@pytest.mark.parametrize(
    "line",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "eval('1')",
        "(lambda: 1)()",
        "[y for y in x]",
        "x.__class__.__bases__",
        "print(x)",
        "torch.ops.load_library('x')",
    ],
)
def test_code_that_is_no_torchscript_is_refused(line):
    code = (
        f"class Net(Module):\n  def forward(self: Any, x: Tensor) -> Tensor:\n    return {line}\n"
    )
    with pytest.raises(IntaglioError):
        load_torch(script({"__torch__": code}, Object("__torch__.Net", {}), (), [X]))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("while True:\n      x = torch.relu(x)\n    return x", "1000 operators"),
        ("while True:\n      y = 1\n    return x", "10000 statements"),
        ("return (self).forward(x, )", "nested more than"),
        ("n = 9\n    for i in range(40):\n      n = torch.mul(n, n)\n    return x", "of 102 bits"),
        ("return torch.reshape(x, [int(1e300)])", "of 997 bits"),
        (
            "n = int(1e300)\n    for i in range(40):\n      n = torch.mul(n, n)\n    return x",
            "bits",
        ),
        (
            "a = ['a', 'a']\n    for i in range(40):\n      a = ['-'.join(a), '-'.join(a)]\n"
            "    return x",
            "grows to",
        ),
        (
            "a = torch.mul('a', 100000)\n    b = torch.replace(a, 'a', a)\n    return x",
            "grows to 10000000000 items",
        ),
        ("a = ops.prim.rangelist(10000000000)\n    return x", "grows to 10000000000 items"),
        ("a = [1]\n    for i in range(100):\n      a = torch.add(a, a)\n    return x", "grows to"),
        ("return torch.zeros([1000000, 1000000])", "elements are supported"),
        ("return torch.expand(x, [1000000000, 2, 4])", ""),
        ("a = torch.mul([1], 1000000000)\n    return x", "repeated"),
        ("a = torch.pow(10, 100000000)\n    return x", "to the power"),
        ("return torch.arange(100000000000)", "range"),
        (
            "a = [x]\n    for i in range(60):\n      a = [a, a]\n    return torch.stack(a)",
            "hold more than",
        ),
        ("a = [x]\n    for i in range(60):\n      a = [a, a]\n    return a", "hold more than"),
        ("a = [x]\n    _0 = torch.append(a, a)\n    return torch.stack(a)", "hold more than"),
        (
            "a = [x]\n    for i in range(99):\n      _0 = torch.append(a, torch.zeros([9000000]))\n"
            "    return x",
            "MiB are computed",
        ),
        (
            "a = torch.ones([1, 4, 1024, 1024])\n    b = torch.ones([64, 4, 99, 99])\n"
            "    return torch.conv2d(a, b)",
            "",
        ),
        ("return self.missing", "no attribute"),
        ("return y", "read before it is set"),
        ("return torch.relu()", "relu"),
        ("return torch.relu(x, x, x)", "relu"),
        ("return torch.view(x, [3, 3])", "view"),
        ("return (x)[0]", "item 0"),
    ],
)
def test_hostile_code(body, words, monkeypatch):
    monkeypatch.setattr("intaglio.frontends.torch.program.MAX_CALLS", 1000)
    monkeypatch.setattr("intaglio.frontends.torch.program.MAX_FOLDED_BYTES", 100 << 20)
    monkeypatch.setattr("intaglio.frontends.torch.script_frame.MAX_STATEMENTS", 10_000)
    code = f"class Net(Module):\n  def forward(self: Any, x: Tensor) -> Tensor:\n    {body}\n"
    data = script({"__torch__": code}, Object("__torch__.Net", {}), (), [X])
    start = time.monotonic()
    if words:
        with pytest.raises(IntaglioError, match=words):
            load_torch(data)
    else:
        load_torch(data)  # only a node: it takes neither memory nor time
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("line", ["torch.cat([x, x])", "torch.repeat(x, [2, 2])"])
def test_tensors_that_double_are_refused(line, tmp_path):
    code = (
        "class Net(Module):\n  def forward(self: Any, x: Tensor) -> Tensor:\n"
        f"    for i in range(40):\n      x = {line}\n    return x\n"
    )
    path = tmp_path / "m.pt"
    path.write_bytes(script({"__torch__": code}, Object("__torch__.Net", {}), (), [X]))
    with pytest.raises(BadInput, match=r"takes .* GiB; the limit is 2 GiB; .*allow_large=True"):
        intaglio.load(path)


def test_damaged_archives():
    good = net()
    for cut in (0, 10, len(good) // 2, len(good) - 30):
        with pytest.raises(IntaglioError):
            load_torch(good[:cut])
    for gone in ("data.pkl", "data/0", "code/__torch__.py"):
        records = {k: v for k, v in records_of(good).items() if k != gone}
        with pytest.raises(IntaglioError):
            load_torch(zipped(records))
    bomb = records_of(good) | {"data/0": b""}
    with pytest.raises(BadFile, match="elements"):
        load_torch(zipped(bomb))


def test_an_archive_that_unpacks_to_too_much(tmp_path):
    import zipfile

    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in records_of(net()).items():
            z.writestr(f"m/{name}", data)
        z.writestr("m/data/9", bytes(200 << 20))
    with pytest.raises(BadFile, match="unpack to"):
        intaglio.load(path)


def test_tensors_outside_of_their_storage():
    p = Pickler("data")
    stored = p.name("torch._utils._rebuild_tensor_v2") + p.tensor(W)
    for old, new in (((3, 4), (3, 5)), ((3, 4), (-3, 4)), ((4, 1), (400000, 1))):
        hostile = stored.replace(p.put(old), p.put(new)) + b"R"
        root = Object("__torch__.Net", {"weight": Raw(hostile)})
        records = records_of(script({"__torch__": NET}, root)) | p.records
        with pytest.raises(BadFile, match="damaged"):
            load_torch(zipped(records), ImportOptions(shapes={"x": (2, 4)}))


def test_records_whose_names_are_no_text(tmp_path):
    data = zipped({"data.pkl": b"", "constants.pkl": b"", "code/ü.py": b""})
    file = tmp_path / "bad.pt"
    file.write_bytes(data.replace("ü".encode(), b"\xff\xff"))
    with pytest.raises(BadFile, match="damaged"):
        intaglio.load(file)


# ---- mutated files -------------------------------------------------------------------------------
def mutated(data: bytes, rng: random.Random) -> bytes:
    """Mutate one record and repack it with valid checksums, or mutate the whole file."""
    if rng.random() < 0.15:
        return _bent(data, rng)
    records = records_of(data)
    name = rng.choice([n for n, d in records.items() if d])
    return zipped(records | {name: _bent(records[name], rng)})


def _bent(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(made)) if made else 0
        match rng.randrange(5):
            case 0:
                made[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del made[at : at + rng.choice([1, 4, 40])]
            case 2:
                made[at:at] = (
                    made[rng.randrange(len(made)) :][: rng.choice([1, 8, 64])] if made else b""
                )
            case 3:
                made[at : at + 4] = rng.choice([b"\xff\xff\xff\x7f", b"\0\0\0\0", b"9999", b"-1, "])
            case 4:
                made = made[:at] if rng.random() < 0.3 else made
    return bytes(made)


def _mutations(count: int) -> None:
    rng = random.Random(1)
    files = [net(), program(), weights({"w": W})]
    for good in files[:2]:  # the third is refused: it has no code
        load_torch(good)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slowest = 0.0
    for i in range(count):
        data = mutated(files[i % len(files)], rng)
        start = time.monotonic()
        words = "read"
        try:
            load_torch(data)
        except IntaglioError as e:
            words = str(e)
        assert words
        assert "\n" not in words
        slowest = max(slowest, time.monotonic() - start)
    assert slowest < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20  # KiB


def test_mutated_files():
    _mutations(300)


@pytest.mark.slow
def test_many_mutated_files():
    _mutations(6000)
