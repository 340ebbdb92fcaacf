# Two commands do everything on a machine that has Python 3.11+: `make demo` and `make test`.
PYTHON ?= python3
BIN = .venv/bin
DEMO = runs/demo

PYTEST = $(BIN)/python -m pytest -n auto --dist worksteal

# Settings under which the libraries compute as on a CPU with AVX2 only, and as on a CPU without.
AVX2 = ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
	CT2_FORCE_CPU_ISA=AVX2 CT2_USE_MKL=0
GENERIC = ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=SSE4_2 ONEDNN_MAX_CPU_ISA=SSE41 \
	CT2_FORCE_CPU_ISA=GENERIC CT2_USE_MKL=0

.PHONY: help demo test test-all lint clean

help:
	@echo "make demo      train on data/demo, translate, evaluate (about 5 minutes, set-up included)"
	@echo "make test      run the tests (about 5 minutes)"
	@echo "make test-all  run the tests, the long tests, and the CPU tests as two other CPUs"
	@echo "make lint      run ruff and mypy"
	@echo "make clean     remove everything that make has made"

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
	@echo "How it went: $(DEMO)/report.html (open it in a browser)"
	@echo "Now yours:   echo 'The old woman reads a book.' | $(BIN)/mtcli translate $(DEMO)"

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

configs/reference.yaml: mtcli/config/sections.py mtcli/config/architectures.py mtcli/config/reference.py | .venv/core
	$(BIN)/python -m mtcli.config.reference > $@

clean:
	rm -rf .venv runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
