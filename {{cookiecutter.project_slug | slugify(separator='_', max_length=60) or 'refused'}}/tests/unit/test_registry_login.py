"""The login of a Schema Registry: from a file or a variable, told in a line where it is wrong, and never shown."""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.registry import running_registry

from pipeline.avro.login import USER_INFO
from pipeline.avro.registry import Registry
from pipeline.effective import effective
from pipeline.errors import BadSettings
from pipeline.observe.doctor.access import locks
from pipeline.observe.doctor.site import Site
from pipeline.settings import Settings, build

if TYPE_CHECKING:
    from pathlib import Path

CANARY = "c4nary-of-the-registry"
LOGIN = f"shop:{CANARY}"
URL = "https://registry:8081"
MALFORMED = [CANARY, f":{CANARY}", f" shop:{CANARY}", f"shop:{CANARY}\nmore", f"sh\nop:{CANARY}"]


def framed(**codec: Any) -> Settings:
    """Build settings that need a registry."""
    return build(
        {
            "app": {"id": "shop"},
            "source": {"bootstrap": "kafka:9092", "topic": "payments"},
            "output": {"topics": ["receipts"], "dead_letter_topic": "dead"},
            "codec": {"input": "avro", "input_framing": "confluent", "registry_url": URL, **codec},
        },
        "pipeline.toml",
    )


def refused(**codec: Any) -> str:
    """Return the line that refuses these settings."""
    with pytest.raises(BadSettings) as caught:
        framed(**codec)
    line = str(caught.value)
    assert "\n" not in line
    assert CANARY not in line
    return line


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that keeps the login, in the working folder."""
    monkeypatch.delenv(USER_INFO, raising=False)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "login"
    file.write_text(LOGIN, "ascii")
    file.chmod(0o600)
    return file


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("login", MALFORMED)
def test_a_variable_that_is_not_user_and_password_is_told_at_start(login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER_INFO, login)
    where = f"pipeline.toml: codec.registry_url = '{URL}': the environment variable {USER_INFO}"
    assert refused() == f"{where} must be user:password, in one line"
    with pytest.raises(BadSettings, match="must be user:password"):
        Registry(URL, 1.0)
    assert framed(input_framing="plain").codec.registry_url == URL  # nobody asks it


@pytest.mark.parametrize("login", [*MALFORMED, "", "\n"])
def test_a_file_that_is_not_user_and_password_is_told_at_start(login: str, kept: Path) -> None:
    kept.write_text(login, "ascii")
    line = refused(registry_user_info_file="login")
    rule = "what it holds must be user:password, in one line"
    assert line == f"pipeline.toml: codec.registry_user_info_file = '{kept}': {rule}"


def test_a_file_that_cannot_be_read_is_told_at_start_also_where_nobody_asks_yet(kept: Path) -> None:
    kept.unlink()
    for framing in ("confluent", "plain"):
        line = refused(registry_user_info_file="login", input_framing=framing)
        assert (
            line
            == f"pipeline.toml: codec.registry_user_info_file = '{kept}': cannot be read: No such file or directory"
        )
    kept.write_bytes(b"shop:\xff")
    assert refused(registry_user_info_file="login").endswith(": is not text")


def test_two_logins_are_one_too_many_and_the_same_one_twice_is_not(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(USER_INFO, "other:login")
    assert f"'{kept}': the environment variable {USER_INFO} holds another login" in refused(
        registry_user_info_file="login"
    )
    for same in (LOGIN, ""):
        monkeypatch.setenv(USER_INFO, same)
        assert framed(registry_user_info_file="login").codec.registry_user_info_file == str(kept)


@pytest.mark.parametrize("by", ["file", "file with a line end", "variable"])
def test_the_registry_is_asked_with_the_login_from_wherever_it_is_kept(
    by: str, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="the extra `registry` is not installed")
    if by == "variable":
        monkeypatch.setenv(USER_INFO, LOGIN)
    elif by != "file":
        kept.write_text(f"{LOGIN}\n", "ascii")
    with running_registry() as server:
        number = server.add({"type": "record", "name": "Event", "fields": []})
        file = "" if by == "variable" else str(kept)
        assert Registry(server.url, 5.0, user_info_file=file).schema(number)["name"] == "Event"
        sent = base64.b64encode(LOGIN.encode()).decode()
        assert server.logins == {f"Basic {sent}"}


def test_workers_get_the_path_alone_and_in_full(kept: Path) -> None:
    settings = framed(registry_user_info_file="login")
    carried = pickle.dumps(settings)
    assert CANARY.encode() not in carried
    assert str(kept).encode() in carried


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("url", ["http://registry:8081", "https://a:1,http://10.0.0.7", "http://localhost.example.org"])
def test_a_login_does_not_cross_the_network_in_clear(url: str) -> None:
    line = refused(registry_user_info_file="login", registry_url=url)
    bare = url.rpartition(",")[2]
    assert (
        line
        == f"pipeline.toml: codec.registry_url = '{bare}': the login would cross the network in clear; use https://"
    )
    assert framed(registry_url=url).codec.registry_url == url  # without a login there is nothing to hide


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("url", ["http://localhost:8081", "http://127.0.0.1", "http://[::1]:8081/ccompat", URL])
def test_a_login_may_go_to_this_machine_or_by_tls(url: str) -> None:
    assert framed(registry_user_info_file="login", registry_url=url).codec.registry_url == url


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize(
    "url",
    ["registry:8081", "httpx://registry", "ftp://registry", "mock://x", "https://", "https://a, https://b", "http:/a"],
)
def test_what_is_no_address_of_a_registry_is_refused(url: str) -> None:
    for framing in ("plain", "confluent"):
        line = refused(registry_url=url, input_framing=framing)
        assert line.startswith(f"pipeline.toml: codec.registry_url = '{url}': must be http:// or https:// with host")


@pytest.mark.usefixtures("kept")
def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    line = refused(registry_url=f"https://shop:{CANARY}@registry:8081")
    assert line.startswith("pipeline.toml: codec.registry_url = '***@registry:8081': must be http:// or https://")


def test_the_settings_and_doctor_speak_of_the_file_and_not_of_the_login(kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(
        '[app]\nid = "shop"\n[source]\nbootstrap = "localhost:9092"\ntopic = "payments"\n'
        '[output]\ntopics = ["receipts"]\ndead_letter_topic = "dead"\n[codec]\nregistry_user_info_file = "login"\n',
        "utf-8",
    )
    [shown] = [one for one in effective(path, {}) if one.key == "codec.registry_user_info_file"]
    assert (shown.value, shown.note) == (str(kept), "a secret is there, not shown")
    site = Site(framed(registry_user_info_file="login"))
    assert not [found for found in locks(site) if str(kept) in found.detail]
    kept.chmod(0o644)
    [found] = [found for found in locks(site) if str(kept) in found.detail]
    assert (found.state, found.remedy) == ("warn", f"chmod 600 {kept}")
