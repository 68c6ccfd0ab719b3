"""Names of instruction sets: a level and its features."""

from __future__ import annotations

import pytest

from intaglio import BadInput, native
from intaglio.cpu_isa import BITS, NAMES, bits_of, name_of


@pytest.mark.parametrize(
    ("name", "bits", "canonical"),
    [
        ("scalar", 0, "scalar"),
        ("avx2", 1, "avx2"),
        ("avx512", 3, "avx512"),
        ("avx512-vnni", 7, "avx512-vnni"),
        ("avx512-bf16", 11, "avx512-bf16"),
        ("avx512-vbmi", 23, "avx512-vnni-vbmi"),
        ("avx512-vnni-bf16-vbmi", 31, "avx512-vnni-bf16-vbmi"),
        ("avx512-vbmi-bf16", 31, "avx512-vnni-bf16-vbmi"),
        ("armv7", 65536, "armv7"),
        ("rvv", 4096, "rvv"),
        ("neon-dotprod", 768, "neon-dotprod"),
        ("neon-i8mm", 1792, "neon-dotprod-i8mm"),  # which comes with dotprod
        ("avx512vnni", 7, "avx512-vnni"),  # older spellings
        ("avx512bf16", 11, "avx512-bf16"),
        ("avx512vbmi", 23, "avx512-vnni-vbmi"),
    ],
)
def test_features_combine(name, bits, canonical):
    assert bits_of(name) == bits
    assert name_of(bits) == canonical
    assert bits_of(canonical) == bits


@pytest.mark.parametrize("name", ["", "avx", "avx2-vnni", "avx512-amx", "avx512vnnibf16", "neon-"])
def test_unknown_names_are_refused(name):
    with pytest.raises(BadInput, match=f"no instruction set is called '{name}'; known are scalar"):
        bits_of(name)


def test_every_bit_has_a_name():
    assert name_of(BITS["neon"]) == "neon"
    assert name_of(BITS["neon"] | BITS["dotprod"]) == "neon-dotprod"
    assert name_of(BITS["rvv"]) == "rvv"
    assert name_of(BITS["avx512"]) == "avx512"  # without the bits that it implies
    assert name_of(native.machine())
    assert [name_of(bits_of(n)) for n in NAMES] == list(NAMES)
