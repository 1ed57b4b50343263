#!/usr/bin/env bash
# Make .venv-underneath, the environment of `make underneath`: zellige from this checkout (editable), zarr-python and
# what its tests need, on a Python from 3.12 up. A later run needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

env=.venv-underneath
[ -f "$env/.ready" ] && [ ! pyproject.toml -nt "$env/.ready" ] && exit 0
python=
for candidate in "${PEER_PYTHON:-}" python3.13 python3.12 "$(pyenv root 2>/dev/null)"/versions/3.1[23]*/bin/python3 python3; do
    if [ -n "$candidate" ] && "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "underneath: not made: zarr-python's newest release needs Python 3.12; install one, or name it in PEER_PYTHON"
    exit 1
fi
"$python" -m venv "$env"
"$env/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[zarr,cloud,fsspec]' 'zarr>=3.4' \
    pytest pytest-asyncio pytest-benchmark pytest-accept hypothesis numpydoc rich tomlkit requests 'moto[server]' s3fs
touch "$env/.ready"
