# Everything from a bare clone: `make demo` runs the main job, `make test` passes the tests. Needs Python >= 3.11, git, make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export OMP_NUM_THREADS ?= 1
# images set this; each process that a test starts would then compile the package anew
unexport PYTHONDONTWRITEBYTECODE
# old libraries use what newer ones call deprecated, or leave files open: there, such warnings are no failures
OLD := -W default::DeprecationWarning -W default::FutureWarning -W default::ResourceWarning -W default::pytest.PytestUnraisableExceptionWarning

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-browser test-data test-flower test-flowers test-image test-latex test-live test-lowest test-ray test-trackers \
	test-processors test-transformers test-wheel digests lint format docs constraints swarm inert mutants bench bench-peers reproduce stale clean

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.documenting: $(VENV)/.installed
	$(PIP) --editable '.[docs]'
	@touch $@

install: $(VENV)/.installed  ## Make the virtual environment and install fednet_emu into it

demo: $(VENV)/.installed  ## Run scenarios/quickstart.yaml on embedded data, with plots
	$(BIN)/fednet run scenarios/quickstart.yaml --out results/quickstart/demo --force

test: $(VENV)/.developing  ## Run the tests (minutes)
	$(BIN)/python -m pytest -q -m "not slow and not live" --numprocesses 2 --dist worksteal

test-all: $(VENV)/.developing  ## Run all tests, the slow ones too
	$(BIN)/python -m pytest -q -m "not live" --hypothesis-profile thorough --numprocesses 2 --dist worksteal

test-browser: $(VENV)/.developing  ## Look at report pages in a headless Chromium, which this installs if it can
	$(PIP) --editable '.[browser]'
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || tools/install_chromium.sh
	$(BIN)/python -m pytest -q tests/browser

test-latex: $(VENV)/.developing  ## Compile figures and tables with LaTeX, which must be there
	@command -v pdflatex >/dev/null || { echo "pdflatex: not found; install texlive-latex-recommended, texlive-pictures and lmodern, or the like"; exit 1; }
	$(BIN)/python -m pytest -q tests/draw/figures

test-live: $(VENV)/.developing  ## Run the tests of live mode that start programs in namespaces, or say what this machine lacks; of Flower apps, too, after test-flower; SLOW=1
	$(BIN)/python -m pytest -q -m "$(if $(SLOW),live,live and not slow)" tests/live

test-ray: $(VENV)/.developing  ## Run the tests of sweeps and of training on Ray, which this installs (as the extra `ray` does)
	$(PIP) --editable '.[ray]'
	$(BIN)/python -m pytest -q tests/study/test_on_ray.py tests/learning/engines/test_ray.py

test-flower: $(VENV)/.developing  ## Run the tests of Flower apps; this installs Flower (as the extra `flower` does)
	$(PIP) --editable '.[flower]'
	FLWR_TELEMETRY_ENABLED=0 $(BIN)/python -m pytest -q tests/flower

test-flowers:  ## Run them with other versions of Flower, each in an environment of its own; FLOWERS="1.26.0 1.30.0"
	set -e; for flower in $(or $(FLOWERS),1.26.0 1.30.0); do \
		test -x $(VENV)-flower-$$flower/bin/python || $(PYTHON) -m venv $(VENV)-flower-$$flower; \
		grep '^torch==' constraints.txt >$(VENV)-flower-$$flower/torch.txt; \
		$(VENV)-flower-$$flower/bin/python -m pip install --quiet --disable-pip-version-check \
			--constraint $(VENV)-flower-$$flower/torch.txt flwr==$$flower --editable '.[flower,test]'; \
		FLWR_TELEMETRY_ENABLED=0 $(VENV)-flower-$$flower/bin/python -m pytest -q $(OLD) tests/flower; \
	done

test-lowest:  ## Run the tests with the lowest version of each dependency, in an environment of its own; TESTS=tests/kernel
	test -x $(VENV)-lowest/bin/python || $(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt \
		--editable '.[test,flower,hugging-face,mlflow,ray,search,tensorboard,transformers,wandb]'
	FLWR_TELEMETRY_ENABLED=0 $(VENV)-lowest/bin/python -m pytest -q -m "not slow and not live" --numprocesses 2 --dist worksteal $(OLD) $(TESTS)

test-wheel:  ## Build the source archive, from it the wheel, and run the wheel in an empty folder; both stay in dist/
	rm -rf dist $(VENV)-wheel
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt build
	$(VENV)-wheel/bin/python -m build --outdir dist
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt dist/*.whl
	tools/try_installed.sh $(abspath $(VENV)-wheel/bin)

test-image:  ## Build the image of the Dockerfile and run the demo in it; this takes Docker
	docker build --tag fednet_emu .
	docker run --rm fednet_emu

test-trackers: $(VENV)/.developing  ## Run the tests of trackers, whose libraries this installs (as their extras do)
	$(PIP) --editable '.[tensorboard,mlflow,wandb]'
	$(BIN)/python -m pytest -q tests/tracking

test-data: $(VENV)/.developing  ## Run the tests of data and models by torchvision and Hugging Face, which this installs
	$(PIP) --editable '.[torchvision,hugging-face]'
	$(BIN)/python -m pytest -q tests/learning/libraries

test-transformers: $(VENV)/.developing  ## Run the tests of networks of transformers, which this installs, and peft, which they are held against
	$(PIP) --editable '.[oracles]'
	$(BIN)/python -m pytest -q tests/learning/libraries/test_transformers.py tests/learning/libraries/test_adapter_examples.py

lint: $(VENV)/.developing  ## Check style, formatting, types and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.developing  ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.documenting  ## Build the documentation site in docs/_build/html, its gallery included (minutes)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

constraints:  ## Resolve the versions to test with, the lowest ones too, with uv; UPGRADE=1 takes the newest of all
	$(PYTHON) tools/constraints.py $(if $(UPGRADE),--upgrade)

test-processors: $(VENV)/.developing  ## Run the tests of learning and algorithms with SSE4.2, AVX2 and AVX-512 instructions, as far as the processor has them
	set -e; for names in "default SSE4_2 SSE41" "avx2 AVX2 AVX2" "avx512 AVX512 AVX512_CORE"; do set -- $$names; \
		case $$1 in avx*) grep -q $$1 /proc/cpuinfo || { echo "$$1: the processor lacks it"; continue; };; esac; \
		echo "$$1"; ATEN_CPU_CAPABILITY=$$1 MKL_ENABLE_INSTRUCTIONS=$$2 ONEDNN_MAX_CPU_ISA=$$3 $(BIN)/python -m pytest -q \
			-m "not slow and not live" --numprocesses 2 --dist worksteal tests/learning tests/algorithms; \
	done

digests: $(VENV)/.developing  ## Compare events, times and energies of shipped scenarios and small worlds with tools/digests.txt
	$(BIN)/python tools/digests.py --check --untrained

swarm: $(VENV)/.developing  ## Play random scenarios and check laws that hold for all; SEEDS=1000, FIRST=0, WORKERS=2, KEEP=file
	$(BIN)/python -m qa.swarm --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0) --workers $(or $(WORKERS),2) $(if $(KEEP),--keep $(KEEP))

inert: $(VENV)/.developing  ## Change every key of drawn scenarios, and see which change nothing; SEEDS=200, FIRST=0
	$(BIN)/python -m qa.inert --seeds $(or $(SEEDS),200) --first $(or $(FIRST),0)

mutants: $(VENV)/.developing  ## Put faults into the code one at a time and see which the tests miss; COUNT=1500, SEED=0, ONLY=kernel
	$(PIP) --editable '.[mutants]'
	$(BIN)/python -m qa.mutants --count $(or $(COUNT),1500) --seed $(or $(SEED),0) $(if $(ONLY),--only $(ONLY))

bench: $(VENV)/.developing  ## Measure the speed of the time plane and of training
	$(BIN)/python -m pytest -q -s benchmarks

bench-peers: $(VENV)/.installed  ## Compare with other simulators; PEERS=..., ALONE=1, WORKLOADS=..., REPEATS=..., OUT=...
	PYTHONPATH=benchmarks $(BIN)/python -m peers $(if $(PEERS),--peers $(PEERS)) \
		$(if $(ALONE),--alone) $(if $(WORKLOADS),--workloads $(WORKLOADS)) $(if $(REPEATS),--repeats $(REPEATS)) \
		$(if $(OUT),--out $(OUT)) $(if $(RESUME),--resume)

reproduce: $(VENV)/.installed  ## Run the studies that fit into an hour; refresh their tables and figures in results/reference
	$(BIN)/fednet reproduce --minutes 60

stale: $(VENV)/.installed  ## Name the reference tables that today's code no longer makes; RUNS=2, MEND=1 NAMES=..., FEDNET_DATA=...
	$(BIN)/python tools/stale.py --runs $(or $(RUNS),2) $(if $(MEND),--mend) $(NAMES)

clean:  ## Remove the virtual environment, caches and runs
	rm -rf $(VENV) $(VENV)-* dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf docs/_build docs/gallery docs/reference/settings docs/reference/tables.md docs/reference/plausible.md docs/reference/api/*.rst docs/project/house.md
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find results -mindepth 1 -maxdepth 1 ! -name reference -exec rm -rf {} +
