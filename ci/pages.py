"""Write the generated pages: `docs/options.md` from the questions and hooks, `docs/tree.md` from the files themselves.

Guarantee: what the pages say is what the template does; the tests compare them. `make docs` writes them anew.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "hooks"))

import post_gen_project  # noqa: E402
import pre_gen_project  # noqa: E402

QUESTIONS = json.loads((ROOT / "cookiecutter.json").read_text(encoding="utf-8"))
[PROJECT] = [path for path in ROOT.iterdir() if path.name.startswith("{{cookiecutter")]

CACHES = re.compile(r"__pycache__|_cache/|\.hypothesis/|\.egg-info/")
# Files that cannot say themselves what they are for.
SAID_HERE = {
    "CHANGELOG.md": "yours: what changed in your project",
    "LICENSE": "the licence you chose",
    "docs/ci.md": "what runs on each push and how to run it by hand; Kafka for tests, image, local stack, versions",
    "docs/guarantees.md": "what is promised, what the promise rests on, and what is not promised",
    "docs/metrics.md": "every metric: what it means, how to read it, how far to trust it",
    "docs/runbook.md": "for each alert: what it means, where to look, what to do",
    "README.md": "the flow as a picture, what is yours, how to run, test, observe and deploy it",
    "pyproject.toml": "dependencies, and the settings of all tools",
    "tests/ops/grafana.schema.json": "Grafana's own types, by which the dashboards are checked",
    "src/pipeline/py.typed": "says that the package has types",
}

OPTIONS = """\
# Questions and answers

Written by `make docs` from `cookiecutter.json` and the hooks; do not edit.

`cookiecutter` asks {count} questions. All have a default, so `--no-input` makes a project that works. What can be
chosen later is not asked: it is a setting in the project's `pipeline.toml`. An answer that breaks its rule is refused
before any file is written, with the rule and an example.

Answers on the command line: `cookiecutter <template> --no-input project_name="Card fraud" license=MIT`.
Cookiecutter itself renders these with Jinja (what is typed at a prompt it does not), so give it none that you got
from strangers.

{questions}"""

TREE = """\
# Every file of a project

Written by `make docs` from the files themselves: the first line of each. Do not edit.

{folders}"""


def pages() -> dict[Path, str]:
    """Make all pages."""
    return {ROOT / "docs" / "options.md": options_page(), ROOT / "docs" / "tree.md": tree_page()}


def options_page() -> str:
    """Describe each question: prompt, default, rule, and what each answer leaves out."""
    asked = [name for name in QUESTIONS if not name.startswith("_")]
    return OPTIONS.format(count=len(asked), questions="\n".join(question(name) for name in asked))


def question(name: str) -> str:
    """Describe one question."""
    prompt, rule, default = QUESTIONS["__prompts__"][name], pre_gen_project.RULES[name], QUESTIONS[name]
    if isinstance(default, str):
        lines = [f"{prompt}.", "", f"- Default: `{default}`", f"- Rule: {rule.text}"]
        if name in pre_gen_project.ALSO:
            lines += [f"- And: {pre_gen_project.ALSO[name]}"]
        lines += [f"- Example: `{rule.example}`"]
    else:
        lines = [f"{prompt['__prompt__']}.", "", "| answer | what it gives | files left out |", "|---|---|---|"]
        lines += [choice(name, answer, prompt[answer]) for answer in default]
        lines += ["", f"Default: `{default[0]}`."]
    return "\n".join([f"## `{name}`", "", *lines, ""])


def choice(name: str, answer: str, prompt: str) -> str:
    """Describe one answer of a choice."""
    left_out = ", ".join(f"`{path}`" for path in post_gen_project.UNCHOSEN[name][answer]) or "none"
    return f"| `{answer}` | {prompt.partition(': ')[2]} | {left_out} |"


def tree_page() -> str:
    """List every file of the template's project with a line on what it is for."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PROJECT.rglob("*")):
        if path.is_file() and not CACHES.search(str(path.relative_to(PROJECT))):
            name = path.relative_to(PROJECT)
            folders[name.parent.as_posix()].append(f"| `{name.name}` | {line(path)} |")
    parts = [
        "\n".join(
            [
                f"## {'the project' if folder == '.' else f'`{folder}/`'}",
                "",
                "| file | what it is for |",
                "|---|---|",
                *rows,
                "",
            ]
        )
        for folder, rows in folders.items()
    ]
    return TREE.format(folders="\n".join(parts))


def line(path: Path) -> str:
    """Take from a file the line that says what it is for."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(PROJECT).as_posix()
    found = SAID_HERE.get(name) or own_words(path.suffix, text)
    if not found:
        msg = f"{name} does not say in its first line what it is for: write it there, or in SAID_HERE of ci/pages.py"
        raise ValueError(msg)
    return found.rstrip(".").replace("|", "\\|")


def own_words(kind: str, text: str) -> str:
    """Find docstring, description or first comment, by the kind of file."""
    if kind == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    if kind in {".avsc", ".json"}:
        described = json.loads(text)
        return str(described.get("doc") or described.get("description") or "").partition(". ")[0]
    comments = [line for line in text.splitlines()[:2] if line.startswith("#") and not line.startswith("#!")]
    return comments[0].strip("# ") if comments else ""


if __name__ == "__main__":
    for page, content in pages().items():
        page.write_text(content, encoding="utf-8")
        sys.stdout.write(f"{page.relative_to(ROOT)}\n")
