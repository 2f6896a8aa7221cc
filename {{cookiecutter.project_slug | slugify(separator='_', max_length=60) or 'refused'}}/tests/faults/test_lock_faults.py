"""S1 to S3: a user who is no longer let in, or not allowed enough; the job stops with one line, and goes on exactly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.support.locked import PASSWORD, LockedApp
from tests.support.secrets import left_by
from tests.support.secured import SCRAM, SecuredBroker, binding

from pipeline.acls import of_run
from pipeline.errors import Denied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.arena import Evidence

    from pipeline.flow.job import Job
    from pipeline.observe.progress import Batch

STOP_SECONDS = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Return a broker behind locks."""
    broker = SecuredBroker(tmp_path_factory.mktemp("locks"))
    with broker.tokens, broker:
        yield broker


@pytest.fixture
def locked(secured: SecuredBroker, tmp_path: Path) -> LockedApp:
    """Return an app whose user may do what the job needs."""
    locked = LockedApp(secured, tmp_path, SCRAM, source={"max_offsets_per_trigger": 100})
    locked.allow()
    return locked


@pytest.mark.long
@pytest.mark.fault("S1")
def test_a_password_that_is_changed_under_a_job_ends_it_and_it_is_not_in_what_the_job_leaves(
    locked: LockedApp, tmp_path: Path, evidence: Evidence
) -> None:
    locked.plain.send(200)
    left = tmp_path / "left"
    left.mkdir()
    with locked.app.start(environ={"TMPDIR": str(left)}) as job:
        job.wait_for_progress(sum(locked.plain.ends().values()))
        locked.broker.add_user(locked.user, "an0ther-Canary")
        began = time.monotonic()
        locked.plain.send(50, seed=2)
        assert job.wait() == 8, job.log
        evidence.recovery = time.monotonic() - began
        assert f"does not let User:{locked.user} in" in job.log
        places = left_by(job, [left, locked.app.checkpoint, locked.app.folder])
        assert any("/offsets/0" in name for name in places.naming(locked.app.topic))
        assert not places.naming(PASSWORD), places.naming(PASSWORD)
    locked.broker.add_user(locked.user, PASSWORD)
    locked.app.run()
    locked.plain.assert_exact()


@pytest.mark.long
@pytest.mark.fault("S2")
def test_a_job_with_any_acl_missing_stops_with_its_name_and_is_exact_once_it_is_given(
    locked: LockedApp, evidence: Evidence
) -> None:
    for seed, (acl, command) in enumerate(zip(of_run(locked.app.settings), locked.needed(), strict=True)):
        locked.plain.send(50, seed=seed)
        locked.broker.deny([binding(command)])
        began = time.monotonic()
        with pytest.raises(Denied, match=str(acl).removesuffix("*")):
            locked.app.run()
        evidence.recovery = max(evidence.recovery or 0.0, time.monotonic() - began)
        assert time.monotonic() - began < STOP_SECONDS
        locked.broker.allow([command])
    locked.app.run()
    locked.plain.assert_exact()


# Which of the ACLs is taken away in the middle of the job, by a part of its name.
REVOKED = ("Write on TransactionalId", "Write on Topic {receipts}", "Read on Topic {source}", "Write on Topic {lanes}")


@pytest.mark.long
@pytest.mark.fault("S3")
@pytest.mark.parametrize("revoked", REVOKED)
def test_an_acl_that_is_taken_away_stops_the_job_and_it_is_exact_once_it_is_back(
    locked: LockedApp, evidence: Evidence, revoked: str
) -> None:
    app, settings = locked.app, locked.app.settings
    named = revoked.format(receipts=settings.output.topics[0], source=app.topic, lanes=settings.lane_topic)
    command = next(
        line for acl, line in zip(of_run(settings), locked.needed(), strict=True) if str(acl).startswith(named)
    )
    locked.plain.send(300)
    struck: list[float] = []

    def take_away(_job: Job, _batch: Batch) -> None:
        if not struck:
            locked.broker.deny([binding(command)])
            struck.append(time.monotonic())
            locked.plain.send(300, seed=2)

    with pytest.raises(Denied) as caught:
        app.run(take_away, until_caught_up=False)
    evidence.recovery = time.monotonic() - struck[0]
    assert evidence.recovery < STOP_SECONDS
    assert named in str(caught.value)
    locked.broker.allow([command])
    app.run()
    locked.plain.assert_exact()
