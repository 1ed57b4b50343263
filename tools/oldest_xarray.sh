#!/usr/bin/env bash
# Run the tests of xarray, dask and rechunk with the oldest versions that pyproject.toml allows, in an environment of
# their own, .venv-oldest, which is made on first use. A later run needs no network; arguments go to pytest.
#
# OLDEST_PYTHON names an interpreter to try first.

set -u
cd "$(dirname "$0")/.." || exit 1

env=.venv-oldest
# The versions in the extras `xarray` and `dask`, and what was current when they came out.
oldest=('xarray==2025.7.1' 'dask[array]==2025.1.0' 'distributed==2025.1.0' 'numpy==2.1.*' 'pandas==2.2.*' 'zarr==3.1.*')
tools=('cftime>=1.6' 'pytest>=8' 'pytest-xdist>=3.6' 'hypothesis>=6.100' 'moto[server]>=5.1' 'boto3>=1.35')

say() { printf 'oldest environment: %s\n' "$*"; }

# Whether a command is a Python that these versions have wheels for, runs, and can make environments. A name on PATH
# may be a stub of a version manager that only prints an error.
suits() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' </dev/null >/dev/null 2>&1
}

find_python() {
    for candidate in "${OLDEST_PYTHON:-}" python3.11 python3.12 python3.13 python3 \
        "$(pyenv root 2>/dev/null)"/versions/3.1[123].*/bin/python3; do
        if [ -n "$candidate" ] && suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

if [ ! -f "$env/.ready" ] || ! "$env/bin/python" -c 'import xarray' 2>/dev/null; then
    rm -rf "$env" # whatever is there is unfinished, or its interpreter is gone
    if ! python=$(find_python); then
        say "not made: no Python 3.11 to 3.13 with venv and pip runs here; install one, or name it in OLDEST_PYTHON"
        exit 1
    fi
    trap 'rm -rf "$env"' EXIT # whatever stops the script takes the unfinished environment away
    "$python" -m venv "$env" || exit 1
    "$env/bin/python" -m pip install --quiet --disable-pip-version-check \
        -e '.[cloud,icechunk]' "${oldest[@]}" "${tools[@]}" || exit 1
    touch "$env/.ready"
    trap - EXIT
fi
"$env/bin/python" -c 'import dask, sys, xarray
print("oldest environment: xarray", xarray.__version__, "and dask", dask.__version__, "on Python", sys.version.split()[0])'
"$env/bin/python" -m pytest -q -n 2 tests/xarray tests/dask tests/tools/test_rechunk*.py "$@"
