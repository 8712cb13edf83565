#!/bin/sh
# Installs the Python package into an environment under target/ and runs its tests. Those of torch and of jax run where
# they are installed, or with SAMEDRAW_CI_TORCH=1 and SAMEDRAW_CI_JAX=1, which install them: 4.7 GB and 0.3 GB on x86-64.
set -eu
cd "$(dirname "$0")/.."
folder=target/python-env
[ -x "$folder/bin/python" ] || python3 -m venv --system-site-packages "$folder"
"$folder/bin/python" -m pip install --quiet numpy pytest >&2
[ "${SAMEDRAW_CI_TORCH:-}" != 1 ] || "$folder/bin/python" -m pip install --quiet torch >&2
[ "${SAMEDRAW_CI_JAX:-}" != 1 ] || "$folder/bin/python" -m pip install --quiet jax >&2
CARGO_TARGET_DIR=$PWD/target/python
MATURIN_PEP517_ARGS="--profile dev"
export CARGO_TARGET_DIR MATURIN_PEP517_ARGS
(
    cd python
    cargo fmt --check
    cargo clippy --quiet -- -D warnings
)
"$folder/bin/python" -m pip install --quiet --force-reinstall --no-deps ./python >&2
# From a folder of its own: the package that was installed is tested, not the sources.
tests=$PWD/python/tests
cd "$folder"
exec bin/python -m pytest -rs -p no:cacheprovider "$tests"
