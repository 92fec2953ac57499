# The two commands of a newcomer: `make demo` and `make test`. Both set themselves up in .venv first.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$p && break; done)
# The release that is tested. With PIP_EXTRA_INDEX_URL set to PyTorch's index of CPU wheels, pip takes the CPU build.
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
export TEXT VOICE MODEL_DIR HOST PORT

.PHONY: demo serve test lint types bento lock smoke clean

demo: $(VENV)/.demo
	@$(BIN)/python -m launch.demo

serve: $(VENV)/.demo
	@$(BIN)/python -m launch.serve

test: $(VENV)/.test
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bento: $(VENV)/.demo
	$(BIN)/bentoml build

# The image's lock: every package pinned, for the Python of the base image in bentofile.yaml.
lock: $(VENV)/.dev
	echo "$(TORCH)" | $(BIN)/uv pip compile pyproject.toml --constraint - --quiet --python-version 3.11 \
		--no-emit-index-url --no-annotate --no-header --upgrade --output-file requirements.lock

smoke: $(VENV)/.test
	$(BIN)/python -m pytest tests/smoke -m smoke

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
