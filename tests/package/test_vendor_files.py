"""Files of the chip in a package: their names, and writing them out."""

from __future__ import annotations

import pytest
from tests.npu.chips import mixed_networks

import intaglio
from intaglio.errors import BadInput
from intaglio.npu.chips.bm1684x import bmodel
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.package.vendor_files import extract


@pytest.mark.parametrize(("chip", "ending"), [("cv180x", "cvimodel"), ("bm1688", "bmodel")])
def test_files_are_named_by_their_part(chip, ending, tmp_path):
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), chip, npu_code="chip")
    files = package.vendor_files()
    assert list(files) == [f"npu0.{ending}", f"npu1.{ending}"]
    read = cvimodel.read if ending == "cvimodel" else bmodel.read
    assert {read(data).chip.lower() for data in files.values()} == {chip}
    paths = extract(package.plans, tmp_path / "new")
    assert [p.read_bytes() for p in paths] == list(files.values())


def test_a_stripped_package_has_them_too():
    graph = mixed_networks.cpu_in_the_middle()
    package = intaglio.compile(graph, "cv181x", npu_code="chip", strip=True)
    assert list(package.vendor_files()) == ["npu0.cvimodel", "npu1.cvimodel"]


def test_a_package_without_files(tmp_path):
    package = intaglio.compile(mixed_networks.cpu_in_the_middle(), "cv181x", npu_code="own")
    assert package.vendor_files() == {}
    with pytest.raises(BadInput, match="the package has no files of a chip"):
        extract(package.plans, tmp_path)
