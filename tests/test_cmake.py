"""The C library in other projects: installed, by pkg-config, find_package and add_subdirectory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.package.samples import SAMPLES

import intaglio
from intaglio import native

ROOT = Path(__file__).parents[1]
PLACES = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
CMAKE, NINJA = shutil.which("cmake", path=PLACES), shutil.which("ninja", path=PLACES)
BUILD = Path(native.library()._name).parent
pytestmark = pytest.mark.skipif(
    not CMAKE
    or not NINJA
    or not shutil.which("cc")
    or not (BUILD / "cmake_install.cmake").exists(),
    reason="needs cmake, ninja, cc and a build of the checkout",
)
PROGRAM = """
#include <intaglio.h>
#include <stdio.h>
int main(int argc, char **argv) {
  itg_model *model;
  itg_error error;
  if (itg_model_open_file(argv[1], 0, &model, &error)) return puts(error.words), 1;
  printf("%d.%d.%d %s %s %u\\n", ITG_VERSION_MAJOR, ITG_VERSION_MINOR, ITG_VERSION_PATCH,
         ITG_VERSION, itg_version(), itg_model_inputs(model, 0));
  itg_model_close(model);
  return 0;
}
"""
SAYS = f"{intaglio.__version__} {intaglio.__version__} {intaglio.__version__} 1\n"


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory) -> Path:
    stage = tmp_path_factory.mktemp("install")
    if shutil.which("make") and (ROOT / "build").is_dir() and BUILD.samefile(ROOT / "build"):
        old = ("-o", "build")  # what is built is not built again
        run("make", "-C", ROOT, *old, "install", f"DESTDIR={stage}", "PREFIX=/prefix")
    else:
        run(CMAKE, "--install", BUILD, "--prefix", stage / "prefix")
    return stage / "prefix"


def project(folder: Path, text: str) -> Path:
    """A project of someone else: its CMakeLists.txt, its program, and a package to open."""
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nproject(theirs C)\n{text}"
    )
    (folder / "program.c").write_text(PROGRAM)
    SAMPLES["chain"]().package().save(folder / "m.itg")
    return folder


def configure(folder: Path, *options: object) -> None:
    make = f"-DCMAKE_MAKE_PROGRAM={NINJA}"
    run(CMAKE, "-G", "Ninja", make, "-S", folder, "-B", folder / "build", *options)


def library_folder(prefix: Path) -> Path:
    return next(prefix.rglob("libintaglio.a")).parent


def test_what_is_installed(prefix):
    lib = library_folder(prefix)
    version = intaglio.__version__
    names = {"libintaglio.so", f"libintaglio.so.{version}", "libintaglio.a"}
    assert names <= {p.name for p in lib.iterdir()}
    headers = {"intaglio.h", "intaglio_plugin.h", "intaglio_version.h", "intaglio-compat"}
    headers |= {"intaglio_client.h", "intaglio_rk.h"}
    assert {p.name for p in (prefix / "include").iterdir()} == headers
    assert "librknnrt.so" in {p.name for p in lib.iterdir()}
    assert not list(prefix.rglob("*compiler*"))  # only the compiler in Python calls that one


def test_the_soname_has_a_version(prefix, tmp_path):
    folder = project(tmp_path, "")
    lib = library_folder(prefix)
    paths = [f"-I{prefix / 'include'}", f"-L{lib}", "-lintaglio", "-o", folder / "program"]
    run("cc", folder / "program.c", *paths)
    major, minor, _ = intaglio.__version__.split(".")
    soname = f"libintaglio.so.{f'0.{minor}' if major == '0' else major}"
    assert soname.encode() in (folder / "program").read_bytes()
    assert run(folder / "program", folder / "m.itg", LD_LIBRARY_PATH=str(lib)) == SAYS


def test_find_package(prefix, tmp_path):
    folder = project(
        tmp_path,
        f"""find_package(Intaglio {intaglio.__version__} REQUIRED)
foreach(kind intaglio static)
  add_executable(with_${{kind}} program.c)
  target_link_libraries(with_${{kind}} PRIVATE Intaglio::${{kind}})
endforeach()
find_package(Intaglio 99 QUIET)
if(Intaglio_FOUND)
  message(FATAL_ERROR "version 99 was found")
endif()
""",
    )
    configure(folder, f"-DCMAKE_PREFIX_PATH={prefix}")
    run(CMAKE, "--build", folder / "build")
    for kind in ("intaglio", "static"):
        assert run(folder / f"build/with_{kind}", folder / "m.itg") == SAYS


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="needs pkg-config")
def test_pkg_config(prefix, tmp_path):
    folder, lib = project(tmp_path, ""), library_folder(prefix)
    path = {"PKG_CONFIG_PATH": str(lib / "pkgconfig")}
    assert run("pkg-config", "--modversion", "intaglio", **path).strip() == intaglio.__version__
    flags = run("pkg-config", "--cflags", "--libs", "intaglio", **path).split()
    run("cc", folder / "program.c", *flags, "-o", folder / "program")
    assert run(folder / "program", folder / "m.itg", LD_LIBRARY_PATH=str(lib)) == SAYS
    static = run("pkg-config", "--cflags", "--libs", "--static", "intaglio", **path).split()
    static = ["-l:libintaglio.a" if f == "-lintaglio" else f for f in static]
    run("cc", folder / "program.c", *static, "-o", folder / "alone")
    assert run(folder / "alone", folder / "m.itg") == SAYS


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="needs pkg-config")
def test_programs_of_other_vendors(prefix, tmp_path):
    """`-lrknnrt` has a SONAME of ours and finds the runtime beside it."""
    folder, lib = project(tmp_path, ""), library_folder(prefix)
    (folder / "rknn.c").write_text(
        "#include <nncase/runtime/interpreter.h>\n#include <nncase/runtime/util.h>\n"
        "#include <rknn_api.h>\n"
        "int main(int n, char **v) { rknn_context c; nncase::runtime::interpreter i;\n"
        "return n != 2 || rknn_init(&c, v[1], 0, 0, nullptr) || rknn_destroy(c) || !&i; }\n"
    )
    path = {"PKG_CONFIG_PATH": str(lib / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "intaglio-compat", **path).split()
    run("g++", "-std=c++17", "-xc++", folder / "rknn.c", *flags, "-o", folder / "program")
    assert b"librknnrt.so.intaglio" in (folder / "program").read_bytes()
    run(folder / "program", folder / "m.itg", LD_LIBRARY_PATH=str(lib))


@pytest.mark.slow
def test_add_subdirectory(tmp_path):
    """The target links and brings nothing else along; plain C without optimisation is quick."""
    folder = project(
        tmp_path,
        f"""set(INTAGLIO_ISAS "")
set(INTAGLIO_KERNEL_LEVEL -O0)
set(CMAKE_BUILD_TYPE Debug)
add_subdirectory({ROOT} intaglio)
add_executable(program program.c)
target_link_libraries(program PRIVATE Intaglio::static)
""",
    )
    configure(folder)
    targets = run(NINJA, "-C", folder / "build", "-t", "targets", "all")
    foreign_targets = "test_runtime", "fuzz_driver", "example_run", "bench_latency", "compiler"
    for foreign in (*foreign_targets, "rknnrt"):
        assert foreign not in targets
    assert not (folder / "build/CTestTestfile.cmake").exists()
    run(CMAKE, "--build", folder / "build", "--target", "program")
    assert run(folder / "build/program", folder / "m.itg") == SAYS
    assert "cmake_install.cmake" in {p.name for p in (folder / "build").iterdir()}
    run(CMAKE, "--install", folder / "build", "--prefix", folder / "prefix")
    assert not (folder / "prefix").exists()  # only their project decides what it installs


def test_the_widest_vectors_alone_are_what_the_demo_builds(tmp_path):
    def kernels(isas: str) -> set[str]:
        make, which = f"-DCMAKE_MAKE_PROGRAM={NINJA}", f"-DINTAGLIO_ISAS={isas}"
        said = run(CMAKE, "-G", "Ninja", make, "-S", ROOT, "-B", tmp_path, which)
        return set(said.split("Kernels: plain C")[1].split("\n")[0].split())

    assert kernels("widest") == kernels("native") & {"avx2", "avx512", "neon"}
