"""What CONTRIBUTING tells people to write passes the very checks that it would meet in a pull request.

Each block is pasted into its folder of a copy of the checkout, and the suite's own tests of that folder run there.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORDS = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# The tests that meet every entry of a folder.
CHECKS = {
    "signatures": "tests/sources/log/test_signatures.py",
    "models": "tests/sources/test_model_catalogue.py",
    "gpus": "tests/sources/test_gpu_parts.py",
    "fixes": "tests/remedies/test_fixes.py",
    "conflicts": "tests/remedies/test_conflicts.py",
    "questions": "tests/wizard/test_questions_data.py",
    "claims": "tests/test_claims.py",
    "configs": "tests/sources/config/test_reader.py",
    "processes": "tests/test_holders_of_cards.py",
}

# Of all messages, of all models against transformers, and of tests that need torch for something else, only what meets
# the new entry.
ONLY = {
    "signatures": "my-engine-oom",
    "conflicts": "my-kernel",
    "models": "my-model",
    "gpus": "(card or total)",
    "claims": "my-claim",
    "configs": "my-framework",
    "processes": "my-server",
}


def _recipes() -> dict[str, str]:
    """Folder of rules/ -> the block of YAML below its heading."""
    found = {}
    for section in re.split(r"^## ", WORDS, flags=re.M):
        folder = re.match(r".*`rules/(\w+)/`", section)
        block = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    ") or not line.strip())
        if folder:
            found[folder[1]] = block.strip() + "\n"
    return found


RECIPES = _recipes()


def _name(folder: str) -> str:
    content = yaml.safe_load(RECIPES[folder])
    return str(content.get("id") or next(iter(content)))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the checkout with all recipes in place."""
    root = tmp_path_factory.mktemp("checkout")
    unwanted = shutil.ignore_patterns("__pycache__", "_rules")
    for part in ("oomdoctor", "rules", "tests"):
        shutil.copytree(ROOT / part, root / part, ignore=unwanted)
    for file in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / file, root)
    for folder, block in RECIPES.items():
        name = _name(folder) if folder == "fixes" else "from-contributing"
        (root / "rules" / folder / f"{name}.yaml").write_text(block, encoding="utf-8")
    yield root


def _run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


def test_every_folder_that_it_speaks_of_has_a_recipe() -> None:
    assert set(RECIPES) == set(CHECKS)
    assert all(yaml.safe_load(block) for block in RECIPES.values())


@pytest.fixture(scope="module")
def checked(checkout: Path) -> str:
    """What pytest says of all folders' checks, run at once: of one folder at a time, starting is most of the work."""
    files = {folder: Path(path).name for folder, path in CHECKS.items()}
    wanted = (f"({file} and {ONLY[folder]})" if folder in ONLY else file for folder, file in files.items())
    return _run(checkout, "pytest", "-q", "-rA", *CHECKS.values(), "-k", " or ".join(wanted)).stdout


@pytest.mark.parametrize("folder", CHECKS)
def test_a_recipe_passes_the_checks_of_its_folder(checked: str, folder: str) -> None:
    outcomes = [line for line in checked.splitlines() if re.match(rf"[A-Z]+ {CHECKS[folder]}\b", line)]
    assert outcomes, checked[-4000:]
    assert not [line for line in outcomes if not line.startswith("PASSED")], checked[-4000:]
    assert folder == "gpus" or any(_name(folder) in line for line in outcomes)  # all cards are one test


def test_the_recipe_of_a_remedy_passes_lint(checkout: Path) -> None:
    done = _run(checkout, "oomdoctor", "rules", "lint", str(checkout / "rules" / "fixes"))
    assert "my-fix" not in done.stdout, done.stdout
    assert _run(checkout, "oomdoctor", "rules", "show", "my-fix").returncode == 0


def test_the_recipe_of_a_message_is_read_from_a_log(checkout: Path, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(yaml.safe_load(RECIPES["signatures"])[_name("signatures")]["samples"][0]["text"] + "\n")
    done = _run(checkout, "oomdoctor", "--from-log", str(log), "--no-input", "--no-gpu")
    assert "512.00 MiB" in done.stdout, done.stderr


def test_a_message_without_a_certainty_is_read_as_well(checkout: Path, tmp_path: Path) -> None:
    file = checkout / "rules" / "signatures" / "from-contributing.yaml"
    careless = re.sub(r"\n +certainty:.*", "", RECIPES["signatures"])
    assert careless != RECIPES["signatures"]
    file.write_text(careless, encoding="utf-8")
    test_the_recipe_of_a_message_is_read_from_a_log(checkout, tmp_path)


def test_the_files_that_it_names_exist() -> None:
    for path in re.findall(r"`((?:examples|rules|tests|benchmarks|oomdoctor)/[^`\s]*)`", WORDS):
        assert (ROOT / path).exists(), path
    for line in re.search(r"## Code\n(.*?)\n\n", WORDS, re.S)[1].splitlines():  # type: ignore[index]
        for name in re.split(r" {2,}", line.strip())[0].replace(",", " ").split():
            stem = name.removesuffix(".py").removesuffix("/")
            assert any((ROOT / "oomdoctor" / found).exists() for found in (stem, f"{stem}.py")), name
