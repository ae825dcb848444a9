"""The documentation is true: its code runs, its commands print what it shows, and it leaves nothing out."""

from __future__ import annotations

import gzip
import pkgutil
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from mypy import api as mypy_api

from bayplan.api.decode import parse_objects
from bayplan.api.documents import parse_documents
from bayplan.cli.main import COMMANDS
from bayplan.config import LIBRARY, parse_config
from bayplan.plugins import BUILTIN_PLUGINS
from bayplan.process.command_line import parse
from bayplan.runtime.profile import METHODS
from bayplan.simulate.scenarios.reading import load_scenario
from bayplan.state.pods import POD_FIELDS
from tests.commands import bayplan
from tests.recorded.compare import read_lines

from .extension_point_pages import FOLDER, PROTOCOLS, pages
from .flags_page import flags_page
from .pages import PAGES, ROOT, Command, agree, blocks, command_lines, commands, headings, links, read

DOCS = ROOT / "docs"
PAGE_OF = {"config": "configuration.md", "run": "flags.md", "node": "up.md"}
"""Where a command is described whose page does not have its name."""
COMMITTED_FILE = "bayplan.committed"
"""A file beside the database of `bayplan up`, not a module."""
INSTALLING = ("README.md", "docs/explain.md", "docs/plugin-tutorial.md", "docs/whatif.md")


def test_commands_are_found() -> None:
    """Else the next test would have nothing to do."""
    assert sum(len(list(commands(page))) for page in PAGES) > 5


def is_quick(command: Command) -> bool:
    """A comparison with another commit takes minutes, and needs a repository that has it."""
    return "--against" not in command.arguments


@pytest.mark.parametrize("command", [c for page in PAGES for c in commands(page) if is_quick(c)], ids=str)
def test_commands_print_what_is_shown(command: Command, tmp_path: Path) -> None:
    """As on a terminal: tables, unless the command sets a format. Files are written beside the clone."""
    for folder in ROOT.iterdir():
        if folder.is_dir() and not folder.name.startswith("."):
            (tmp_path / folder.name).symlink_to(folder)
    arguments = list(command.arguments)
    if arguments[0] == "decide" and "--output" not in arguments:
        arguments += ["--output", "table"]
    ended = bayplan(*arguments, directory=tmp_path)
    printed = (ended.stdout + (ended.stderr if ended.status else "")).splitlines()
    assert ended.status == command.status, ended.stderr
    assert agree(command.shown, printed), "\n".join(printed)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name
)
def test_python_runs(page: Path) -> None:
    """All blocks of a page, one after the other."""
    names: dict[str, Any] = {"__name__": "documentation"}
    for code in blocks(page, "python"):
        exec(compile(code, page.name, "exec"), names)


@pytest.mark.parametrize("name", ["plugin-tutorial.md", "plugins.md", "plugin-porting.md"])
def test_python_of_plugin_pages_is_typed(name: str, tmp_path: Path) -> None:
    """Strictly: an author can copy it. The settings, and so the cache, are those of this project."""
    module = tmp_path / "documentation.py"
    module.write_text("\n".join(blocks(DOCS / name, "python")), encoding="utf-8")
    report, errors, status = mypy_api.run([str(module), f"--config-file={ROOT / 'pyproject.toml'}"])
    assert status == 0, report + errors


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=lambda page: page.name)
def test_yaml_is_valid(page: Path) -> None:
    """Configurations for the scheduler, and objects for the embedded API server."""
    for text in blocks(page, "yaml"):
        if "apiVersion" not in text:
            assert yaml.safe_load(text)
        elif "kind: KubeSchedulerConfiguration" in text:
            parse_config(text, page.name)
        elif "kind: Scenario" in text:
            load_scenario(next(parse_documents(text.encode())), ROOT)
        else:
            assert parse_objects(text.encode(), page.name) or "rbac.authorization.k8s.io" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, heading in links(page):
        assert target.exists(), target
        assert not heading or heading in headings(target), f"{target}#{heading}"


def parsed(words: Sequence[str]) -> None:
    """Fails if `bayplan` has no such command or option."""
    if words[0].startswith("-"):
        return
    command = COMMANDS[words[0]].load()
    arguments = list(words[1:])
    if words[0] == "run":
        parse(arguments, "bayplan run")
        return
    if isinstance(command, click.Group):
        if not arguments:
            return
        if arguments[0] in command.commands or not command.invoke_without_command:
            command = command.commands[arguments.pop(0)]
    try:
        command.make_context(words[0], list(arguments))
    except click.MissingParameter:
        assert not arguments, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that no test can run, because they need a cluster or an hour: their options are real."""
    makefile = read(ROOT / "Makefile")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bayplan.kubeconfig").touch()
    for program, *words in command_lines(page):
        if program == "bayplan":
            parsed(words)
        elif program == "make":
            targets = [word for word in words if "=" not in word]
            variables = [word.partition("=")[0] for word in words if "=" in word]
            assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets), words
            assert all(f"$({name})" in makefile for name in variables), words
        elif words[1] != "pytest":
            path = words[1].replace(".", "/")
            files = [*ROOT.glob(f"{path}*.py"), *ROOT.glob(f"src/{path}*.py"), *ROOT.glob(f"{path}/*.py")]
            code = "".join(read(file) for file in [*files, *ROOT.glob(f"src/{path}/*.py")])
            assert code, words
            assert [word for word in words[2:] if word.startswith("--") and word not in code] == [], words


def test_every_built_in_plugin_is_described() -> None:
    """In the order in which they run."""
    listed = re.findall(r"^\| ([A-Z]\w+) \|", read(DOCS / "plugins.md"), re.MULTILINE)
    named = [plugin.name for plugin in BUILTIN_PLUGINS]
    assert [name for name in listed if name in named] == named


def test_every_plugin_of_the_library_is_described() -> None:
    library = read(DOCS / "plugins.md").partition("## The library")[2]
    assert [name for name in LIBRARY if not re.search(rf"\b{name}\b", library)] == []


def test_every_pod_field_is_described() -> None:
    (fields,) = re.findall(
        r"^The fields are (.*?)`owner`", read(DOCS / "plugins.md"), re.DOTALL | re.MULTILINE
    )
    assert {name for name in POD_FIELDS if f"`{name}`" not in fields} == {"owner"}


def options(command: click.Command, path: str) -> list[tuple[str, str]]:
    """Every option of a command and of those below it."""
    if isinstance(command, click.Group):
        return [pair for name, sub in command.commands.items() for pair in options(sub, f"{path} {name}")]
    return [(path, flag) for parameter in command.params for flag in parameter.opts if flag.startswith("--")]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_described(name: str) -> None:
    page = read(DOCS / PAGE_OF.get(name, f"{name}.md"))
    wanted = options(COMMANDS[name].load(), f"bayplan {name}")
    assert f"bayplan {name}" in page
    assert [(path, flag) for path, flag in wanted if path not in page or flag not in page] == []


def test_the_page_of_flags_is_the_table_of_flags() -> None:
    """`python tests/docs/flags_page.py > docs/flags.md` makes it."""
    assert read(DOCS / "flags.md") == flags_page()


def test_the_pages_of_extension_points_are_current() -> None:
    """`python -m tests.docs.extension_point_pages` makes them."""
    committed = {page.name: read(page) for page in FOLDER.glob("*.md")}
    assert committed == pages()
    assert set(PROTOCOLS) == set(METHODS), "every extension point has a page"


def test_the_map_of_the_tree_is_right() -> None:
    """What it lists is there, and no package is missing from it."""
    (tree,) = (block for block in blocks(ROOT / "ARCHITECTURE.md", "text") if "src/bayplan/" in block)
    listed = {line.split()[0] for line in tree.splitlines() if line.startswith("    ")}
    packages = {f"{init.parent.name}/" for init in ROOT.glob("src/bayplan/*/__init__.py")}
    assert listed == packages


def test_the_pages_say_how_to_install_it() -> None:
    """In one sentence, until a release is published: nothing is found under the name alone."""
    shared = re.compile(r"There is no release on PyPI yet: [^.]* `\.venv/bin`, [^.]* another environment\.")
    pages = {page.relative_to(ROOT).as_posix(): " ".join(read(page).split()) for page in PAGES}
    sentences = {name: shared.findall(text) for name, text in pages.items()}
    assert {name: len(found) for name, found in sentences.items() if found} == dict.fromkeys(INSTALLING, 1)
    assert len({found[0] for found in sentences.values() if found}) == 1
    assert [name for name, text in pages.items() if re.search("pip install '?bayplan", text)] == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "plugin-stability.md"], ids=lambda page: page.name
)
def test_names_of_python_exist(page: Path) -> None:
    """`bayplan.module.name` can be imported. The page on stability also names what was there before."""
    names = set(re.findall(r"`(bayplan(?:\.\w+)+)`", read(page))) - {COMMITTED_FILE}
    assert [name for name in sorted(names) if not importable(name)] == []


def importable(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_the_numbers_of_recorded_decisions_are_right() -> None:
    conformance = ROOT / "conformance"
    decisions = sum(
        len(vector["expect"])
        for path in (conformance / "vectors").rglob("*.jsonl.gz")
        for vector in read_lines(path)
    )
    configurations = sum(
        gzip.decompress(path.read_bytes()).count(b"\n")
        for path in (conformance / "configs").glob("*.jsonl.gz")
    )
    for name in ("README.md", "docs/differences.md"):
        shown = re.findall(r"([\d,]+) recorded\s+decisions\s+and ([\d,]+) configurations", read(ROOT / name))
        assert shown == [(f"{decisions:,}", f"{configurations:,}")], name
