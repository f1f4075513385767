# The book's commands; `make` alone lists them. They work in .venv, which the first one sets up, or
# in an environment of your own: make test PYTHON=/path/to/python
.DEFAULT_GOAL := help
.PHONY: help book test execute lab check clean repository own-environment

ifdef PYTHON
READY := own-environment
else
override PYTHON := .venv/bin/python
READY := .venv/.ready
endif
COMMANDS := $(PYTHON) rope/book/commands.py

help: ## list the commands
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20
	@echo "With an environment of your own: make test PYTHON=/path/to/python"

book: $(READY) ## build the HTML, strictly, and print the page to open
	@$(COMMANDS) book

test: $(READY) ## run every test; SLOW=1 adds the slow ones
	@$(COMMANDS) test

execute: $(READY) ## run the notebooks and store their outputs; NB=chapters/x.ipynb for one
	@$(PYTHON) -m rope.book.execute $(NB)

lab: $(READY) ## open the notebooks in JupyterLab
	@$(PYTHON) -m jupyterlab chapters/intro.ipynb

check: $(READY) ## ruff, formatting, mypy
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy

repository: $(READY) ## set the book's address everywhere: URL=https://... (URL= takes it away)
	@$(PYTHON) -m rope.book.repository "$(URL)"

clean: ## delete what was built; .venv stays
	@rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find rope tests chapters -name __pycache__ -prune -exec rm -rf {} +

.venv/.ready: requirements.txt pyproject.toml
	@sh .ci/setup

own-environment:
	@$(COMMANDS) packages
