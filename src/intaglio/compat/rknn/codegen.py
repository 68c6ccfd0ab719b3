"""`codegen`: a C project that runs an exported model with Intaglio's runtime."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import intaglio
from intaglio.compat.rknn.config import Config
from intaglio.compat.rknn.dataset import read_sample
from intaglio.compat.rknn.inputs import InputInfo
from intaglio.errors import BadInput
from intaglio.package import Package

MAIN = Path(__file__).parent / "codegen_main.c"
CMAKE = """\
cmake_minimum_required(VERSION 3.16)
project(rknn_app C)
# The folder with include/intaglio.h and lib/libintaglio.so: -DINTAGLIO=...
set(INTAGLIO "/usr/local" CACHE PATH "where Intaglio is installed")
find_path(INTAGLIO_INCLUDE intaglio.h PATHS ${INTAGLIO}/include ${INTAGLIO}/csrc/include REQUIRED)
find_library(INTAGLIO_LIBRARY intaglio PATHS ${INTAGLIO}/lib ${INTAGLIO}/build REQUIRED)
add_executable(rknn_app src/main.c)
set_property(TARGET rknn_app PROPERTY C_STANDARD 11)
target_include_directories(rknn_app PRIVATE ${INTAGLIO_INCLUDE})
target_link_libraries(rknn_app PRIVATE ${INTAGLIO_LIBRARY} m)
"""
BUILD = """\
#!/bin/sh
# Builds the program: ./build_linux.sh /path/of/intaglio
set -e
cmake -S . -B build -DCMAKE_BUILD_TYPE=Release ${1:+-DINTAGLIO="$1"}
cmake --build build
"""
RUN = """\
#!/bin/sh
# Runs the model on the inputs of data/ and compares with the outputs of the simulator.
exec ./build/rknn_app model/{model} data "$@"
"""
README = """\
# {name}

A program that runs `model/{model}`. Build and run it:

    sh build_linux.sh /path/of/intaglio
    sh run.sh

`data/inputN.bin` are inputs in the element type and layout of the model; `data/outputN.bin`, if
there are any, are the outputs of the simulator. The program prints the cosine of both.

{inputs}
"""


def write(
    package: Package,
    infos: Sequence[InputInfo],
    model: Path,
    output_path: Any,
    inputs: Any,
    overwrite: bool,
    config: Config | None,
) -> None:
    """Write the project; with `inputs`, files for each input, also expected outputs."""
    folder = Path(output_path)
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise BadInput(f"output_path '{folder}' is not empty; give overwrite=True, or another one")
    if not model.is_file():
        raise BadInput(f"there is no file '{model}' any more; call export_rknn again")
    for part in ("src", "model", "data"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    shutil.copy(MAIN, folder / "src" / "main.c")
    shutil.copy(model, folder / "model" / model.name)
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "build_linux.sh").write_text(BUILD)
    (folder / "run.sh").write_text(RUN.format(model=model.name))
    shapes = "\n".join(f"- `{i.name}`: {list(i.shape)}, {i.layout}" for i in infos)
    about = README.format(name=folder.name, model=model.name, inputs=shapes)
    (folder / "README.md").write_text(about)
    if inputs:
        _write_data(package, infos, [Path(f) for f in inputs], folder / "data", config)


def _write_data(
    package: Package,
    infos: Sequence[InputInfo],
    files: Sequence[Path],
    folder: Path,
    config: Config | None,
) -> None:
    sample = read_sample(files, infos, config or Config(target_platform="rk3588"))
    feeds = {i.name: i.stored(sample[i.name]) for i in infos}
    with intaglio.open(package) as session:
        outputs = session.run(feeds)
    for k, info in enumerate(infos):
        (folder / f"input{k}.bin").write_bytes(feeds[info.name].tobytes())
    for k, name in enumerate(package.outputs):
        (folder / f"output{k}.bin").write_bytes(np.ascontiguousarray(outputs[name]).tobytes())
