"""The folders, the package list and the public names say the same."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import lumenfarm

ROOT = Path(__file__).parents[1]
HOMES = {"farm": "lumenfarm", "tasks": "lumenfarm.tasks", "cache": "lumenfarm.cache", "cli": "lumenfarm.cli"}


def packages_by_folder():
    found = {}
    for folder, package in HOMES.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inside = init.parent.relative_to(ROOT / folder).parts
            found[init.parent.relative_to(ROOT).as_posix()] = ".".join([package, *inside])
    return found


def test_every_package_is_listed_with_its_folder():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["package-dir"] == {package: folder for folder, package in packages_by_folder().items()}
    assert sorted(settings["packages"]) == sorted(packages_by_folder().values())


def test_no_module_of_the_root_package_hides_another_folder():
    taken = {"tasks", "cache", "cli"}
    assert not taken & {path.stem for path in (ROOT / "farm").iterdir()}


def test_every_module_says_what_it_offers():
    for folder in HOMES:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if path.name != "__init__.py":
                assert re.search(r"^__all__ = \[", text, re.MULTILINE), path
                assert text.startswith('"""'), path


def test_public_names_exist_and_importing_is_light():
    assert all(getattr(lumenfarm, name) is not None for name in lumenfarm.__all__)
    heavy = "import sys, lumenfarm; print([m for m in ('numpy', 'scipy', 'ray', 'matplotlib') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


def test_lock_pins_every_dependency_without_an_index():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    for requirement in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        name = re.match(r"[a-z0-9-]+", requirement)
        assert name is not None
        assert re.search(rf"^{name[0]}==", lock, re.MULTILINE), requirement
