#!/usr/bin/env bash
# Make .venv-fuzz, the environment of `make fuzz`: zellige from this checkout (editable) with all its codecs, and
# atheris, the fuzzer, which has wheels for Python 3.11 to 3.13. A later run needs no network.
#
# Prints one line; fails when there is nothing to fuzz with. FUZZ_PYTHON names an interpreter to try first.

set -u
cd "$(dirname "$0")/.." || exit 1

env=.venv-fuzz

say() { printf 'fuzz environment: %s\n' "$*"; }

# Whether a command is a Python that atheris has a wheel for, runs, and can make environments.
suits() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' </dev/null >/dev/null 2>&1
}

# A name on PATH may be a stub of a version manager that only prints an error.
candidates() {
    printf '%s\n' "${FUZZ_PYTHON:-}" python3.11 python3.12 python3.13
    if command -v pyenv >/dev/null 2>&1; then
        for version in 3.11 3.12 3.13; do
            printf '%s\n' "$(pyenv root 2>/dev/null)/versions/$version".*/bin/python3
        done
    fi
    printf '%s\n' python3
}

# What went wrong, as one line: pip's last error, or else the last line of all.
reason() {
    printf '%s\n' "$1" | awk 'NF { last = $0 } /^ERROR/ { error = $0 } END { print error ? error : last }'
}

install() { "$env/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 2>&1; }

has_atheris() { "$env/bin/python" -c 'import atheris' 2>/dev/null; }

if [ -f "$env/.ready" ] && has_atheris; then
    if [ pyproject.toml -nt "$env/.ready" ]; then # what zellige needs may have changed
        if output=$(install -e '.[ml,zfp,pcodec,msgpack]'); then touch "$env/.ready"; else say "kept as it is: $(reason "$output")"; fi
    fi
    say "$env is ready ($(cat "$env/.ready"))"
    exit 0
fi

rm -rf "$env" # whatever is there is unfinished, or its interpreter is gone

# From here to the stamp, whatever stops the script takes the unfinished environment away.
trap 'rm -rf "$env"' EXIT
trap 'say "not made: interrupted"; exit 1' HUP INT TERM

failure="no Python 3.11 to 3.13 with venv and pip runs here; install one, or name it in FUZZ_PYTHON"
while read -r candidate; do
    [ -n "$candidate" ] && suits "$candidate" || continue
    rm -rf "$env"
    if ! output=$("$candidate" -m venv "$env" 2>&1); then
        failure="$candidate cannot make an environment: $(reason "$output")"
    elif ! output=$(install --only-binary atheris atheris); then
        failure="pip cannot install atheris for $candidate: $(reason "$output")"
    elif ! output=$(install -e '.[ml,zfp,pcodec,msgpack]'); then
        failure="pip cannot install this checkout for $candidate: $(reason "$output")"
    elif ! output=$("$env/bin/python" -c '
import atheris, platform
from importlib.metadata import version
print("atheris", version("atheris"), "on Python", platform.python_version())' 2>&1); then
        failure="atheris is not there after its installation: $(reason "$output")"
    else
        printf '%s\n' "$output" >"$env/.ready"
        trap - EXIT
        say "made $env with $output"
        exit 0
    fi
done < <(candidates)
say "not made: $failure"
exit 1
