"""What `make quick` checks of a change."""

import subprocess

import check_changed
import pytest

WORDS = {"src/a.py": ["ruff check", "ruff format", "mypy"], "tests/a.py": ["ruff check", "ruff format"]}
WORDS |= {"workflow/a.smk": ["snakefmt --check"], "docs/a.md": [], "src/gone.py": ["mypy"]}
WORDS |= {"pyproject.toml": ["ruff check", "ruff format", "snakefmt --check", "mypy"]}


@pytest.fixture
def root(tmp_path):
    for name in ("src/a.py", "tests/a.py", "workflow/a.smk", "docs/a.md", "Snakefile"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("name", WORDS)
def test_a_file_is_looked_at_by_the_tools_that_know_it(root, name):
    wanted = check_changed.commands([name], root)

    assert [" ".join(command[:2]) for command in wanted] == WORDS[name]


def test_only_the_changed_files_are_named_and_all_where_the_rules_changed(root):
    assert check_changed.commands(["tests/a.py"], root)[0] == ["ruff", "check", "--quiet", "tests/a.py"]
    assert check_changed.commands(["pyproject.toml"], root)[0] == ["ruff", "check", "--quiet", "src/", "tests/"]


@pytest.mark.needs("git")
def test_a_change_is_what_the_branch_the_tree_and_nobody_yet_added_to_the_base(root):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
        subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)

    def commit():
        git("add", "--all")
        git("commit", "--message=some")

    git("init")
    commit()
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    (root / "src" / "committed.py").touch()
    commit()
    (root / "src" / "a.py").write_text("a = 1\n")
    (root / "Snakefile").unlink()
    (root / "new.py").touch()

    changed = check_changed.changed_files(root)

    assert changed == ["Snakefile", "new.py", "src/a.py", "src/committed.py"]


@pytest.mark.needs("git")
def test_without_git_everything_is_checked(root, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))

    assert check_changed.changed_files(root) == list(check_changed.RULES)
