# The book's commands; `make` lists them. They use .venv, which the first command creates, or your
# own environment: make test PYTHON=/path/to/python
.DEFAULT_GOAL := help
.PHONY: gpu help book live pdf notebooks model test mutation execute lab check clean repository code chapters pages bare
# If one part of the tests fails, the others still run.
MAKEFLAGS += --keep-going
SHELL := bash

ifdef PYTHON
READY :=
else
override PYTHON := .venv/bin/python
READY := .venv/.ready
endif
RUN := PYTHONPATH="$(CURDIR)" $(PYTHON)
# After Sphinx's warnings, Jupyter Book prints a traceback that adds nothing.
BUILD := set -o pipefail; $(RUN) -c "from jupyter_book.cli.main import main; main()" \
	build . --all --warningiserror --nitpick --keep-going 2>&1
WITHOUT_TRACEBACK := sed '/^Traceback (most recent call last)/,$$d'
# Two processes share two cores, so each gets one thread.
PYTEST = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(RUN) -m pytest -q -rs -n 2
# Without the model, the tests that need it are skipped with the reason.
MODEL := $(RUN) -m rope.book.model || true
# Adds buttons to the cells that run in the page; status 3 means that npm or its registry is missing.
LIVE := $(RUN) -m rope.book.live
# These tests read the built pages.
PAGE_TESTS := $(wildcard tests/test_browser*.py) tests/test_anchors.py \
	$(wildcard tests/test_paper_*.py)
# These tests need another program: a Chromium, Node.js or a compiler.
PROGRAM_TESTS := $(PAGE_TESTS) $(wildcard tests/test_diagnose_replay.py \
	tests/test_explorer.py tests/test_live.py tests/test_operator.py)

help: ## list the commands
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "With an environment of your own: make test PYTHON=/path/to/python"

book: $(READY) ## build the HTML, strictly, and print the page to open
	@$(BUILD) | $(WITHOUT_TRACEBACK)

live: $(READY) ## add Run buttons to the built pages; needs npm once
	@$(LIVE)

pdf: $(READY) ## print the built pages as one PDF, _build/rope-book.pdf; needs a Chromium
	@$(RUN) -m rope.book.paper pdf

notebooks: $(READY) ## write notebooks in plain Markdown to _build/notebooks/, for any Jupyter
	@$(RUN) -m rope.book.paper notebooks

model: $(READY) ## download the language model that some chapters run (93 MB, once)
	@$(RUN) -m rope.book.model

test: code chapters pages ## run every test; SLOW=1 adds the slow ones

code: $(READY) # unit tests, rules for notebooks, doctests
	@$(MODEL)
	@$(PYTEST) --dist worksteal $(PAGE_TESTS:%=--ignore %) tests rope

chapters: $(READY) # run every cell and compare its output with the stored one
	@$(MODEL)
	@$(PYTEST) --dist loadfile -p rope.book.tools.kernels --nbval --nbval-current-env \
		--nbval-cell-timeout=600 chapters

pages: $(READY) # build strictly and visit each page in a browser
	@$(BUILD) --quiet | $(WITHOUT_TRACEBACK)
	@$(LIVE) || [ $$? -eq 3 ]
	@$(PYTEST) --dist worksteal $(PAGE_TESTS)

mutation: $(READY) ## plant each known mistake and name those that no test notices; NAMES="kernels" runs some
	@$(RUN) tests/mutation.py $(if $(SAMPLE),--sample $(SAMPLE)) $(NAMES)

bare: # repeat the tests that need another program; .ci/bare hides those programs
	@$(PYTEST) --dist loadfile $(PROGRAM_TESTS)

execute: $(READY) ## run the notebooks and store their outputs; NB=chapters/x.ipynb runs one
	@$(RUN) -m rope.book.tools.execute $(NB)

lab: $(READY) ## open the notebooks in JupyterLab
	@$(PYTHON) -m nbformat.sign --log-level=ERROR chapters/*.ipynb
	@$(PYTHON) -m jupyterlab chapters/intro.ipynb

check: $(READY) ## ruff, formatting, mypy
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy

# This needs only torch and Triton, not the book's environment.
gpu: ## check, time and tune the kernel on a GPU and write its record; run it again to continue
	@PYTHONPATH="$(CURDIR)" $(if $(wildcard $(PYTHON)),$(PYTHON),$(if $(filter .venv/%,$(PYTHON)),python3,$(PYTHON))) \
		-m rope.book.measured.bench --device cuda $(if $(OUTPUT),--output $(OUTPUT))

# Colab installs TAG, a git tag or a commit.
repository: export TAG ?= v$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
repository: ## set the book's address everywhere: URL=https://... (URL= removes it)
	@[[ "$$URL" =~ ^((https|file)://[-A-Za-z0-9._~/:@%+]*[^/])?$$ ]] || { echo "URL is $$URL; it must begin with https:// or file:// and have no spaces, quotes or final slash" >&2; exit 2; }
	@perl -0pi -e 's|^repository:\n  url: \K".*?"|"$$ENV{URL}"|m' _config.yml
	@perl -pi -e 's|"REPOSITORY, TAG = \K.*?(?=\\n)|\\"$$ENV{URL}\\", \\"$$ENV{TAG}\\"|' chapters/*.ipynb

clean: ## delete build products; keep .venv
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find rope tests chapters -name __pycache__ -prune -exec rm -rf {} +

.venv/.ready: requirements.txt pyproject.toml $(wildcard setup.py rope/kernels/*.c)
	@sh .ci/setup
