"""Refuse bad answers before any file is written, each with its rule and an example.

Guarantee: what passes here is safe in every place where the template puts it. An answer is only
ever data: it arrives as JSON inside a raw string, and JSON escapes every quote that could end it.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ANSWERS = r"""{{ cookiecutter | tojson }}"""

SLUG = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)
TOPIC = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
NAME_MARKS = " .,'&()+-"  # none that Markdown takes for its own in a heading
JINJA = re.compile(r"\{[\{\%\#]|[\}\%\#]\}")

SLUG_LENGTHS = range(2, 51)
NAME_LENGTHS = range(1, 61)
TEXT_LENGTHS = range(1, 501)
LONGEST_TOPIC = 249  # Kafka names a folder after topic and partition; file systems end at 255
VISIBLE = {"L", "N", "P", "S"}  # letters, digits, punctuation, symbols: not spaces, controls, marks of no width
SHOWN = 60  # characters of a refused answer that are echoed

# The topics that the example's transform writes; a source among them would feed itself.
OUTPUT_TOPICS = ("receipts", "alerts")

CHOICES = {
    "license": ("Apache-2.0", "MIT", "Proprietary"),
    "value_format": ("avro", "json"),
    "ci_provider": ("github", "gitlab", "none"),
    "monitoring": ("prometheus-grafana", "none"),
    "containers": ("docker", "kubernetes", "none"),
}

# A folder or distribution of such a name would hide the module, or could not exist on some machines.
OURS = {"pipeline", "src", "supply", "test", "tests"}
NEEDED = {"confluent_kafka", "fastavro", "kafka", "numpy", "pandas", "prometheus_client", "py4j", "pyarrow", "pydantic",
          "pyspark", "rich", "spark", "typer"}  # fmt: skip
TOOLS = {"cyclonedx", "cyclonedx_bom", "docker", "grafana_foundation_sdk", "hypothesis", "jsonschema", "mypy", "pip",
         "pytest", "pytest_timeout", "pytest_xdist", "pyyaml", "ruff", "setuptools", "testcontainers", "uv", "wheel",
         "yaml"}  # fmt: skip
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
TAKEN = sys.stdlib_module_names | OURS | NEEDED | TOOLS | DEVICES


class Rule(NamedTuple):
    """What an answer must be, in words and as a check."""

    text: str
    example: str
    holds: Callable[[str], bool]


def main() -> None:
    """Print every broken rule and leave with an error, or say nothing."""
    found = list(problems(json.loads(ANSWERS)))
    if found:
        sys.stderr.write("".join(f"refused: {line}\n" for line in found))
        sys.exit(1)


def problems(answers: Mapping[str, str]) -> Iterator[str]:
    """Name each answer that breaks a rule, with the rule and an example."""
    broken = [name for name, rule in RULES.items() if not is_text(answers[name]) or not rule.holds(answers[name])]
    for name in broken:
        yield f"{name} = {shown(answers[name])}: must be {RULES[name].text}; for example: {RULES[name].example}"
    if broken:
        return
    yield from topic_problems(answers["project_slug"], answers["source_topic"])
    for name, expected in derived(answers).items():
        if answers[name] != expected:
            yield f"{name} = {shown(answers[name])}: is derived from the other answers; leave it out"


def is_text(answer: object) -> bool:
    """Refuse what is not Unicode text, and what a later render (an update by cruft) would run."""
    if not isinstance(answer, str) or any("\ud800" <= char <= "\udfff" for char in answer):
        return False
    return JINJA.search(answer) is None


def is_slug(answer: str) -> bool:
    """Accept a name that can be folder, distribution, app id and topic prefix everywhere."""
    taken = keyword.iskeyword(answer) or answer in TAKEN
    return len(answer) in SLUG_LENGTHS and SLUG.fullmatch(answer) is not None and not taken


def is_name(answer: str) -> bool:
    """Accept one line of words in any script, free of Markdown."""
    kinds = ["mark" if char in NAME_MARKS else unicodedata.category(char)[0] for char in answer]
    return len(answer) in NAME_LENGTHS and kinds[0] in {"L", "N"} and set(kinds) <= {"L", "M", "N", "mark"}


def is_free_text(answer: str) -> bool:
    """Accept any text in which there is something to see: the files that hold it quote it."""
    return len(answer) in TEXT_LENGTHS and any(unicodedata.category(char)[0] in VISIBLE for char in answer)


def is_topic(answer: str) -> bool:
    """Accept what Kafka accepts, short of the names that it keeps for itself."""
    return TOPIC.fullmatch(answer) is not None and answer not in {".", ".."} and not answer.startswith("__")


def topic_problems(slug: str, source: str) -> Iterator[str]:
    """Demand that the pipeline does not read what it writes, and that all topics named after the source can exist."""
    if source in OUTPUT_TOPICS:
        yield (
            f"source_topic = {shown(source)}: must not be {source}, which the pipeline itself writes; "
            "for example: payments"
        )
    longest = max(f"{source}.dead-letters", f"{slug}.{source}.lanes", key=len)
    if len(longest) > LONGEST_TOPIC:
        yield (
            f"source_topic = {shown(source)}: must be shorter: the topic named after it, of {len(longest)} characters, "
            f"would pass Kafka's {LONGEST_TOPIC}; for example: payments"
        )


def derived(answers: Mapping[str, str]) -> dict[str, str]:
    """Work out again what cookiecutter.json derives, so that nobody can hand it in unquoted."""
    proprietary = answers["license"] == "Proprietary"
    values = {"__license": "LicenseRef-Proprietary" if proprietary else answers["license"]}
    for name in ("description", "author"):
        values[f"__{name}"] = one_line(answers[name])
        values[f"__{name}_quoted"] = quoted(one_line(answers[name]))
    return values


def one_line(text: str) -> str:
    """Put text on one line without control characters: package metadata takes a line break for a new header."""
    return " ".join("".join(char for char in text if char.isspace() or not is_control(char)).split())


def is_control(char: str) -> bool:
    """Know the control characters of ASCII, DEL among them, and those above, which steer terminals as well."""
    return char < " " or "\x7f" <= char <= "\x9f"


def quoted(text: str) -> str:
    """Escape text for a place between double quotes in TOML."""
    return "".join(char if char.isprintable() and char not in '"\\' else f"\\U{ord(char):08x}" for char in text)


def shown(answer: object) -> str:
    """Echo an answer in ASCII, so that a refused one cannot steer the terminal, and not at any length."""
    text = ascii(answer)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def choice(name: str) -> Rule:
    """Demand one of the answers that cookiecutter.json offers (a replay file may hold any other)."""
    return Rule(f"one of {', '.join(CHOICES[name])}", CHOICES[name][0], CHOICES[name].__contains__)


FREE_TEXT = (
    f"text of 1 to {TEXT_LENGTHS[-1]} characters, not only such as cannot be seen, with no brace beside a brace, % or #"
)

# What the rule of an answer cannot say, since other answers have a part in it; the options page repeats it.
ALSO = {
    "source_topic": (
        f"not `{'` or `'.join(OUTPUT_TOPICS)}`, which the example writes: the pipeline would feed itself; and so short "
        "that neither `<source_topic>.dead-letters` nor `<project_slug>.<source_topic>.lanes` passes Kafka's "
        f"{LONGEST_TOPIC} characters"
    ),
}

RULES = {
    "project_name": Rule(
        f"1 to {NAME_LENGTHS[-1]} letters and digits of any script, in words parted by spaces or . , ' & ( ) + -",
        "Payments pipeline",
        is_name,
    ),
    "project_slug": Rule(
        f"{SLUG_LENGTHS[0]} to {SLUG_LENGTHS[-1]} of a-z, 0-9 and single underscores, starting with a letter, "
        "and not a Python keyword, a module of Python or of a dependency, or a device name of Windows",
        "payments_pipeline",
        is_slug,
    ),
    "description": Rule(FREE_TEXT, "Sends each customer one receipt for each payment", is_free_text),
    "author": Rule(FREE_TEXT, "Ada Lovelace", is_free_text),
    "license": choice("license"),
    "source_topic": Rule(
        'a topic name of Kafka (letters, digits, ".", "_", "-"), not "." or "..", not starting with "__"',
        "payments",
        is_topic,
    ),
    "value_format": choice("value_format"),
    "ci_provider": choice("ci_provider"),
    "monitoring": choice("monitoring"),
    "containers": choice("containers"),
}

if __name__ == "__main__":
    main()
