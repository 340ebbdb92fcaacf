# `make demo` and `make test` need only Python 3.11 or newer; they install everything else in .venv.
PYTHON ?= python3
BIN = .venv/bin
DEMO = runs/demo

PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal

# Environment variables that restrict the libraries to AVX2 (AVX2) or to code without AVX (GENERIC).
AVX2 = ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
	CT2_FORCE_CPU_ISA=AVX2 CT2_USE_MKL=0
GENERIC = ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 \
	CT2_FORCE_CPU_ISA=GENERIC CT2_USE_MKL=0

.PHONY: help demo test test-all lint clean

help:
	@echo "make demo      install mtcli, then train, translate and evaluate (about 5 minutes)"
	@echo "make test      run the tests (about 5 minutes)"
	@echo "make test-all  also run the long tests, and the CPU tests with AVX2 and without AVX"
	@echo "make lint      check the style, types and spelling"
	@echo "make clean     delete .venv, runs and all caches"

.venv/core: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/extras: .venv/core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test]"
	@touch $@

demo: .venv/core
	$(BIN)/mtcli train --config configs/demo.yaml --out $(DEMO)
	@echo
	@$(BIN)/mtcli translate $(DEMO) data/demo/hello.en | paste -d '\n' data/demo/hello.en - \
		| awk 'NR % 2 { print "  " $$0; next } { print "  -> " $$0 "\n" }'
	$(BIN)/mtcli attention $(DEMO) 'Where did you buy the red hat?'
	$(BIN)/mtcli evaluate $(DEMO) data/demo/test.en data/demo/test.de
	@echo
	@echo "Training report: $(DEMO)/report.html (open it in a browser)"
	@echo "Try it:          echo 'The old woman reads a book.' | $(BIN)/mtcli translate $(DEMO)"

test: .venv/extras
	$(PYTEST) -m "not long"

test-all: test
	$(PYTEST) -m long
	$(AVX2) $(PYTEST) -m "cpu and not long"
	$(GENERIC) $(PYTEST) -m "cpu and not long"

lint: .venv/extras
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell

configs/reference.yaml: mtcli/config/base.py mtcli/config/sections.py mtcli/config/transformers.py mtcli/config/rnn.py mtcli/config/search.py mtcli/config/tokenizer.py mtcli/config/reference.py | .venv/core
	$(BIN)/python -m mtcli.config.reference > $@

clean:
	rm -rf .venv runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
