"""The actions of model_tool that write files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from intaglio.compat.log import Log
from intaglio.compat.tpu_mlir.chip_file_reading import read_bmodel, read_file, writable
from intaglio.errors import BadInput
from intaglio.files import read_regular, write_atomically
from intaglio.npu.chips.bm1684x import bmodel
from intaglio.npu.chips.bm1684x.bmodel import Bmodel, Net, Stage
from intaglio.npu.chips.cv18xx import cvimodel
from intaglio.npu.chips.cv18xx.cvimodel import Cvimodel

COMPILATION = "compilation.bmodel"  # the file in a folder of --combine_dir


def combine(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--combine."""
    assert output is not None
    write_atomically(output, bmodel.write(joined(files)))
    log.info(f"Success: combined to [{output}].")


def combine_dir(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--combine_dir."""
    assert output is not None
    data = bmodel.write(joined([str(Path(f, COMPILATION)) for f in files]))
    Path(output).mkdir(parents=True, exist_ok=True)
    write_atomically(Path(output, COMPILATION), data)
    log.info(f"Success: combined to [{Path(output, COMPILATION)}].")


def joined(files: Sequence[str]) -> Bmodel:
    """The networks of all files; those of one name become stages of one network."""
    models = [writable(read_bmodel(f, "--combine"), f, "--combine") for f in files]
    first = models[0]
    nets: dict[str, Net] = {}
    for path, model in zip(files, models, strict=True):
        if model.chip != first.chip:
            raise BadInput(
                f"--combine: '{path}' is for {model.chip}, '{files[0]}' for {first.chip}; combine "
                "files of one chip"
            )
        for net in model.nets:
            known = nets.setdefault(net.name, Net(net.name, [], net.address_mode))
            for stage in net.stages:
                _refuse_same(known, stage, path)
                known.stages.append(stage)
    kernel = next((m.kernel for m in models if m.kernel), None)
    return Bmodel(list(nets.values()), first.chip, first.version, first.time, kernel)


def _refuse_same(net: Net, stage: Stage, path: str) -> None:
    shapes = [t.shape for t in stage.inputs]
    if any([t.shape for t in s.inputs] == shapes for s in net.stages):
        raise BadInput(
            f"--combine: '{path}' has network '{net.name}' with input shapes that another file has "
            "too; give the networks different names (--model_name) or shapes"
        )


def extract(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--extract."""
    model = read_file(files[0])
    if isinstance(model, Cvimodel):
        for i, s in enumerate(model.sections):
            kind = cvimodel.SECTIONS[s.kind] if s.kind < len(cvimodel.SECTIONS) else str(i)
            name = _safe(f"{model.name}_{kind}_{s.name}") + ".bin"
            write_atomically(name, s.data)
            log.info(f"store section to {name}")
        return
    writable(model, files[0], "--extract")
    for i, net in enumerate(model.nets):
        for j, stage in enumerate(net.stages):
            name = f"bm_net{i}_stage{j}.bmodel"
            one = Net(net.name, [stage], net.address_mode)
            parts = Bmodel([one], model.chip, model.version, model.time, model.kernel)
            write_atomically(name, bmodel.write(parts))
            log.info(f"Generate file [{name}]")


def _safe(name: str) -> str:
    """A name of a file in this folder."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def refresh(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--refresh."""
    model = writable(read_bmodel(files[0], "--refresh"), files[0], "--refresh")
    write_atomically(output or files[0], bmodel.write(model))


def dump(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--dump."""
    path, start, size, out = files
    data = read_regular(path)
    try:
        first, count = int(start, 0), int(size, 0)
    except ValueError:
        raise BadInput(f"--dump: START {start} and SIZE {size} are numbers of bytes") from None
    if min(first, count) < 0 or first + count > len(data):
        raise BadInput(f"--dump: bytes {first} to {first + count}; '{path}' has {len(data)}")
    write_atomically(out, data[first : first + count])


def kernel_dump(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--kernel_dump."""
    model = read_bmodel(files[0], "--kernel_dump")
    if model.kernel is None or output is None:
        raise BadInput(f"--kernel_dump: '{files[0]}' brings no firmware")
    write_atomically(output, model.kernel[1])


def kernel_update(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--kernel_update."""
    model = writable(read_bmodel(files[0], "--kernel_update"), files[0], "--kernel_update")
    model.kernel = Path(files[1]).name, read_regular(files[1])
    write_atomically(files[0], bmodel.write(model))


def kernel_remove(files: Sequence[str], output: str | None, all_tensors: bool, log: Log) -> None:
    """--kernel_remove."""
    model = writable(read_bmodel(files[0], "--kernel_remove"), files[0], "--kernel_remove")
    model.kernel = None
    write_atomically(files[0], bmodel.write(model))
