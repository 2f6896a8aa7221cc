"""An app behind locks: prepared by those who may do everything, run by a user who may do what he was allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.support.job import App, new_app
from tests.support.kafka import fresh
from tests.support.program import settings_file
from tests.support.running import ROOT
from tests.support.secured import MTLS, OAUTH, SCRAM, SecuredBroker

from pipeline.acls import commands, of_run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pipeline.settings import Settings

# Searched for where it must not be. It holds no word such as "password", "secret" or "token": Spark's pages hide any
# value that does, and the search would find nothing there, whatever was spilt.
PASSWORD = "c4nary-Yellow-7f3d"  # noqa: S105


COMMAND_SECONDS = 60
PARTS = ("run", "provision", "audit", "dead-letters")


def command(folder: Path, settings: Settings, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the pipeline as a user does; one that takes longer than a minute fails the test."""
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *words, "--settings", settings_file(folder, settings)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "500", **environ},
        timeout=COMMAND_SECONDS,
    )


def printed(folder: Path, settings: Settings) -> dict[str, list[str]]:
    """Return what `pipeline provision --acls` prints, by the command that needs it; each line is one of kafka-acls."""
    done = command(folder, settings, "provision", "--acls")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("# "):
            found[line.split("`")[1].removeprefix("pipeline ")] = []
        else:
            found[next(reversed(found))].append(line)
    assert tuple(found) == PARTS
    return found


class LockedApp:
    """`plain` is the app as its administrator sees it; `app` is the same one through the locks."""

    def __init__(self, broker: SecuredBroker, folder: Path, method: str = SCRAM, **sections: Any) -> None:
        """Make topics and lanes, and a user who may enter and do nothing."""
        self.broker = broker
        self.user = fresh("user")
        self.plain = new_app(broker.bootstrap, folder, **sections)
        self.secret = folder / "secret"
        self.secret.write_text(PASSWORD, "ascii")
        self.security = {"ca_file": str(broker.authority.certificate), **self._keys(method)}
        self.app = self.entered(broker.locked[method], self.security)

    def _keys(self, method: str) -> dict[str, str]:
        if method == MTLS:
            own = self.broker.authority.sign(self.user, password=PASSWORD)
            keys = {"certificate_file": str(own.certificate), "key_file": str(own.key)}
            return {"method": "mtls", "key_password_file": str(self.secret), **keys}
        if method == OAUTH:
            self.broker.tokens.secrets[self.user] = PASSWORD
            login = {"client_id": self.user, "client_secret_file": str(self.secret), "scope": "kafka"}
            return {"method": "oauth", "token_url": self.broker.tokens.url, **login}
        self.broker.add_user(self.user, PASSWORD)
        return {"method": "scram", "username": self.user, "password_file": str(self.secret)}

    def entered(self, address: str, security: Mapping[str, str]) -> App:
        """Return the app at another address, or with another login."""
        return self.plain.with_settings(source={"bootstrap": address}, security=security)

    def needed(self) -> list[str]:
        """Return what `pipeline provision --acls` prints for the job, line by line."""
        return list(commands(of_run(self.app.settings), f"User:{self.user}"))

    def allow(self) -> None:
        """Allow exactly that."""
        self.broker.allow(self.needed())
