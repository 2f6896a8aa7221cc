"""What doctor says of the locks: plain text on a network, secrets that others may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.observe.doctor.access import allowed, locks
from pipeline.observe.doctor.site import Site
from pipeline.settings import build

if TYPE_CHECKING:
    from pathlib import Path


def site(bootstrap: str, **security: str) -> Site:
    """Describe surroundings; nothing is asked of them."""
    values: dict[str, dict[str, Any]] = {
        "app": {"id": "shop"},
        "source": {"bootstrap": bootstrap, "topic": "payments"},
        "output": {"topics": ["receipts"], "dead_letter_topic": "dead"},
        "security": security,
    }
    return Site(build(values))


@pytest.mark.parametrize(
    ("bootstrap", "state"), [("localhost:9092", "ok"), ("127.0.0.1:1,localhost:2", "ok"), ("kafka:9092", "warn")]
)
def test_plain_text_is_fine_on_this_machine_alone(bootstrap: str, state: str) -> None:
    [found] = locks(site(bootstrap))
    assert found.state == state
    assert [one.state for one in allowed(site(bootstrap))] == ["ok"]


def test_a_secret_that_others_may_read_is_worth_a_word(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("c4nary", "ascii")
    secret.chmod(0o640)
    behind = site("kafka:9093", method="scram", username="shop", password_file=str(secret))
    found = list(locks(behind))
    assert [one.state for one in found] == ["ok", "warn"]
    assert "scram as User:shop; host names are checked" in found[0].detail
    assert "others than its owner may read it" in found[1].detail
    assert "c4nary" not in str(found)
    secret.chmod(0o600)
    assert [one.state for one in locks(behind)] == ["ok"]
