"""Bmodel and cvimodel files, as model_tool reads them."""

from __future__ import annotations

from intaglio.errors import BadFile, BadInput
from intaglio.files import read_regular
from intaglio.npu.chips.bm1684x import bmodel
from intaglio.npu.chips.bm1684x.bmodel import Bmodel
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel


def read_file(path: str) -> Bmodel | Cvimodel:
    """A file of either kind; BadFile if it is neither."""
    data = read_regular(path)
    if bmodel.is_bmodel(data):
        return bmodel.read(data)
    if data.startswith(cvimodel.MAGIC):
        return cvimodel.read(data)
    raise BadFile(f"'{path}' is no bmodel or cvimodel; check the path")


def read_bmodel(path: str, action: str) -> Bmodel:
    found = read_file(path)
    if isinstance(found, Cvimodel):
        raise BadInput(f"{action} is for bmodels; '{path}' is a cvimodel")
    return found


def writable(model: Bmodel, path: str, action: str) -> Bmodel:
    """The model, if writing it again keeps all of it."""
    subnets = [s for net in model.nets for stage in net.stages for s in stage.subnets]
    if any(s.mode or s.dynamic for s in subnets):
        raise BadInput(
            f"{action}: '{path}' has parts that run on the CPU or in the firmware, which are not "
            "kept; use the vendor's tool for it"
        )
    return model
