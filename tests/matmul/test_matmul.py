"""Matrix products: numpy, the CPU and the simulator agree; the limits of chips are enforced."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import BadInput, IntaglioError, Unsupported
from intaglio.matmul import COMBINATIONS, layouts
from intaglio.targets import chip as chips

M, K, N = 5, 64, 128
CHIPS = [n for n in chips.names() if chips.load(n).matmul]
BITS = {"i4": 4, "i8": 8}
FLOAT = {"f16": 2e-3, "bf16": 1e-2, "f32": 1e-5}  # of the largest result


def draw(kind, *shape, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "f16":
        return rng.normal(size=shape).astype(np.float16)
    half = 1 << BITS[kind] - 1
    return rng.integers(-half, half, shape).astype(np.int8)


def want(types, a, b, a_scale=1.0, a_zero=0, b_scale=1.0, b_zero=0, c_scale=1.0, c_zero=0):
    """The expected result: exact sums, then f32."""
    kind, _, result = types.split(",")
    scale, zero = np.asarray(b_scale, np.float32), np.asarray(b_zero)
    if scale.ndim == 2:
        size = len(b) // len(scale)
        spread = np.broadcast_to(zero, scale.shape)
        parts = [
            want(
                f"{kind},i8,f32",
                a[:, i * size :][:, :size],
                b[i * size :][:size],
                a_scale,
                a_zero,
                scale[i],
                spread[i],
            )
            for i in range(len(scale))
        ]
        real = np.sum(parts, 0, np.float32)
        return real if result != "i8" else rounded(real / np.float32(c_scale), c_zero)
    if kind == "f16":
        return a.astype(np.float64) @ ((b.astype(np.float64) - zero) * scale)
    sums = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - zero)
    if result in ("i16", "i32"):
        info = np.iinfo(np.int16 if result == "i16" else np.int32)
        return np.clip(sums, info.min, info.max)
    factor = np.float32(a_scale) * scale
    if result == "i8":
        return rounded(sums.astype(np.float32) * (factor / np.float32(c_scale)), c_zero)
    return sums.astype(np.float32) * factor


def rounded(real, zero):
    return np.clip(np.rint(real) + np.float32(zero), -128, 127)


def agree(types, got, right):
    kind, _, result = types.split(",")
    assert got.shape == right.shape
    if result in ("i8", "i16", "i32") or (kind != "f16" and result == "f32"):
        np.testing.assert_array_equal(got, right)
    else:
        np.testing.assert_allclose(
            got.astype(np.float64), right, rtol=0, atol=FLOAT[result] * np.abs(right).max()
        )


def targets(types):
    return ["cpu", *(c for c in CHIPS if types in chips.load(c).matmul.types)]


EVERY = [(t, target) for t in COMBINATIONS for target in targets(t)]


@pytest.mark.parametrize(("types", "target"), EVERY)
def test_every_combination(types, target):
    kind, other, result = types.split(",")
    a, b = draw(kind, M, K), draw(other, K, N, seed=1)
    given = {}
    if other != "f16" and result not in ("i16", "i32"):
        given = {"b_scale": np.linspace(0.01, 0.02, N, dtype=np.float32)}
    if kind != "f16":
        given["a_zero"] = -3
    if result == "i8":
        given |= {"a_scale": 0.5, "c_scale": 4.0, "c_zero": 7}
    mm = intaglio.Matmul(b, types=types, m=M, target=target, **given)
    got = mm(a)
    agree(types, got, want(types, a, b, **given))
    assert len(np.unique(got)) > 20


@pytest.mark.parametrize("target", ["cpu", "rk3588"])
@pytest.mark.parametrize("types", ["i8,i8,f32", "i8,i8,i8"])
def test_groups_of_rows_have_their_scales(types, target):
    a, b = draw("i8", M, K), draw("i8", K, N, seed=1) // 2
    given = {
        "b_scale": np.random.default_rng(2).uniform(0.01, 0.02, (2, N)).astype(np.float32),
        "b_zero": np.full((2, N), 5),
        "a_zero": 4,
        "a_scale": 0.1,
    }
    given |= {"c_scale": 0.3} if types.endswith("i8") else {}
    mm = intaglio.Matmul(b, types=types, m=M, target=target, **given)
    np.testing.assert_allclose(mm(a), want(types, a, b, **given), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("target", ["cpu", "rk3576"])
@pytest.mark.parametrize("types", ["f16,i8,f32", "f16,i4,f16"])
def test_groups_of_weights_for_floats(types, target):
    kind, other, _ = types.split(",")
    a, b = draw(kind, M, K), draw(other, K, N, seed=1)
    scale = np.random.default_rng(2).uniform(0.01, 0.02, (2, N)).astype(np.float32)
    given = {"b_scale": scale, "b_zero": np.arange(2 * N).reshape(2, N) % 7 - 3}
    full = {k: np.repeat(v, K // 2, 0) for k, v in given.items()}
    right = a.astype(np.float64) @ ((b - full["b_zero"]) * full["b_scale"])
    got = intaglio.Matmul(b, types=types, m=M, target=target, **given)(a)
    near = 1e-5 if target == "cpu" else 1e-3  # an NPU multiplies weights of f16
    np.testing.assert_allclose(got, right, rtol=0, atol=near * np.abs(right).max() + 1e-2)


@pytest.mark.parametrize("target", CHIPS)
def test_native_layouts(target):
    a, b = draw("i8", M, K), draw("i8", K, N, seed=1)
    plain = intaglio.Matmul(b, m=M, target=target)
    mm = intaglio.Matmul(
        plain.native("B", b),
        m=M,
        target=target,
        a_layout="native",
        b_layout="native",
        c_layout="native",
    )
    got = mm(mm.native("A", a))
    assert got.shape == (N // 4, M, 4)
    np.testing.assert_array_equal(mm.normal("C", got), plain(a))
    side = chips.load(target).matmul.a["i8"]
    assert mm.native("A", a)[1, 2, 3] == a[2, side + 3]


@pytest.mark.parametrize("segment", [0, 64, 96])
def test_blocks_of_b_and_back(segment):
    b = draw("i8", 200, 48)
    made = layouts.to_blocks(b, (32, 32), segment)
    assert made.shape == layouts.blocks_shape(200, 48, (32, 32), segment)
    np.testing.assert_array_equal(layouts.from_blocks(made, 200, 48, (32, 32), segment), b)
    first = made if not segment else made[: 2 * -(-segment // 32) * 1024].reshape(2, -1, 32, 32)
    assert first[1, 1, 3, 5] == b[37, 35]  # second block of columns and of rows
    assert (first[1, 0, 16:] == 0).all()  # columns past the end


def test_transposed_b_is_the_same():
    a, b = draw("i8", M, K), draw("i8", K, N, seed=1)
    mm = intaglio.Matmul(np.ascontiguousarray(b.T), m=M, target="rk3588", b_layout="transposed")
    np.testing.assert_array_equal(mm(a), a.astype(np.int64) @ b)


@pytest.mark.parametrize("target", ["cpu", "rk3588"])
def test_f16_b_as_an_argument(target):
    mm = intaglio.Matmul(k=K, n=N, types="f16,f16,f16", m=M, target=target)
    a, b = draw("f16", M, K), draw("f16", K, N, seed=1)
    agree("f16,f16,f16", mm(a, b), a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("target", ["cpu", "rk3588"])
@pytest.mark.parametrize("types", ["i8,i8,i32", "i8,i8,i8"])
def test_b_as_an_argument(types, target):
    given = {} if types.endswith("i32") else {"a_scale": 0.1, "b_scale": 0.02}
    mm = intaglio.Matmul(k=K, n=N, types=types, m=M, target=target, b_zero=3, **given)
    for seed in (1, 2):
        a, b = draw("i8", M, K, seed=seed), draw("i8", K, N, seed=seed + 9)
        np.testing.assert_array_equal(mm(a, b), want(types, a, b, b_zero=3, **given))
    with pytest.raises(BadInput, match="it comes with each call"):
        mm(a)


def test_plans_for_several_rows_share_the_constants():
    b = draw("i8", 512, 512)
    one, many = intaglio.Matmul(b, m=8), intaglio.Matmul(b, m=(1, 8, 32))
    assert len(many.package.bytes) < len(one.package.bytes) + b.size // 4
    for m in (32, 1, 8, 1):
        a = draw("i8", m, 512, seed=m)
        np.testing.assert_array_equal(many(a), a.astype(np.int64) @ b)
    with pytest.raises(BadInput, match="has 9 rows; this product was created for 1, 8, 32"):
        many(draw("i8", 9, 512))


def test_long_sums_are_split():
    """A unit of rk3588 reads 8192 channels; longer sums are added up exactly by the CPU."""
    a, b = draw("i8", 2, 16384), draw("i8", 16384, 32, seed=1)
    for types, given in (
        ("i8,i8,i32", {}),
        ("i8,i8,i8", {"b_scale": 1e-3}),
        ("i8,i8,f32", {"b_scale": np.linspace(1, 2, 32)}),
    ):
        mm = intaglio.Matmul(b, types=types, m=2, target="rk3588", **given)
        np.testing.assert_array_equal(mm(a), want(types, a, b, **given))


def test_many_rows_and_columns_are_split():
    a, b = draw("i8", 50, 128), draw("i8", 128, 1056, seed=1)
    for target in ("rk3588", "rk3566"):
        np.testing.assert_array_equal(
            intaglio.Matmul(b, m=50, target=target)(a), want("i8,i8,i32", a, b)
        )


def test_i16_results_saturate():
    a, b = np.full((1, 1024), -8, np.int8), np.full((1024, 64), -8, np.int8)
    for target in ("cpu", "rk3588"):
        assert (intaglio.Matmul(b, types="i4,i4,i16", target=target)(a) == 32767).all()


REFUSED = [
    ({"target": "rk3588", "k": 100}, BadInput, "K is 100; with i8 it is a multiple of 32: add 28"),
    ({"target": "rk3566", "n": 40}, BadInput, "N is 40; with i8 it is a multiple of 16"),
    ({"target": "rk3562", "k": 10272}, BadInput, "K is 10272; with i8 it is at most 10240"),
    ({"target": "rk3588", "n": 8192}, BadInput, "at most 4096"),
    ({"target": "rk3566", "types": "i4,i4,i16"}, Unsupported, "it has i8,i8,i32 f16,f16,f32"),
    ({"target": "rv1106"}, Unsupported, "rk3562, rk3566, rk3568, rk3576, rk3588 have"),
    ({"target": "rk3566", "b_layout": "transposed"}, Unsupported, "takes no transposed B"),
    ({"target": "rk3588", "a_layout": "transposed"}, BadInput, "only B can be"),
    ({"a_layout": "native"}, BadInput, "only chips have one"),
    ({"c_layout": "nhwc"}, BadInput, "'nhwc'; it is one of normal, native, transposed"),
    ({"types": "i8,i8,i64"}, BadInput, "i8,i8,i64; they are one of i8,i8,i32"),
    ({"a_scale": 0.5}, BadInput, "which holds unscaled sums"),
    ({"types": "i8,i8,i8", "b_scale": [1, 2, 3]}, BadInput, r"\[3\]; one number, \[64\]"),
    ({"types": "i8,i8,i8", "c_zero": 300}, BadInput, "whole numbers from -128 to 127"),
    ({"types": "i8,i8,i8", "c_scale": 0}, BadInput, "not above 0"),
    ({"types": "f16,f16,f32", "a_zero": 1}, BadInput, "A is f16, which has no scale"),
    ({"m": 0}, BadInput, "M is 0"),
    ({"m": ()}, BadInput, "m is empty"),
    ({"target": "rk3588", "m": 9000}, Unsupported, "multiply fewer rows at a time"),
    ({"k": 0}, BadInput, "K is 0"),
    ({"k": None}, BadInput, "K and N are unknown"),
    ({"target": "rk9999"}, BadInput, "no chip is called 'rk9999'"),
]


@pytest.mark.parametrize(("given", "kind", "words"), REFUSED, ids=[r[2] for r in REFUSED])
def test_refusals(given, kind, words):
    with pytest.raises(kind, match=words):
        intaglio.Matmul(**{"k": 64, "n": 64, **given})


def test_wrong_arrays():
    mm = intaglio.Matmul(draw("i8", K, N), m=M)
    for a in (draw("i8", M, K + 1), draw("f16", M, K), draw("i8", M * K)):
        with pytest.raises(IntaglioError):
            mm(a)
    with pytest.raises(BadInput, match="i4 holds -8 to 7"):
        intaglio.Matmul(draw("i8", K, N), types="i8,i4,i32")
    with pytest.raises(Unsupported, match="quantise it symmetrically"):
        intaglio.Matmul(draw("i8", K, N), m=M, target="rk3588", b_zero=100)(draw("i8", M, K))


def test_costs():
    b = np.ones((2048, 2048), np.int8)
    mm = intaglio.Matmul(b, m=(1, 256), target="rk3588", types="i8,i8,i32")
    one, many = mm.cost(1), mm.cost(256)
    assert one.bound == "bandwidth"
    assert one.bytes == pytest.approx(2048 * 2048, rel=0.02)
    assert many.milliseconds < 256 * one.milliseconds / 20  # weights are loaded once
    assert many.mac_use > 10 * one.mac_use
    assert mm.cost(1, "rk3566").milliseconds > one.milliseconds
    with pytest.raises(BadInput, match="measured, not predicted"):
        intaglio.Matmul(b).cost()


def test_fewer_bits_cost_less():
    def cost(types):
        return intaglio.Matmul(k=2048, n=2048, types=types, target="rk3576").cost().milliseconds

    assert cost("f16,i4,f32") < cost("f16,i8,f32") < cost("f16,f16,f32")
    assert cost("i8,i4,i32") < cost("i8,i8,i32")
    assert cost("f16,i4,f32") > cost("i8,i4,i32")  # the same weights, wider rows


def test_more_cores_cost_less():
    spec = intaglio.Matmul(k=1024, n=1024, m=512, target="rk3588").spec
    from intaglio.matmul import cost

    assert cost(spec, 512, 3).milliseconds < 0.7 * cost(spec, 512, 1).milliseconds


def said(*words):
    from click.testing import CliRunner

    from intaglio.cli import cli

    made = CliRunner().invoke(cli, ["matmul", *words], catch_exceptions=True)
    if made.exception is not None and not isinstance(made.exception, SystemExit):
        raise made.exception
    return made.output


def test_the_command_prints_limits_layouts_and_time():
    text = said("--chip", "rk3588", "--m", "1,8", "--k", "128", "--n", "64", "--run")
    for words in (
        "N is a multiple of 32, at most 4096",
        "native      A 8x1x16  B 2x4x32x32  C 16",
        "M 8: simulated in",
        "bit-exact",
    ):
        assert words in text
    assert "differ" not in text
    rows = json.loads(said("--m", "1", "--k", "128", "--n", "64", "--types", "i8,i4,i32", "--json"))
    assert [r["chip"] for r in rows] == CHIPS
    assert [r["chip"] for r in rows if "costs" in r] == ["rk3576"]
    assert all("does not multiply i8,i4,i32" in r["refused"] for r in rows if "refused" in r)


@pytest.mark.parametrize(
    "words",
    [
        ["--m", "x"],
        ["--m", "0"],
        ["--types", "i8"],
        ["--chip", "k9"],
        ["--cores", "9"],
        ["--k", "33"],
    ],
)
def test_the_command_refuses(words):
    with pytest.raises(IntaglioError):
        said("--chip", "rk3588", "--k", "64", "--n", "64", *words)


def test_the_examples_of_the_docs_run(tmp_path, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "matmul.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) > 3
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
