"""Write the bill of materials of the image: its Python packages and its jars, with versions and hashes, as CycloneDX.

Taken from the lock file and the pins of the jars: what a build installs and keeps, for the system and the Python that
this runs on. Those of the image are Linux and Python 3.11, unless you named another base: CI writes it on these. What
the base image brings (Debian, Python, Java) is not in it, and neither is what the lock file holds for other systems, or
for the build alone.

Usage: python -m supply.sbom [build/sbom.cdx.json]
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline.local.jars import read_pins
from supply.package import of_the_image

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = Path("build/sbom.cdx.json")


def packages() -> dict[str, Any]:
    """Let cyclonedx-bom describe the Python packages of the lock file, and keep those that the image has."""
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-format", "JSON", "requirements.lock"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    described: dict[str, Any] = json.loads(done.stdout)
    kept = [part for part in described["components"] if (part["name"], part["version"]) in of_the_image().items()]
    names = {part["bom-ref"] for part in kept}
    described["components"] = kept
    described["dependencies"] = [entry for entry in described["dependencies"] if entry["ref"] in names]
    return described


def jar(coordinate: str, sha256: str) -> dict[str, Any]:
    """Describe a jar."""
    group, name, version = coordinate.split(":")
    purl = f"pkg:maven/{group}/{name}@{version}?type=jar"
    return {
        "type": "library",
        "bom-ref": purl,
        "group": group,
        "name": name,
        "version": version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }


def bill() -> dict[str, Any]:
    """Put packages and jars into one bill."""
    found = packages()
    jars = [jar(coordinate, sha256) for coordinate, sha256 in read_pins()["spark"].sha256.items()]
    found["components"] += jars
    found["dependencies"] += [{"ref": part["bom-ref"]} for part in jars]
    return found


def main(arguments: list[str]) -> None:
    """Write it."""
    path = Path(arguments[0]) if arguments else DEFAULT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
