#!/bin/sh
# Run the tests of the xarray and dask guests with the oldest versions that pyproject.toml allows.
# Usage: tools/oldest_xarray.sh [directory of the environment]
set -eu
cd "$(dirname "$0")/.."
env=${1:-.venv-oldest-xarray}
if [ ! -x "$env/bin/python" ]; then
  python3.11 -m venv "$env"
  "$env/bin/pip" install -q -e . "xarray==2025.7.1" "dask[array]==2025.1.0" "distributed==2025.1.0" \
    "numpy==2.1.*" "pandas==2.2.*" "zarr==3.1.*" "cftime>=1.6" "pytest>=8" "pytest-xdist>=3.6" "hypothesis>=6.100"
fi
"$env/bin/python" -m pytest -q -n 2 tests/test_xarray*.py tests/test_dask*.py
