# Everything runs in a virtual environment of its own, made on first use; a second run needs no network.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := src tests examples bench reliability tools hatch_build.py
# Compiled modules are kept, whatever the machine prefers: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

PLAIN := tests/io/test_indexing.py tests/nodes/test_array.py tests/io/test_read_write.py tests/io/test_sharded_arrays.py tests/codecs

.PHONY: help demo test plain lint format check peer browser docs soak fuzz kernelfuzz asan tsan bench before remote datasets underneath beneath reliability oldest clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

demo: $(VENV)/.installed  ## show the main job on a local directory
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev peer browser  ## run all tests
	$(BIN)/python -m pytest -n auto --dist worksteal -q

plain: $(VENV)/.dev  ## run the tests of reading, indexing and codecs without the kernel
	ZELLIGE_REQUIRE_KERNEL= ZELLIGE_KERNEL=off $(BIN)/python -m pytest -n auto --dist worksteal -q $(PLAIN)

lint: $(VENV)/.dev  ## check format, style and types
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

format: $(VENV)/.dev  ## put the code into shape
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

check: lint test  ## what CI runs

peer:  ## an environment with zarr-python >= 3.4, which needs Python 3.12; the tests say when it is missing
	@bash tools/peer_env.sh

browser:  ## Chromium, for the tests that look at pictures: installed if that is simple; the tests say when it is missing
	@bash tools/browser.sh

docs: $(VENV)/.docs  ## build the documentation site, strictly, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@$(BIN)/python tools/check_site.py build/site

soak: $(VENV)/.dev  ## the long form of the tests against faults, kills and races: about 30 minutes
	ZELLIGE_LONG=1 $(BIN)/python -m pytest -q -n 2 tests/faults tests/tools/test_rechunk.py

fuzz:  ## look for input that breaks a promise, FUZZ_SECONDS=60 in all; what is found is kept as a test
	@bash tools/fuzz_env.sh
	@.venv-fuzz/bin/python tests/fuzz/run.py --seconds $$(($(or $(FUZZ_SECONDS),60) * 3 / 4)) $(ARGS)
	@$(MAKE) --no-print-directory kernelfuzz FUZZ_SECONDS=$$(($(or $(FUZZ_SECONDS),60) / 4)) ARGS=

kernelfuzz: $(VENV)/.dev  ## fuzz the entry points of the kernel under ASan and UBSan, FUZZ_SECONDS=60 in all; needs gcc
	@bash tools/sanitized.sh $(BIN)/python tests/fuzz/kernel.py --seconds $(or $(FUZZ_SECONDS),60) $(ARGS)

asan: $(VENV)/.dev  ## run the tests of the kernel, indexing and codecs with ASan and UBSan in the kernel; needs gcc
	bash tools/sanitized.sh $(BIN)/python -m pytest -n auto --dist worksteal -q tests/kernel $(PLAIN)

tsan:  ## run the threads of the kernel with the thread sanitizer; needs gcc
	@mkdir -p build
	@$(or $(CC),gcc) -std=gnu11 -g -O1 -fsanitize=thread -pthread -Wall -Wextra -Werror tests/kernel/pool_tsan.c \
		src/zellige/kernel/pool.c -o build/pool_tsan
	@TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 build/pool_tsan

bench:  ## compare the speed with the peers; CASE=read_raw_4M or 'read_*', CORES=1,2,4, QUICK=1, ARGS=--help
	@bash tools/bench_env.sh
	@.venv-bench/bin/python -m bench $(if $(CASE),--case '$(CASE)') $(if $(CORES),--cores '$(CORES)') $(if $(QUICK),--quick) $(ARGS)

before:  ## compare the speed with that of an earlier commit: COMMIT=…, ARGS=--help
	@bash tools/bench_env.sh
	@.venv-bench/bin/python -m bench.before $(COMMIT) $(ARGS)

remote:  ## compare the speed over HTTP, with a server that waits 20 ms; ARGS=--help
	@bash tools/bench_env.sh
	@.venv-bench/bin/python -m bench.remote $(ARGS)

datasets:  ## compare the speed of writing datasets with xarray's own to_zarr; ARGS=--help
	@bash tools/bench_env.sh
	@.venv-bench/bin/python -m bench.datasets $(ARGS)

underneath:  ## run zarr-python's own tests with zellige underneath; ARGS=…
	@bash tools/underneath_env.sh
	@.venv-underneath/bin/python tools/underneath.py $(ARGS)

beneath:  ## compare the speed of zarr-python with zellige underneath and without; ARGS=--help
	@bash tools/bench_env.sh
	@.venv-bench/bin/python -m bench.underneath $(ARGS)

reliability:  ## compare what is lost with the peers, in about five minutes; QUICK=1, ARGS=--help
	@bash tools/bench_env.sh
	@.venv-bench/bin/python -m reliability $(if $(QUICK),--quick) $(ARGS)

oldest:  ## the tests of xarray, dask and rechunk with the oldest versions of both
	@bash tools/oldest_xarray.sh $(ARGS)

clean:  ## remove everything that was made here
	rm -f src/zellige/kernel/_native*.so
	rm -rf $(VENV) .venv-peer .venv-bench .venv-fuzz .venv-oldest .venv-underneath demo.zarr build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# pip hides what the build says: without a C compiler, this is the line that tells.
SAY_KERNEL := $(BIN)/zellige doctor | grep '^kernel' | grep -v works || true

KERNEL := hatch_build.py $(wildcard src/zellige/kernel/*.[ch])

$(VENV)/.installed: pyproject.toml $(KERNEL) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@$(SAY_KERNEL)
	@touch $@

$(VENV)/.dev: pyproject.toml $(KERNEL) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@$(SAY_KERNEL)
	@touch $@ $(VENV)/.installed

$(VENV)/.docs: pyproject.toml $(KERNEL) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@ $(VENV)/.installed
