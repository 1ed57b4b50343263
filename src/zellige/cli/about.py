"""Commands about zellige itself: demo, doctor."""

from __future__ import annotations

import os
import platform
import re
from argparse import Namespace
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from zellige import __version__, kernel
from zellige.cli.output import emit, paint

_REQUIRED = ("numpy", "numcodecs", "zstandard", "google-crc32c")


def demo(arguments: Namespace) -> int:
    """Make a year of temperatures, a chunk for each month, and say how to look at it."""
    import numpy as np

    from zellige import create_group
    from zellige.cli.places import opened

    months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    day, latitude = np.arange(365)[:, None, None], np.linspace(-85, 85, 18)[None, :, None]
    season = 12 * np.cos((day - 200) / 365 * 2 * np.pi) * np.sin(np.radians(latitude))
    wave = 2 * np.sin(np.radians(np.linspace(0, 350, 36)))
    field = np.round(28 * np.cos(np.radians(latitude)) - 5 + season + wave, 1).astype("float32")
    field[300:, 0, 0] = np.nan
    with opened(arguments.place, "", [], read_only=False) as place:
        group = create_group(place, overwrite=arguments.overwrite, attributes={"title": "a year of weather"})
        made = group.create_array(
            "t",
            data=field[:334],
            chunks=[months[:11], 9, 36],
            dimension_names=["time", "lat", "lon"],
            attributes={"unit": "°C"},
        )
        made.resize((365, 18, 36), chunks={"time": [31]})
        group.create_array("monthly/mean", data=field.mean(axis=(1, 2)), chunks=[months])
    is_archive = arguments.place.lower().endswith(".zip")
    t = f"{arguments.place} --path t" if is_archive else f"{arguments.place}/t"
    text = f"made {arguments.place}: eleven months of temperatures, and room for the twelfth; try\n" + "\n".join(
        f"  zellige {command}"
        for command in (
            f"tree {arguments.place}",
            f"info {t}",
            f"head {arguments.place} 0:3,::6,0 --path t" if is_archive else f"head {t} 0:3,::6,0",
            f"coverage {t}",
            f"validate --deep {arguments.place}",
        )
    )
    emit(arguments, lambda: {"place": arguments.place, "arrays": ["t", "monthly/mean"]}, lambda: text)
    return 0


def doctor(arguments: Namespace) -> int:
    """Versions of everything that matters, extras with what they lack; exit code 1 if something needed is missing."""
    packages = {name: _version(name) for name in _REQUIRED}
    extras = {name: {package: _version(package) for package in needed} for name, needed in sorted(_extras().items())}
    content = {
        "zellige": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "kernel": kernel.info(),
        "packages": packages,
        "extras": extras,
    }
    emit(arguments, lambda: content, lambda: _doctor_text(content))
    return 0 if all(packages.values()) else 1


def _doctor_text(content: dict[str, Any]) -> str:
    lines = [f"{name:<14} {content[name]}" for name in ("zellige", "python", "platform", "cpus")]
    lines.append(f"{'kernel':<14} {_kernel_text(content['kernel'])}")
    for name, found in content["packages"].items():
        lines.append(f"{name:<14} {found or paint('missing', 'red') + f': pip install {name}'}")
    for name, needed in content["extras"].items():
        missing = [package for package, found in needed.items() if found is None]
        have = ", ".join(f"{package} {found}" for package, found in needed.items() if found is not None)
        said = f"without {', '.join(missing)}: pip install 'zellige[{name}]'" if missing else have
        lines.append(f"{f'[{name}]':<14} {said}")
    if not content["extras"]:
        lines.append("extras are not known, because zellige is not installed: pip install zellige")
    return "\n".join(lines)


def _kernel_text(found: dict[str, Any]) -> str:
    if found["works"]:
        missing = [name for name, known in found["codecs"].items() if not known]
        return f"{found['state']}{', without ' * bool(missing)}{', '.join(missing)}"
    return f"{found['state']}: everything works, slower; with a C compiler here, pip install --force-reinstall zellige"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extras() -> dict[str, list[str]]:
    """The packages of each extra, from what is written about this installation."""
    try:
        lines = requires("zellige") or []
    except PackageNotFoundError:
        lines = []
    found: dict[str, list[str]] = {}
    for line in lines:
        needed, _, condition = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", condition)
        package = re.match(r"[\w.-]+", needed)
        if extra and package and extra[1] != "dev" and package[0] != "zellige":
            found.setdefault(extra[1], []).append(package[0])
    return found
