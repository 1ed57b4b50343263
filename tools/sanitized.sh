#!/usr/bin/env bash
# Run a command with a kernel that watches itself: built with AddressSanitizer and UndefinedBehaviorSanitizer into a
# copy of the package below build/, which comes first on PYTHONPATH. The kernel of this checkout stays as it is.
#
# Needs a C compiler with the runtime of its sanitizers, as gcc has it. A find ends the process with a report.

set -eu
cd "$(dirname "$0")/.."

here=build/sanitized
compiler=${CC:-gcc}
python=${SANITIZED_PYTHON:-.venv/bin/python}

library() { # the file of a runtime, or nothing
    found=$("$compiler" -print-file-name="$1")
    [ "$found" = "$1" ] || realpath "$found"
}

runtime=$(library libasan.so)
if [ -z "$runtime" ]; then
    echo "sanitized kernel: $compiler has no libasan.so; install gcc" >&2
    exit 1
fi

mkdir -p "$here"
rm -rf "$here/src"
cp -r src "$here/src"
rm -f "$here"/src/zellige/kernel/_native*.so
"$compiler" -std=gnu11 -g -O1 -fno-omit-frame-pointer -fPIC -fvisibility=hidden -pthread -shared -Wall -Wextra -Werror \
    -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -I"$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" \
    "$here"/src/zellige/kernel/*.c -o "$here/src/zellige/kernel/_native.abi3.so"

# Exceptions of C++ modules need their library before that of the sanitizer looks for it.
LD_PRELOAD=$runtime:$(library libubsan.so):$(library libstdc++.so)
# What the interpreter never frees is no leak of ours. Huge requests fail like on a machine without memory.
ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2048:${ASAN_OPTIONS:-}
UBSAN_OPTIONS=print_stacktrace=1
PYTHONPATH=$PWD/$here/src
# Every object by itself, so that a byte before or behind it is noticed; with all checks of arguments in place.
PYTHONMALLOC=malloc
ZELLIGE_REQUIRE_KERNEL=1
ZELLIGE_SANITIZED=1
export LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS PYTHONPATH PYTHONMALLOC ZELLIGE_REQUIRE_KERNEL ZELLIGE_SANITIZED
exec "$@"
