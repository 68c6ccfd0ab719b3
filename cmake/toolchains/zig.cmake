# For Linux on other CPUs and for old releases of glibc, by the compiler in the wheel `ziglang` of PyPI; `make wheel PLATFORM=` uses it:
#   pip install ziglang==0.17.0
#   cmake -S . -B build-zig --toolchain cmake/toolchains/zig.cmake -DINTAGLIO_ZIG_TARGET=aarch64-linux-gnu.2.17
# INTAGLIO_ZIG_PYTHON is the Python that has it.
set(CMAKE_SYSTEM_NAME Linux)
set(INTAGLIO_ZIG_TARGET aarch64-linux-gnu.2.17 CACHE STRING "CPU, system, C library and its oldest release")
set(INTAGLIO_ZIG_PYTHON python3 CACHE STRING "a Python with the package ziglang")
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES INTAGLIO_ZIG_TARGET INTAGLIO_ZIG_PYTHON)
set(INTAGLIO_ZIG ON)
string(REGEX MATCH "^[a-z0-9_]+" CMAKE_SYSTEM_PROCESSOR "${INTAGLIO_ZIG_TARGET}")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "arm")
  set(CMAKE_SYSTEM_PROCESSOR armv7l)
endif()
execute_process(COMMAND "${INTAGLIO_ZIG_PYTHON}" -c "import os, ziglang; print(os.path.dirname(ziglang.__file__))"
  OUTPUT_VARIABLE INTAGLIO_ZIG_FOLDER OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE INTAGLIO_ZIG_FAILED ERROR_QUIET)
if(INTAGLIO_ZIG_FAILED)
  message(FATAL_ERROR "${INTAGLIO_ZIG_PYTHON} has no package ziglang; install it: pip install ziglang==0.17.0")
endif()
set(CMAKE_C_COMPILER "${INTAGLIO_ZIG_FOLDER}/zig" cc -target ${INTAGLIO_ZIG_TARGET})
set(CMAKE_CXX_COMPILER "${INTAGLIO_ZIG_FOLDER}/zig" c++ -target ${INTAGLIO_ZIG_TARGET})
set(CMAKE_C_FLAGS_INIT -fno-sanitize=undefined)  # which it adds at -O0, without its library
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
