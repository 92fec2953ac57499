# The two commands of a newcomer: `make demo` and `make test`. Both set themselves up in .venv first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)
# The release that is tested. With PIP_EXTRA_INDEX_URL set to PyTorch's index of CPU wheels, pip takes the CPU build.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# As it is: a price has a dollar sign.
override TEXT := $(value TEXT)
export TEXT VOICE MODEL_DIR HOST PORT VARIANT

.PHONY: demo serve test bench soak fuzz operations lint types bento image image-test lock model-import smoke compose-test clean

demo: $(VENV)/.demo
	@$(BIN)/python -m launch.demo

serve: $(VENV)/.demo
	@$(BIN)/python -m launch.serve

# Half of the tests wait for servers and clocks: three at a time keep two cores busy. WORKERS=0: one after the other.
WORKERS ?= 3
test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --durations=25 --durations-min=5

# Every speed claim of the README, as a ratio in one run; writes out/bench. Some 15 minutes and 8 GB of disk.
bench: $(VENV)/.test
	@$(BIN)/python -m benchmarks.bench

# What 10,000 mixed requests leave behind; some 20 minutes, writes out/soak. Shorter: make soak SOAK="--minutes 2 --flat 0.1"
SOAK ?= --minutes 20 --requests 10000
soak: $(VENV)/.test
	@$(BIN)/python -m benchmarks.soak $(SOAK)

# A hundred times the examples of `make test`.
fuzz: $(VENV)/.test
	COSYSERVE_FUZZ=100 $(BIN)/python -m pytest tests/fuzz

# The tables of docs/operations.md and docs/licences.md, from the code and from what is installed.
operations: $(VENV)/.dev
	@$(BIN)/python -m launch.operations
	@$(BIN)/python -m launch.licences

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bento: $(VENV)/.demo
	$(BIN)/bentoml build

# VARIANT=gpu: the image with CUDA's packages. Needs podman, buildah or docker.
image: $(VENV)/.demo
	$(BIN)/python -m launch.image

# MODEL_DIR into BentoML's model store, NAME: under which name.
model-import: $(VENV)/.demo
	@test -n "$(MODEL_DIR)" || { echo "make model-import: say which folder: MODEL_DIR=..." >&2; exit 1; }
	@$(BIN)/python -m launch.model_import "$(MODEL_DIR)" $(if $(NAME),--name "$(NAME)")

# The image's locks: every package pinned, for the Python of the base image in Containerfile.template. On a CPU the same
# torch release needs none of CUDA's packages; on a GPU onnxruntime-gpu takes onnxruntime's place.
COMPILE = $(BIN)/uv pip compile pyproject.toml --extra jwt --extra otlp --constraint $$new/torch.txt --quiet --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28 --no-emit-index-url --no-annotate --no-header --upgrade
lock: $(VENV)/.dev
	set -e; new=$$(mktemp -d); trap 'rm -r "$$new"' EXIT; \
	echo "$(TORCH)" > $$new/torch.txt; \
	$(COMPILE) > $$new/all.txt; \
	grep -vE '^(cuda-|triton==|nvidia-[^m])' $$new/all.txt > $$new/requirements-cpu.lock; \
	$(COMPILE) --extra gpu --no-emit-package onnxruntime > $$new/requirements-gpu.lock; \
	mv $$new/requirements-cpu.lock $$new/requirements-gpu.lock .

smoke: $(VENV)/.test
	$(BIN)/python -m pytest tests/smoke -m smoke

# Needs root, podman, runc and debootstrap.
image-test: $(VENV)/.test
	$(BIN)/python -m pytest tests/image -m image -s

# Two services behind nginx, killed and restarted. Needs Debian's nginx.
compose-test: $(VENV)/.test
	$(BIN)/python -m pytest tests/service -m compose -s

clean:
	rm -rf $(VENV) out

# One stamp per set of extras; a stamp is out of date when pyproject.toml changed.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "CosyServe needs Python 3.10 to 3.13 with venv; on Debian and Ubuntu:" \
		"apt-get install python3 python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: $(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	@echo "installing the $* set into $(VENV); the first time takes a few minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check ".[$*]"
	@touch $@
