"""The build hook: compiles the kernel with whatever C compiler there is; without one zellige is pure Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/zellige/kernel")
SOURCES = ("module.c", "reader.c", "pool.c", "codecs.c", "copy.c", "files.c", "indexes.c")
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared")


class KernelHook(BuildHookInterface):
    """Build the extension module beside its sources, for editable installs and wheels alike."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected; a failure is told in one line and is no error, unless asked for."""
        if self.target_name != "wheel":
            return
        free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
        suffix = sysconfig.get_config_var("EXT_SUFFIX") if free_threaded else ".abi3.so"
        for old in (Path(self.root) / FOLDER).glob("_native*.so"):
            old.unlink()
        problem = compiled(Path(self.root) / FOLDER, f"_native{suffix}", free_threaded)
        if problem is not None:
            if os.environ.get("ZELLIGE_REQUIRE_KERNEL") == "1":
                raise RuntimeError(f"ZELLIGE_REQUIRE_KERNEL=1, but the kernel was not built: {problem}")
            self.app.display_warning(f"zellige is installed as pure Python, without its kernel: {problem}")
            return
        major, minor = sys.version_info[:2]
        interpreter = f"cp{major}{minor}-cp{major}{minor}t" if free_threaded else "cp311-abi3"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"{interpreter}-{platform}"
        build_data["artifacts"].append(f"{FOLDER}/_native{suffix}")


def compiled(folder: Path, name: str, free_threaded: bool) -> str | None:
    """Compile the kernel; what is wrong if that does not work."""
    if os.name == "nt":
        return "it is not built on Windows"
    named = os.environ.get("CC") or (sysconfig.get_config_var("CC") or "cc").split()[0]
    compiler = shutil.which(named) or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return f"there is no C compiler ({named}, cc, gcc, clang)"
    command = [compiler, *FLAGS, f"-I{sysconfig.get_paths()['include']}"]
    command += ["-DZ_FREE_THREADED"] if free_threaded else []
    command += ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    command += [*os.environ.get("CFLAGS", "").split(), *(str(folder / source) for source in SOURCES)]
    made = subprocess.run([*command, "-o", str(folder / name)], capture_output=True, text=True, check=False)
    if made.returncode == 0:
        return None
    said = made.stderr.strip().splitlines() or ["no reason was given"]
    return f"{compiler} failed: {next((line for line in said if 'error' in line), said[-1])}"
