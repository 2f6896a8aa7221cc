"""The commands before a locked cluster: what each must be allowed; what whoever is not let in is told, and how soon.

S1   not let in: a wrong password, client secret or key password, an unknown authority, another host name, certificates
     that have expired; the command ends within a minute, with its own exit code and one line, and repeats no secret
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.support.certificates import Authority
from tests.support.job import SCHEMA, new_app
from tests.support.lanes import fill, provisioned, row
from tests.support.locked import PASSWORD, LockedApp, command, printed
from tests.support.registry import running_registry
from tests.support.secured import EXPIRED, MTLS, OAUTH, SCRAM, SecuredBroker, binding

from pipeline.settings import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from subprocess import CompletedProcess

    from pipeline.settings import Settings

WRONG = "wr0ng-c4nary-5b1e"
REGISTRY_LOGIN = f"clerk:{WRONG}"
# By what is wrong: the way in, and what the line says of it.
REFUSED = {
    "password": (SCRAM, "invalid credentials"),
    "client secret": (OAUTH, "OIDC|token"),
    "authority": (SCRAM, "certificate verify failed"),
    "host name": (SCRAM, "certificate verify failed|hostname|IP"),
    "expired certificate of the broker": (EXPIRED, "certificate verify failed|expired"),
    "expired certificate of its own": (MTLS, "alert"),
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Return a broker behind locks."""
    broker = SecuredBroker(tmp_path_factory.mktemp("locks"))
    with broker.tokens, broker:
        yield broker


def refused(secured: SecuredBroker, folder: Path, what: str) -> Settings:
    """Return settings that are right but for one thing."""
    method, _ = REFUSED[what]
    locked = LockedApp(secured, folder, SCRAM if method == EXPIRED else method)
    wrong = folder / "wrong"
    wrong.write_text(WRONG, "ascii")
    address = secured.locked[method]
    changed = {}
    if what == "password":
        changed = {"password_file": str(wrong)}
    elif what == "client secret":
        changed = {"client_secret_file": str(wrong)}
    elif what == "authority":
        changed = {"ca_file": str(Authority(folder, "stranger").certificate)}
    elif what == "host name":
        address = address.replace("localhost", "127.0.0.1")
    elif what == "expired certificate of its own":
        own = secured.authority.sign(f"{locked.user}-old", days=0, password=PASSWORD)
        changed = {"certificate_file": str(own.certificate), "key_file": str(own.key)}
    return locked.entered(address, {**locked.security, **changed}).settings


def said(done: CompletedProcess[str]) -> str:
    """Return all that a command said; a secret that it holds, plain or as a login by HTTP has it, fails the test."""
    text = done.stdout + done.stderr
    for secret in (PASSWORD, WRONG, REGISTRY_LOGIN):
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode() not in text
    return text


@pytest.mark.fault("S1")
@pytest.mark.parametrize("what", REFUSED)
def test_whoever_is_not_let_in_is_told_so_in_one_line_within_a_minute(
    secured: SecuredBroker, tmp_path: Path, what: str
) -> None:
    done = command(tmp_path, refused(secured, tmp_path, what), "run")  # it ends before Spark is started
    assert done.returncode == 8, said(done)
    assert said(done).count("\n") == 1, said(done)
    assert "check [security], the secret it names and the certificates" in said(done)
    assert re.search(REFUSED[what][1], said(done)), said(done)


@pytest.mark.fault("S1")
@pytest.mark.parametrize(("name", "code"), {"provision": 8, "doctor": 1}.items())
def test_no_command_repeats_a_password_that_is_wrong(
    secured: SecuredBroker, tmp_path: Path, name: str, code: int
) -> None:
    done = command(tmp_path, refused(secured, tmp_path, "password"), name)
    assert done.returncode == code, said(done)
    assert "does not let User:" in said(done)
    if code == 8:
        assert said(done).count("\n") == 1, said(done)


@pytest.mark.fault("S1")
def test_a_key_that_its_password_does_not_open_is_a_bad_setting(secured: SecuredBroker, tmp_path: Path) -> None:
    locked = LockedApp(secured, tmp_path, MTLS)
    locked.secret.write_text(WRONG, "ascii")
    done = command(tmp_path, locked.app.settings, "run")
    assert done.returncode == 2, said(done)
    assert "is not opened by its key_password" in said(done)
    assert said(done).count("\n") == 1, said(done)


def test_a_registry_that_does_not_know_the_login_does_not_make_anybody_repeat_it(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    with running_registry() as registry:
        registry.mood = "unknown login"
        schema = tmp_path / "schema.avsc"
        schema.write_text(json.dumps(SCHEMA), encoding="utf-8")
        codec = {"output": "avro", "output_framing": "confluent", "registry_url": registry.url, "registry_seconds": 1}
        app = new_app(secured.bootstrap, tmp_path, codec={**codec, "output_schema_files": str(schema)})
        done = command(tmp_path, app.settings, "provision", SCHEMA_REGISTRY_USER_INFO=REGISTRY_LOGIN)
    assert done.returncode == 7, said(done)
    assert registry.calls, "it was asked"


def test_dead_letters_are_sent_back_with_what_is_printed_for_it_and_no_more(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    app = provisioned(secured.bootstrap)
    fill(secured.bootstrap, app.source.name, [(b"k", b"%d" % number, []) for number in range(5)])
    app.write(0, 5, [row(offset, [], producer_id=None) for offset in range(5)])
    user = LockedApp(secured, tmp_path)
    values = app.settings.model_dump()
    values["source"]["bootstrap"], values["security"] = secured.locked[SCRAM], user.security
    settings = build(values)
    parts = printed(tmp_path, settings)
    secured.allow(parts["run"])
    replay = ("dead-letters", "replay", "--reason", "identity")
    for line in parts["dead-letters"]:
        secured.allow(set(parts["dead-letters"]) - {line})
        done = command(tmp_path, settings, *replay)
        assert done.returncode == 8, (line, said(done))
        operation, _, topic = line.split()[-3:]
        assert f": {operation} on Topic {topic};" in said(done)
        secured.deny(map(binding, set(parts["dead-letters"]) - {line}))
    secured.allow(parts["dead-letters"])
    done = command(tmp_path, settings, *replay)
    assert (done.returncode, done.stdout) == (0, "5 dead letters sent back to their source partitions\n"), done.stderr
