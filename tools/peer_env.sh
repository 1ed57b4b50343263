#!/usr/bin/env bash
# Make .venv-peer, an environment with a zarr-python that knows rectilinear chunks and the newer codecs, for
# some of tests/interop. That release needs a newer Python than zellige does.
#
# Prints one line and always succeeds: without the peer those tests are skipped, and say so.
# PEER_PYTHON names an interpreter to try first.

set -u
cd "$(dirname "$0")/.." || exit 0

env=.venv-peer
peer=('zarr>=3.4' 'cast-value-rs>=0.4.2' 'zfpy>=1.0' 'numcodecs[pcodec]') # what its codecs need, too
oldest='3, 12'

say() { printf 'peer environment: %s\n' "$*"; }

# Whether a command is a Python that is new enough, runs, and can make environments. A name on PATH
# may be a stub of a version manager that only prints an error.
suits() {
    "$1" -c "import ensurepip, sys, venv; sys.exit(sys.version_info < ($oldest))" </dev/null >/dev/null 2>&1
}

find_python() {
    for candidate in "${PEER_PYTHON:-}" python3 python3.14 python3.13 python3.12; do
        if [ -n "$candidate" ] && suits "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    if command -v pyenv >/dev/null 2>&1; then
        for candidate in "$(pyenv root 2>/dev/null)"/versions/*/bin/python3; do
            if [ -x "$candidate" ] && suits "$candidate"; then
                printf '%s\n' "$candidate"
                return
            fi
        done
    fi
    return 1
}

# What went wrong, as one line: pip's last error, or else the last line of all.
reason() {
    printf '%s\n' "$1" | awk 'NF { last = $0 } /^ERROR/ { error = $0 } END { print error ? error : last }'
}

if [ -f "$env/.ready" ] && "$env/bin/python" -c 'import cast_value_rs, zfpy, pcodec' 2>/dev/null; then
    say "$env is ready ($(cat "$env/.ready"))"
    exit 0
fi

rm -rf "$env" # whatever is there is unfinished, or its interpreter is gone
if ! python=$(find_python); then
    say "not made: no Python 3.12 or newer with venv and pip runs here; install one, or name it in PEER_PYTHON"
    exit 0
fi

# From here to the stamp, whatever stops the script takes the unfinished environment away.
trap 'rm -rf "$env"' EXIT
trap 'say "not made: interrupted"; exit 0' HUP INT TERM

if ! output=$("$python" -m venv "$env" 2>&1); then
    say "not made: $python cannot make an environment: $(reason "$output")"
elif ! output=$("$env/bin/python" -m pip install --quiet --disable-pip-version-check "${peer[@]}" 2>&1); then
    say "not made: pip cannot install ${peer[*]} for $python: $(reason "$output")"
elif ! output=$("$env/bin/python" -c '
import platform, zarr
print("zarr-python", zarr.__version__, "on Python", platform.python_version())' 2>&1); then
    say "not made: the installed zarr-python does not import: $(reason "$output")"
else
    printf '%s\n' "$output" >"$env/.ready"
    trap - EXIT
    say "made $env with $output"
fi
exit 0
