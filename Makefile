# The book's commands; `make` alone lists them. They work in .venv, which the first one sets up, or
# in an environment of your own: make test PYTHON=/path/to/python
.DEFAULT_GOAL := help
.PHONY: gpu help book live pdf notebooks test mutation execute lab check clean repository code chapters pages bare
# A part of the tests that fails keeps none of the others from running.
MAKEFLAGS += --keep-going
SHELL := bash

ifdef PYTHON
READY :=
else
override PYTHON := .venv/bin/python
READY := .venv/.ready
endif
RUN := PYTHONPATH="$(CURDIR)" $(PYTHON)
# Jupyter Book's own traceback, behind Sphinx's warnings, says nothing more.
BUILD := set -o pipefail; $(RUN) -c "from jupyter_book.cli.main import main; main()" \
	build . --all --warningiserror --nitpick --keep-going 2>&1
WITHOUT_TRACEBACK := sed '/^Traceback (most recent call last)/,$$d'
# One thread a process: two processes have two cores.
PYTEST = OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(RUN) -m pytest -q -rs -n 2
# Buttons for the cells that run in the page; 3 says that there is no npm, or no registry for it.
LIVE := $(RUN) -m rope.book.live
# Tests of the built pages.
PAGE_TESTS := $(wildcard tests/test_browser*.py) tests/test_anchors.py \
	$(wildcard tests/test_paper_*.py)
# Tests that need a program beside Python: a Chromium, Node.js, a compiler.
PROGRAM_TESTS := $(PAGE_TESTS) $(wildcard tests/test_diagnose_replay.py \
	tests/test_diagnose_foreign.py tests/test_explorer.py tests/test_live.py tests/test_operator.py)

help: ## list the commands
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "With an environment of your own: make test PYTHON=/path/to/python"

book: $(READY) ## build the HTML, strictly, and print the page to open
	@$(BUILD) | $(WITHOUT_TRACEBACK)

live: $(READY) ## give the built pages their Run buttons; needs npm once
	@$(LIVE)

pdf: $(READY) ## print the built pages as one PDF, _build/rope-book.pdf; needs a Chromium
	@$(RUN) -m rope.book.paper pdf

notebooks: $(READY) ## make flat notebooks of them, _build/notebooks/, that any Jupyter shows
	@$(RUN) -m rope.book.paper notebooks

test: code chapters pages ## run every test; SLOW=1 adds the slow ones

code: $(READY) # unit tests, rules for notebooks, doctests
	@$(PYTEST) --dist worksteal $(PAGE_TESTS:%=--ignore %) tests rope

chapters: $(READY) # every cell again, its output compared with the stored one
	@$(PYTEST) --dist loadfile -p rope.book.tools.kernels --nbval --nbval-current-env \
		--nbval-cell-timeout=600 chapters

pages: $(READY) # the strict build, and its pages in a browser
	@$(BUILD) --quiet | $(WITHOUT_TRACEBACK)
	@$(LIVE) || [ $$? -eq 3 ]
	@$(PYTEST) --dist worksteal $(PAGE_TESTS)

mutation: $(READY) ## plant each known mistake and name those that no test notices; NAMES="kernels" for some
	@$(RUN) tests/mutation.py $(if $(SAMPLE),--sample $(SAMPLE)) $(NAMES)

bare: # tests of what a machine lacks, run by .ci/bare on the pages that were built last
	@$(PYTEST) --dist loadfile $(PROGRAM_TESTS)

execute: $(READY) ## run the notebooks and store their outputs; NB=chapters/x.ipynb for one
	@$(RUN) -m rope.book.tools.execute $(NB)

lab: $(READY) ## open the notebooks in JupyterLab
	@$(PYTHON) -m nbformat.sign --log-level=ERROR chapters/*.ipynb
	@$(PYTHON) -m jupyterlab chapters/intro.ipynb

check: $(READY) ## ruff, formatting, mypy
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy

# It needs torch and Triton alone, and so no environment of the book.
gpu: ## check, tune and time the kernel on a GPU and write its record; again where time ran out
	@PYTHONPATH="$(CURDIR)" $(if $(wildcard $(PYTHON)),$(PYTHON),$(if $(filter .venv/%,$(PYTHON)),python3,$(PYTHON))) \
		-m rope.book.measured.gpu $(if $(MINUTES),--minutes $(MINUTES)) $(if $(OUTPUT),--output $(OUTPUT))

repository: $(READY) ## set the book's address everywhere: URL=https://... (URL= takes it away)
	@$(RUN) -m rope.book.tools.repository "$(URL)"

clean: ## delete what was built; .venv stays
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find rope tests chapters -name __pycache__ -prune -exec rm -rf {} +

.venv/.ready: requirements.txt pyproject.toml $(wildcard setup.py rope/kernels/*.c)
	@sh .ci/setup
