# make demo      compile and run a small network, end to end, with the kernels that it needs
# make test      everything that a fresh clone can test but for the next (about ten minutes, two of them set-up and builds)
# make test-sanitized  the C tests and changed files on a library with AddressSanitizer and UBSan: three minutes
# make test-all  all of these and the slow tests; some read the models in ../shared (or INTAGLIO_SHARED),
#                some want torch, which the environment of `make bench` has, or TensorFlow;
#                then all fuzzers with new seeds for an hour (FUZZ_MINUTES=60)
# make test-vendors  files for real chips in the vendors' own simulators, which it installs apart from ours: those of
#                Sophgo and Canaan need Python 3.10 (PYTHON310=path); skipped with the reason where that is not there
# make test-triton  the backend in the real Triton server, of the wheel nvidia-pytriton, which it installs apart from ours
# make bench     speed, start-up and memory, beside the peers (which it installs, apart from ours): 45 minutes,
#                and half an hour more the first time; BENCH="--quick" for a few models only: 10 minutes, and 5;
#                BENCH="--float" without int8, BENCH="--accuracy" with what int8 costs: hours
# make lint      ruff, mypy --strict and clang-format
# make wheel     dist/intaglio-*.whl with kernels for all instruction sets, from a clean tree of the last commit;
#                PLATFORM=aarch64, armv7l or riscv64: for these, by the cross compiler of the PyPI package ziglang (100 MB)
# make build ISAS=all   kernels for all instruction sets; without it, for those of this machine
# make install DESTDIR= PREFIX=/usr/local   the C libraries, headers, pkg-config and CMake files
# make docs      writes docs/rules.md, docs/operators.md and docs/compat-*.md from the code
# make site      builds the documentation site: open site/index.html
VENV   := .venv
BIN    := $(VENV)/bin
PEERS  := .venv-bench
VENDORS := .venv-vendors
ROCKCHIP := .venv-rknn
PYTHON ?= python3
# CMake and Ninja of the system, where they are there and new enough; else from PyPI
CMAKE  := $(shell printf '3.20\n%s\n' "$$(cmake --version 2>/dev/null | sed -n '1s/.* //p')" | sort -CV && command -v cmake)
NINJA  := $(shell command -v ninja)
TOOLS  := $(if $(and $(CMAKE),$(NINJA)),,$(VENV)/tools)
MAKEFLAGS += -j2  # the compiler works while pip waits for the network
unexport MAKEFLAGS  # Ninja takes as many cores as there are

.PHONY: demo test test-sanitized test-all test-vendors test-triton bench lint wheel docs site build install clean

demo: TARGETS := intaglio intaglio_compiler
# A build that is there keeps its instruction sets.
demo: ISAS := $(if $(wildcard build/CMakeCache.txt),,widest)

demo: $(VENV)/base build
	$(BIN)/python examples/digits/demo.py

test test-sanitized test-all: ISAS := all  # tests compare the kernels of all instruction sets

test: $(VENV)/dev build
	@$(BIN)/python -m tests.emulated
	$(BIN)/python -m pytest -n 2 -m "not slow and not sanitized"

test-sanitized: $(VENV)/dev build
	$(BIN)/python -m pytest -m "not slow and sanitized"

test-all: $(VENV)/dev build
	$(BIN)/python -m pytest -n 2
	$(BIN)/python -m tests.fuzz --minutes $(or $(FUZZ_MINUTES),60)

PYTHON310 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.10.*/bin/python3.10) $(shell command -v python3.10))

test-vendors: $(VENV)/dev $(ROCKCHIP)/rknn build
	@if ! "$(PYTHON310)" -c "import sys; sys.exit(sys.version_info[:2] != (3, 10))" 2>/dev/null; then \
	  echo "skipped: the wheels of Sophgo and Canaan need Python 3.10; give it as PYTHON310=path"; \
	else \
	  test -e $(VENDORS)/nncase || { "$(PYTHON310)" -m venv $(VENDORS) && \
	    $(VENDORS)/bin/pip install -q --disable-pip-version-check "nncase==1.9.0.20230322" "numpy==1.24.*" && \
	    touch $(VENDORS)/nncase; } && \
	  { test -e $(VENDORS)/tpu_mlir || { $(VENDORS)/bin/python tests/vendors/install_sophgo.py && touch $(VENDORS)/tpu_mlir; }; }; \
	fi
	$(BIN)/python -m pytest tests/vendors

TRITON := .venv-triton

test-triton: $(VENV)/dev build $(TRITON)/server
	@$(or $(CMAKE),$(BIN)/cmake) --build build --target triton_intaglio >> build.log 2>&1 || { cat build.log; exit 1; }
	$(BIN)/python -m pytest tests/serve/test_triton.py

$(TRITON)/server:
	$(PYTHON) -m venv $(TRITON)
	$(TRITON)/bin/pip install -q --disable-pip-version-check --no-deps "nvidia-pytriton==0.7.0"
	@touch $@

$(ROCKCHIP)/rknn:
	$(PYTHON) -m venv $(ROCKCHIP)
	$(ROCKCHIP)/bin/python tests/vendors/install_rockchip.py
	@touch $@

bench: $(PEERS)/peers build
	$(PEERS)/bin/python -m benchmarks $(BENCH)

lint: $(VENV)/dev
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	git ls-files 'csrc/*.[ch]' 'examples/*.[ch]' 'src/*.h' 'src/*/micro/*.c' 'src/*/files/[bs]*.c' | xargs $(BIN)/clang-format --dry-run -Werror

# Target of `zig cc` with its oldest glibc, and the platform in the wheel's name.
ZIG_aarch64 := aarch64-linux-gnu.2.17 manylinux2014_aarch64
ZIG_armv7l := arm-linux-gnueabihf.2.31 manylinux_2_31_armv7l
ZIG_riscv64 := riscv64-linux-gnu.2.39 manylinux_2_39_riscv64
ZIG := $(ZIG_$(PLATFORM))
CROSS_WHEEL = $(if $(ZIG),-C cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/toolchains/zig.cmake \
  -C cmake.define.INTAGLIO_ZIG_TARGET=$(word 1,$(ZIG)) -C cmake.define.INTAGLIO_ZIG_PYTHON=$(CURDIR)/$(BIN)/python \
  -C wheel.tags=py3-none-$(word 2,$(ZIG)))
$(if $(PLATFORM),$(if $(ZIG),,$(error PLATFORM is '$(PLATFORM)'; aarch64, armv7l and riscv64 are known)))

$(VENV)/zig: $(VENV)/created
	$(BIN)/pip install -q --disable-pip-version-check "ziglang==0.17.0"
	@touch $@

wheel: $(VENV)/created $(if $(ZIG),$(VENV)/zig)
	rm -rf build/wheel && mkdir -p build/wheel/tree
	git archive HEAD | tar -x -C build/wheel/tree
	$(BIN)/pip wheel -q --disable-pip-version-check --no-deps -C cmake.define.INTAGLIO_ISAS=all $(CROSS_WHEEL) -w dist build/wheel/tree
	@ls dist/*.whl

docs: $(VENV)/dev build
	$(BIN)/python -m intaglio.analysis.document docs/rules.md
	$(BIN)/python -m intaglio.analysis.operators docs/operators.md
	$(BIN)/python -m intaglio.compat.conformance rknn docs/compat-rknn.md
	$(BIN)/python -m intaglio.compat.c_conformance docs/compat-c.md
	$(BIN)/python -m intaglio.compat.conformance nncase docs/compat-nncase.md
	$(BIN)/python -m intaglio.compat.conformance sophgo docs/compat-sophgo.md

site: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

# After `make demo`, whose kernels are few, others get those of this machine.
MORE_THAN_DEMO = $(if $(shell grep -s '^INTAGLIO_ISAS.*=widest$$' build/CMakeCache.txt),-DINTAGLIO_ISAS=native)

# The C libraries of this checkout: build/libintaglio*.so, which the package finds by itself.
build: $(TOOLS)
	@$(or $(CMAKE),$(BIN)/cmake) -G Ninja -S . -B build -DCMAKE_MAKE_PROGRAM=$(or $(NINJA),$(CURDIR)/$(BIN)/ninja) \
	  $(if $(ISAS),-DINTAGLIO_ISAS=$(ISAS),$(if $(TARGETS),,$(MORE_THAN_DEMO))) > build.log 2>&1 || { cat build.log; exit 1; }
	@$(or $(CMAKE),$(BIN)/cmake) --build build $(if $(TARGETS),--target $(TARGETS)) >> build.log 2>&1 || { cat build.log; exit 1; }

PREFIX ?= /usr/local
install: build
	DESTDIR="$(DESTDIR)" $(or $(CMAKE),$(BIN)/cmake) --install build --prefix "$(PREFIX)"

$(VENV)/created: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/tools: $(VENV)/created
	$(BIN)/pip install -q --disable-pip-version-check "cmake>=3.20" "ninja>=1.11"
	@touch $@

$(VENV)/base: $(VENV)/created $(TOOLS)
	$(BIN)/pip install -q --disable-pip-version-check -C wheel.cmake=false -e ".[onnx]"
	@touch $@

$(VENV)/dev: $(VENV)/created $(TOOLS)
	$(BIN)/pip install -q --disable-pip-version-check -C wheel.cmake=false -e ".[dev]"
	@touch $(VENV)/base $@

$(VENV)/docs: $(VENV)/created $(TOOLS)
	$(BIN)/pip install -q --disable-pip-version-check -C wheel.cmake=false -e ".[docs]"
	@touch $(VENV)/base $@

# The peers are large and depend on half of PyPI: they have an environment to themselves.
$(PEERS)/peers: pyproject.toml
	@echo "the peers go to $(PEERS), once: about 3 GB"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q --disable-pip-version-check -C wheel.cmake=false -e ".[all]"
	$(PEERS)/bin/python -m benchmarks.install
	@touch $@

clean:
	rm -rf build build.log
