"""Build the wheel and try it on each Python that is installed: `python scripts/check_wheel.py [--full]`.

Every module is compiled and the command line is started, for which a few small packages are installed. With --full, all
that the wheel asks for is installed, torch too, and the README's first example and `ctta demo` on a few images are run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
SMALL = ("typer", "rich", "pyyaml", "jinja2")  # what `ctta --help` needs


def interpreters() -> Iterator[tuple[str, str]]:
    """Version and path of each Python that starts: those on the PATH, then pyenv's."""
    for version in VERSIONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        for place in (f"python{version}", *map(str, kept)):
            try:
                subprocess.run([place, "-c", "import venv, ensurepip"], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            yield version, place
            break


def try_wheel(python: str, wheel: Path, folder: Path, *, full: bool) -> None:
    """Install the wheel into an environment of its own, and use it."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = str(folder / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, str(wheel)] if full else [*install, *SMALL], check=True)
    if not full:
        subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    found = subprocess.check_output([own, "-c", "import ctta; print(ctta.__path__[0])"], text=True, cwd=folder)
    commands = [["-m", "compileall", "-q", found.strip()], ["-m", "ctta", "--version"], ["-m", "ctta", "run", "--help"]]
    if full:
        example = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
        commands += [["-c", example], ["-m", "ctta", "demo", "-q", "--set", "data.images=20"]]
    for command in commands:
        subprocess.run([own, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL)


def main(full: bool) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
        subprocess.run(build, check=True)
        (wheel,) = folder.glob("*.whl")
        tried = []
        for version, python in interpreters():
            try_wheel(python, wheel, folder / version, full=full)
            tried.append(version)
    print(f"{wheel.name} works on Python {', '.join(tried)}; not installed: {set(VERSIONS) - set(tried) or 'none'}")
    return 0 if tried else 1


if __name__ == "__main__":
    sys.exit(main("--full" in sys.argv[1:]))
