"""A broker behind locks: who is let in, what he must be allowed, and that no secret is seen anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from traceback import format_exception
from typing import TYPE_CHECKING

import pytest
from tests.support.certificates import Authority
from tests.support.job import new_app
from tests.support.locked import PASSWORD, LockedApp, printed
from tests.support.program import settings_file
from tests.support.running import ROOT
from tests.support.secrets import found_in
from tests.support.secured import MTLS, OAUTH, SCRAM, SecuredBroker, binding

from pipeline.acls import check, commands, of_audit, of_replay, of_run
from pipeline.errors import BadSettings, Denied, Unreachable
from pipeline.flow.preflight import check_topics
from pipeline.flow.session import session
from pipeline.flow.source import batch
from pipeline.lanes.provision import provision
from pipeline.lanes.replay import Letter, replay
from pipeline.lanes.takeover import check_time_out, fence
from pipeline.local.node import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.job import App

# What the broker grants, for the test of a time-out beyond it.
LONGEST_MS = 60_000
# What is searched, and a word that stands there: a search that finds no such word would find no secret either.
HELD = {
    "log": "delivery=exactly-once",
    "metrics": "{topic}",
    "repr": "{topic}",
    "settings": "{topic}",
    "/offsets/0": "{topic}",
    "command line of": "tests.support.run_job",
    "/environment/": "{app}",
    "/SQL/": "{app}",
    "/StreamingQuery/": "{app}",
    "/api/v1/applications/environment": "{app}",
    "/api/v1/applications/sql": "Physical Plan",
    "/seen/local-": "{app}",  # Spark's log of events
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Return a broker behind locks."""
    broker = SecuredBroker(tmp_path_factory.mktemp("locks"), {"transaction.max.timeout.ms": str(LONGEST_MS)})
    with broker.tokens, broker:
        yield broker


@pytest.fixture(scope="module")
def locked(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> LockedApp:
    """Return an app whose user may do what the job needs, and nothing else."""
    locked = LockedApp(secured, tmp_path_factory.mktemp("app"))
    locked.allow()
    return locked


def denied(app: App) -> str:
    """Return the line by which a start ends."""
    began = time.monotonic()
    with pytest.raises(Denied) as caught:
        fence_all(app)
    assert time.monotonic() - began < 60
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.exit_code == 8
    return line


def fence_all(app: App) -> None:
    """Do what a job does before it starts Spark, and its first fence."""
    checked = check_topics(app.settings)
    for partition in range(checked.source.partitions):
        fence(app.settings, partition)


@pytest.mark.fault("S2")
def test_each_acl_that_is_missing_ends_the_start_with_its_operation_and_resource(locked: LockedApp) -> None:
    fence_all(locked.app)
    for acl, command in zip(of_run(locked.app.settings), locked.needed(), strict=True):
        locked.broker.deny([binding(command)])
        line = denied(locked.app)
        named = str(acl).removesuffix("*")
        assert named in line, line
        others = [str(other) for other in of_run(locked.app.settings) if not str(other).startswith(named)]
        assert not any(f"{other}," in line or f"{other};" in line for other in others), line
        locked.broker.allow([command])
    fence_all(locked.app)


def test_topics_are_provisioned_with_what_is_printed_for_it_and_no_more(secured: SecuredBroker, tmp_path: Path) -> None:
    apart = LockedApp(secured, tmp_path, output={"partitions": 1})
    fresh_one = new_app(secured.bootstrap, tmp_path, provisioned=False)
    app = fresh_one.with_settings(source={"bootstrap": secured.locked[SCRAM]}, security=apart.security)
    with pytest.raises(Denied, match="Describe on Topic"):
        provision(app.settings, lambda _: None)
    parts = printed(tmp_path, app.settings)
    secured.allow([*parts["run"], *parts["provision"]])
    provision(app.settings, lambda _: None)
    fence_all(app)


def test_the_output_is_audited_with_what_is_printed_for_it_and_no_more(locked: LockedApp, tmp_path: Path) -> None:
    locked.plain.send(100)
    locked.plain.run()
    parts = printed(tmp_path, locked.app.settings)
    with pytest.raises(Denied, match="Read on Topic"):
        check(locked.app.settings, of_audit)  # as the command does before it reads
    locked.broker.allow(parts["audit"])
    check(locked.app.settings, of_audit)
    assert locked.app.audit().exact
    locked.broker.deny(map(binding, parts["audit"]))


@pytest.mark.parametrize("method", [SCRAM, MTLS, OAUTH])
def test_spark_and_librdkafka_enter_alike(secured: SecuredBroker, tmp_path: Path, method: str) -> None:
    """The key of MTLS is encrypted, as docs/security.md says."""
    locked = LockedApp(secured, tmp_path, method)
    locked.allow()
    locked.plain.send(200)
    fence_all(locked.app)
    ends = {partition: (0, end) for partition, end in locked.plain.ends().items()}
    plain = batch(session(locked.plain.settings), locked.plain.settings, ends).count()
    assert batch(session(locked.app.settings), locked.app.settings, ends).count() == plain > 200


def test_whoever_is_not_let_in_is_told_so_at_once_and_no_secret_is_repeated(locked: LockedApp, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("wr0ng-canary", "ascii")
    stranger = Authority(tmp_path, "stranger")
    address = locked.broker.locked[SCRAM]
    cases = {
        "invalid credentials": locked.entered(address, {**locked.security, "password_file": str(wrong)}),
        "certificate verify failed": locked.entered(address, {**locked.security, "ca_file": str(stranger.certificate)}),
        # The certificate is of a name, not of the machine's address.
        "certificate verify failed|hostname|IP": locked.entered(
            address.replace("localhost", "127.0.0.1"), locked.security
        ),
    }
    for reason, app in cases.items():
        with pytest.raises(Denied, match=reason) as caught:
            check_topics(app.settings)
        line = str(caught.value)
        assert f"does not let User:{locked.user} in" in line
        assert "check [security]" in line
        assert "canary" not in "".join(format_exception(caught.value)).lower()


def test_java_checks_the_host_name_too(locked: LockedApp) -> None:
    address = locked.broker.locked[SCRAM].replace("localhost", "127.0.0.1")
    app = locked.entered(address, locked.security)
    with pytest.raises(Exception, match=r"SslAuthenticationException|SSL handshake|No subject alternative") as caught:
        batch(session(app.settings), app.settings, {0: (0, 1), 1: (0, 1)}).count()
    assert PASSWORD not in "".join(format_exception(caught.value))


def test_a_cluster_that_is_away_is_not_taken_for_one_that_refuses(
    locked: LockedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.denied.PROBE_SECONDS", 1.0)
    monkeypatch.setattr("pipeline.acls.REQUEST_SECONDS", 1.0)
    nobody = locked.entered(f"localhost:{free_ports(1)[0].client}", locked.security)
    with pytest.raises(Unreachable):
        check_topics(nobody.settings)


def test_a_time_out_beyond_the_broker_s_limit_is_told_at_the_first_fence(locked: LockedApp) -> None:
    app = locked.app.with_settings(transaction={"timeout_ms": LONGEST_MS + 1})
    rule = f"transaction.timeout_ms = {LONGEST_MS + 1}: must be at most the brokers' transaction.max.timeout.ms"
    with pytest.raises(BadSettings, match=rule):
        fence_all(app)


@pytest.mark.parametrize("by", ["file", "variable"])
def test_a_time_out_beyond_the_broker_s_limit_is_told_before_spark_starts(
    locked: LockedApp, tmp_path: Path, by: str
) -> None:
    asked = {"timeout_ms": LONGEST_MS + 1}
    path = settings_file(
        tmp_path, (locked.app.with_settings(transaction=asked) if by == "file" else locked.app).settings
    )
    environ = {"PIPELINE_TRANSACTION__TIMEOUT_MS": str(LONGEST_MS + 1)} if by == "variable" else {}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", "-s", path],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        # Without jars Spark cannot start: whoever tries says so instead.
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PIPELINE_JARS": str(tmp_path / "nowhere"), **environ},
    )
    where = path if by == "file" else "environment variable PIPELINE_TRANSACTION__TIMEOUT_MS"
    rule = f"transaction.timeout_ms = {LONGEST_MS + 1}: must be at most the brokers' transaction.max.timeout.ms"
    assert done.stderr.startswith(f"error: {where}: {rule}"), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode == BadSettings.exit_code


def test_asking_what_the_brokers_grant_disturbs_no_writer(locked: LockedApp, tmp_path: Path) -> None:
    settings = locked.app.settings
    path = settings_file(tmp_path, settings)
    writing = fence(settings, 0)
    writing.begin()
    check_time_out(settings, path)
    check_time_out(settings, path)
    writing.commit()


def test_a_right_to_the_transactional_ids_that_is_missing_is_told_before_spark_starts(
    locked: LockedApp, tmp_path: Path
) -> None:
    [(acl, command)] = [
        pair
        for pair in zip(of_run(locked.app.settings), locked.needed(), strict=True)
        if pair[0].resource == "TransactionalId"
    ]
    locked.broker.deny([binding(command)])
    with pytest.raises(Denied, match=f"denied: {str(acl).removesuffix('*')}"):
        check_time_out(locked.app.settings, tmp_path)
    locked.broker.allow([command])


def test_a_replay_that_is_denied_names_what_it_lacks(secured: SecuredBroker, tmp_path: Path) -> None:
    apart = LockedApp(secured, tmp_path)
    settings = apart.app.settings
    said = {"topic": settings.source.topic, "partition": "0", "offset": "0"}
    letter = Letter(0, 0, b"key", b"value", [], said)
    wanted = of_replay(settings)
    assert [acl.resource for acl in wanted] == ["Topic", "Topic", "TransactionalId"]
    reads = [acl for acl in of_run(settings) if acl.operation == "Read" and acl.cluster == settings.source.bootstrap]
    secured.allow(commands([*reads, *wanted], f"User:{apart.user}"))
    for acl in wanted:
        command = list(commands([acl], f"User:{apart.user}"))
        secured.deny([binding(line) for line in command])
        with pytest.raises(Denied, match=re.escape(str(acl))) as caught:
            replay(settings, [letter])
        assert "\n" not in str(caught.value)
        secured.allow(command)
    assert (replay(settings, [letter]), replay(settings, [letter])) == (1, 0)


def test_a_job_behind_locks_is_exact_with_the_fewest_acls_and_its_secret_is_seen_nowhere(
    locked: LockedApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKS_PASSWORD", PASSWORD)
    locked.plain.send(500)
    by_variable = {**locked.security, "password_file": "", "password_env": "LOCKS_PASSWORD"}
    port = free_ports(1)[0]
    app = locked.entered(locked.broker.locked[SCRAM], by_variable).with_settings(metrics={"port": port.client})
    seen = tmp_path / "seen"
    seen.mkdir()
    environ = {"TESTS_SPARK_SHOWN": f"{port.controller} {seen}", "TMPDIR": str(seen)}
    with app.start(environ=environ) as job:
        job.wait_for_progress(sum(locked.plain.ends().values()))
        places = found_in(job, app, port.controller, [seen, app.checkpoint, app.folder])
        for place, held in HELD.items():
            named = places.naming(held.format(topic=app.topic, app=app.settings.app.id))
            assert any(place in name for name in named), (place, named)
        assert not places.naming(PASSWORD), places.naming(PASSWORD)
    locked.plain.assert_exact()
