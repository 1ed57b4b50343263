#!/usr/bin/env bash
# Make .venv-bench, the environment of `make bench`: zellige from this checkout (editable) beside TensorStore, zarrista,
# zarr-python and zarrs, on the newest Python from 3.12 up that is found, since zarr-python needs one. Without
# one, on python3 with the newest releases for it. A later run needs no network; to measure newer releases of
# the peers, remove the environment first.
#
# Prints one line; fails when there is nothing to run the bench with. BENCH_PYTHON names an interpreter to try first.

set -u
cd "$(dirname "$0")/.." || exit 1

env=.venv-bench
peers=(numpy zarr zarrs zarrista tensorstore obstore fsspec aiohttp xarray)

say() { printf 'bench environment: %s\n' "$*"; }

# Whether a command is a Python of a version or newer that runs and can make environments.
suits() {
    "$1" -c "import ensurepip, sys, venv; sys.exit(sys.version_info < ($2))" </dev/null >/dev/null 2>&1
}

# Newest first; a name on PATH may be a stub of a version manager that only prints an error.
candidates() {
    printf '%s\n' "${BENCH_PYTHON:-}" python3.13 python3.12
    if command -v pyenv >/dev/null 2>&1; then
        for version in 3.13 3.12; do
            printf '%s\n' "$(pyenv root 2>/dev/null)/versions/$version".*/bin/python3
        done
    fi
    printf '%s\n' python3
}

find_python() {
    for oldest in '3, 12' '3, 11'; do
        while read -r candidate; do
            if [ -n "$candidate" ] && suits "$candidate" "$oldest"; then
                command -v "$candidate"
                return
            fi
        done < <(candidates)
    done
    return 1
}

# What went wrong, as one line: pip's last error, or else the last line of all.
reason() {
    printf '%s\n' "$1" | awk 'NF { last = $0 } /^ERROR/ { error = $0 } END { print error ? error : last }'
}

install() { "$env/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 2>&1; }

# Whether the peers are there; zellige is not asked, since it may be in the middle of a change.
has_peers() { "$env/bin/python" -c 'import zarr, zarrista, tensorstore, aiohttp, xarray' 2>/dev/null; }

has_zellige() { "$env/bin/python" -c 'import importlib.metadata as m; m.version("zellige")' 2>/dev/null; }

if [ -f "$env/.ready" ] && has_peers; then
    if [ pyproject.toml -nt "$env/.ready" ] || ! has_zellige; then # what zellige needs may have changed
        if output=$(install -e '.[cloud]'); then touch "$env/.ready"; else say "kept as it is: $(reason "$output")"; fi
    fi
    say "$env is ready ($(cat "$env/.ready"))"
    exit 0
fi

rm -rf "$env" # whatever is there is unfinished, or its interpreter is gone
if ! python=$(find_python); then
    say "not made: no Python 3.11 or newer with venv and pip runs here; install one, or name it in BENCH_PYTHON"
    exit 1
fi

# From here to the stamp, whatever stops the script takes the unfinished environment away.
trap 'rm -rf "$env"' EXIT
trap 'say "not made: interrupted"; exit 1' HUP INT TERM

if ! output=$("$python" -m venv "$env" 2>&1); then
    say "not made: $python cannot make an environment: $(reason "$output")"
elif ! output=$(install "${peers[@]}"); then
    say "not made: pip cannot install ${peers[*]} for $python: $(reason "$output")"
elif ! output=$(install -e '.[cloud]'); then
    say "not made: pip cannot install this checkout for $python: $(reason "$output")"
elif ! output=$("$env/bin/python" -c '
import platform
from importlib.metadata import version
names = ("tensorstore", "zarr", "zarrs", "zarrista")
print(", ".join(f"{name} {version(name)}" for name in names), "on Python", platform.python_version())' 2>&1); then
    say "not made: the peers are not there after their installation: $(reason "$output")"
else
    printf '%s\n' "$output" >"$env/.ready"
    trap - EXIT
    say "made $env with $output"
    exit 0
fi
exit 1
