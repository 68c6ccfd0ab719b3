# For 64-bit RISC-V with Linux. Kernels for RVV 1.0 want a compiler that knows it: Debian's clang-19 where it is installed,
# else the cross compiler gcc, whose version 12 leaves those kernels out. Emulated where qemu-user is installed:
#   apt-get install gcc-riscv64-linux-gnu libc6-dev-riscv64-cross clang-19 lld-19 qemu-user
#   cmake -S . -B build-riscv64 --toolchain cmake/toolchains/riscv64-linux-gnu.cmake
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR riscv64)
find_program(INTAGLIO_RISCV_CLANG NAMES clang-21 clang-20 clang-19)
file(GLOB INTAGLIO_RISCV_GCC /usr/lib/gcc-cross/riscv64-linux-gnu/*)
if(INTAGLIO_RISCV_CLANG AND INTAGLIO_RISCV_GCC)
  list(SORT INTAGLIO_RISCV_GCC COMPARE NATURAL ORDER DESCENDING)
  list(GET INTAGLIO_RISCV_GCC 0 INTAGLIO_RISCV_GCC)
  set(CMAKE_C_COMPILER ${INTAGLIO_RISCV_CLANG})
  set(CMAKE_C_COMPILER_TARGET riscv64-linux-gnu)
  set(CMAKE_C_FLAGS_INIT "--gcc-install-dir=${INTAGLIO_RISCV_GCC} -isystem /usr/riscv64-linux-gnu/include")
else()
  set(CMAKE_C_COMPILER riscv64-linux-gnu-gcc)
  set(CMAKE_CXX_COMPILER riscv64-linux-gnu-g++)
endif()
set(CMAKE_FIND_ROOT_PATH /usr/riscv64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-riscv64 -cpu rv64,v=true,vlen=256,vext_spec=v1.0 -L /usr/riscv64-linux-gnu)
