"""The Kubernetes manifests as an overlay makes them: by the few rules of kustomize that they use, without kustomize."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "ops/kubernetes"
OVERLAYS = sorted(path.parent for path in KUBERNETES.glob("**/kustomization.yaml") if path.parent.name != "base")
SCHEMAS = {path.stem: json.loads(path.read_text("utf-8")) for path in Path(__file__).parent.glob("kubernetes/*.json")}
# What this file knows of kustomize; another key would be passed over in silence.
KNOWN = {"apiVersion", "kind", "namespace", "resources", "images", "configMapGenerator", "patches", "labels"}

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    """Read all documents of a file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def built(folder: Path) -> list[Document]:
    """Return what an overlay comes to; every reference must lead to something."""
    [overlay] = documents(folder / "kustomization.yaml")
    unknown = overlay.keys() - KNOWN - {"configurations"}
    assert not unknown, f"{folder.name}: {unknown} is not known to tests/support/manifests.py"
    found: list[Document] = []
    for name in overlay["resources"]:
        place = (folder / name).resolve()
        found += built(place) if place.is_dir() else documents(place)
    for maker in overlay.get("configMapGenerator", []):
        data = dict(literal.split("=", 1) for literal in maker["literals"])
        found.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": maker["name"]}, "data": data})
    for named in overlay.get("patches", []):
        for patch in documents(folder / named["path"]):
            [target] = [document for document in found if identity(document) == identity(patch)]
            target |= merged(target, patch)
    for image in overlay.get("images", []):
        users = [document for document in found if document.get("spec", {}).get("image") == image["name"]]
        assert users, f"{folder.name}: no manifest has the image {image['name']}"
        for user in users:
            user["spec"]["image"] = f"{image['newName']}:{image['newTag']}"
    for document in found:
        if "namespace" in overlay:
            document["metadata"]["namespace"] = overlay["namespace"]
    return found


def identity(document: Document) -> tuple[str, str, str]:
    """Return what a patch and its target have in common."""
    return document["apiVersion"], document["kind"], document["metadata"]["name"]


def merged(target: Any, patch: Any) -> Any:
    """Lay a patch over a document, as for every kind that Kubernetes does not know itself: lists are replaced."""
    if not (isinstance(target, dict) and isinstance(patch, dict)):
        return patch
    return target | {name: merged(target.get(name), value) for name, value in patch.items()}


def flaws(document: Document) -> list[str]:
    """Hold a document against the schema of its kind."""
    found = Draft202012Validator(SCHEMAS[document["kind"].lower()]).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in found]
