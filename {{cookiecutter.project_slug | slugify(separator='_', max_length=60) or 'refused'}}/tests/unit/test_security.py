"""The locks of a cluster: both clients enter alike, secrets are only named, and every contradiction is told."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.certificates import Authority, openssl

from pipeline import cli, effective
from pipeline.acls import commands, of_audit, of_provision, of_replay, of_run, printed
from pipeline.address import Address, access_of, entry, java_entry
from pipeline.errors import BadSettings
from pipeline.local.demo import without_locks
from pipeline.refused import reason_against
from pipeline.security import Security
from pipeline.settings import Settings, build, load

CANARY = "c4nary-of-the-locks"
TOKEN = {"client_secret_env": "PASSWORD"}
FILE = {"password_file": "password"}
ENV = {"password_env": "PASSWORD"}
LEAST: dict[str, dict[str, Any]] = {
    "app": {"id": "shop"},
    "source": {"bootstrap": "kafka:9093", "topic": "payments"},
    "output": {"topics": ["receipts"], "dead_letter_topic": "dead"},
}


def locked(**security: str) -> Settings:
    """Build settings with a [security]."""
    return build({**LEAST, "security": security}, "pipeline.toml")


def refused(section: str = "security", **security: str) -> str:
    """Return the line that refuses a [security]."""
    with pytest.raises(BadSettings) as caught:
        build({**LEAST, section: security}, "pipeline.toml")
    line = str(caught.value)
    assert "\n" not in line
    assert CANARY not in line
    return line


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with certificates: an authority's, a job's, and that of somebody else."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder, "ca")
    authority.sign("job")
    authority.sign("other")
    return folder


@pytest.fixture(autouse=True)
def _secrets(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASSWORD", CANARY)
    (tmp_path / "password").write_text(CANARY, "ascii")
    for name in ("ca.pem", "job.pem", "job.key", "other.key"):
        shutil.copy(made / name, tmp_path / name)


SCRAM = {"method": "scram", "username": "shop", "ca_file": "ca.pem"}
MTLS = {"method": "mtls", "certificate_file": "job.pem", "key_file": "job.key", "ca_file": "ca.pem"}
OAUTH = {"method": "oauth", "token_url": "https://login.example.org/token", "client_id": "shop", "scope": "kafka"}


def test_without_a_method_clients_are_told_nothing_but_the_address() -> None:
    settings = build(LEAST)
    assert entry(settings.source.bootstrap) == java_entry(settings.source.bootstrap)
    assert entry(settings.output_bootstrap) == {"bootstrap.servers": "kafka:9093"}


@pytest.mark.parametrize("place", [{"password_env": "PASSWORD"}, {"password_file": "password"}])
def test_scram_is_passed_alike_and_java_is_told_only_where_the_secret_is(place: dict[str, str]) -> None:
    address = locked(**SCRAM, **place).source.bootstrap
    ours, java = entry(address), java_entry(address)
    assert ours["security.protocol"] == java["security.protocol"] == "SASL_SSL"
    assert ours["sasl.mechanism"] == java["sasl.mechanism"] == "SCRAM-SHA-512"
    assert ours["sasl.password"] == CANARY
    assert CANARY not in str(java)
    assert 'username="shop" password="${' in java["sasl.jaas.config"]
    assert ours["ssl.ca.location"] == java["ssl.truststore.location"] == str(Path("ca.pem").absolute())


def test_mutual_tls_is_passed_alike() -> None:
    address = locked(**MTLS).source.bootstrap
    ours, java = entry(address), java_entry(address)
    assert ours["security.protocol"] == java["security.protocol"] == "SSL"
    paths = [str(Path(name).absolute()) for name in ("job.pem", "job.key")]
    assert [ours["ssl.certificate.location"], ours["ssl.key.location"]] == paths
    assert java["ssl.keystore.key"].startswith("${dir:/")
    assert java["ssl.keystore.key"].endswith(":job.key}")
    assert "sasl.mechanism" not in {**ours, **java}


def test_tokens_are_passed_alike() -> None:
    address = locked(**OAUTH, **TOKEN).source.bootstrap
    ours, java = entry(address), java_entry(address)
    assert ours["sasl.mechanism"] == java["sasl.mechanism"] == "OAUTHBEARER"
    url = "sasl.oauthbearer.token.endpoint.url"
    assert ours[url] == java[url] == "https://login.example.org/token"
    assert 'clientId="shop" clientSecret="${env:PASSWORD}" scope="kafka"' in java["sasl.jaas.config"]
    assert ours["sasl.oauthbearer.client.secret"] == CANARY


@pytest.mark.parametrize(
    "security",
    [{**SCRAM, "password_env": "PASSWORD"}, MTLS, {**OAUTH, "client_secret_file": "password"}],
    ids=["scram", "mtls", "oauth"],
)
def test_host_names_are_checked_by_both_clients(security: dict[str, str]) -> None:
    address = locked(**security).source.bootstrap
    for options in (entry(address), java_entry(address)):
        assert options["ssl.endpoint.identification.algorithm"] == "https"
    assert entry(address)["enable.ssl.certificate.verification"] is True


def test_the_providers_that_java_may_use_reach_nothing_but_what_is_named(tmp_path: Path) -> None:
    by_variable = java_entry(locked(**SCRAM, **ENV).source.bootstrap)
    assert by_variable["config.providers.env.param.allowlist.pattern"] == "PASSWORD"
    assert "config.providers.dir.param.allowed.paths" not in by_variable
    by_file = java_entry(locked(**SCRAM, **FILE).source.bootstrap)
    assert by_file["config.providers.dir.param.allowed.paths"] == str(tmp_path)
    assert by_file["config.providers.env.param.allowlist.pattern"] == "none"


def test_the_output_may_be_entered_otherwise() -> None:
    apart = {"method": "mtls", "certificate_file": "job.pem", "key_file": "job.key"}
    settings = build({**LEAST, "security": {**SCRAM, "password_env": "PASSWORD"}, "output_security": apart})
    assert access_of(settings.source.bootstrap).method == "scram"
    assert access_of(settings.output_bootstrap).method == "mtls"
    assert settings.output_bootstrap != settings.source.bootstrap
    same = locked(**SCRAM, **ENV)
    assert same.output_bootstrap == same.source.bootstrap


def test_an_address_keeps_its_locks_on_the_way_to_a_worker() -> None:
    settings = locked(**SCRAM, **ENV)
    carried = pickle.dumps(settings)
    assert CANARY.encode() not in carried
    back = pickle.loads(carried)  # noqa: S301  our own
    assert back.source.bootstrap == settings.source.bootstrap
    assert access_of(back.output_bootstrap).method == "scram"
    assert isinstance(back.source.bootstrap, Address)
    assert back.source.bootstrap.group == "shop"


def test_librdkafka_takes_every_option() -> None:
    for security in ({**SCRAM, "password_env": "PASSWORD", "ca_file": ""}, {**OAUTH, "client_secret_env": "PASSWORD"}):
        turned = {"rack": "a", "connect_timeout_ms": 5_000, "request_timeout_ms": 9_000, "metadata_max_age_ms": 9_000}
        turned |= {"dns_lookup": "use_all_dns_ips", "reconnect_backoff_max_ms": 500}
        settings = build({**LEAST, "security": security, "client": turned})
        options = entry(settings.source.bootstrap)
        assert (options["client.rack"], options["socket.timeout.ms"]) == ("a", 9_000)
        assert java_entry(settings.source.bootstrap)["request.timeout.ms"] == "9000"
        AdminClient({**options, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})


@pytest.mark.parametrize(
    ("security", "line"),
    [
        ({"username": "shop"}, "username = 'shop': method = 'plaintext' needs no other key"),
        ({"method": "kerberos"}, "method = 'kerberos': must be 'plaintext', 'scram', 'mtls' or 'oauth'"),
        ({**SCRAM, "key_file": "job.key"}, "key_file = 'job.key': belongs to method 'mtls', but the method is 'scram'"),
        ({"method": "scram", "password_env": "PASSWORD"}, "username = '': method 'scram' needs it"),
        (SCRAM, "password_env = '': method 'scram' needs it, or password_file"),
        ({**SCRAM, "password_env": "A", "password_file": "b"}, "password_env = 'A': password_file is given too"),
        ({**SCRAM, "password_env": "NOT_SET"}, "password_env = 'NOT_SET': no such environment variable; set it where"),
        ({**SCRAM, "password_env": "a b"}, "password_env = 'a b': must be the name of an environment variable"),
        ({**SCRAM, "password_file": "nowhere"}, "password_file = 'nowhere': cannot be read: No such file"),
        ({**SCRAM, "password_file": "a:b"}, "password_file = 'a:b': must be the path of a file, without : { } $"),
        (
            {**SCRAM, "username": 'a"b', "password_env": "A"},
            "username = 'a\"b': must be up to 200 signs without quotes",
        ),
        ({**SCRAM, "password_env": "PASSWORD", "ca_file": "no.pem"}, "ca_file = 'no.pem': cannot be read"),
        ({**SCRAM, "password_env": "PASSWORD", "ca_file": "job.key"}, "ca_file = 'job.key': must hold certificates in"),
        ({"method": "mtls", "certificate_file": "job.pem"}, "key_file = '': method 'mtls' needs it"),
        ({**MTLS, "key_file": "job.pem"}, "key_file = 'job.pem': must hold a PKCS #8 key"),
        ({**MTLS, "key_password_env": "PASSWORD"}, "key_file = 'job.key': is not encrypted; remove key_password_env"),
        (OAUTH, "client_secret_env = '': method 'oauth' needs it, or client_secret_file"),
        (
            {**OAUTH, "token_url": "http://far.example.org"},
            "token_url = 'http://far.example.org': must be https://host",
        ),
    ],
)
def test_a_contradiction_is_refused_with_key_value_and_rule(security: dict[str, str], line: str) -> None:
    # A relative path is shown in full: as it is looked for.
    assert refused(**security).replace(f"{Path.cwd()}/", "").startswith(f"pipeline.toml: security.{line}")


BEGINS = "pipeline.toml: security."


def encrypted(name: str, *how: str) -> dict[str, str]:
    """Encrypt the job's key by the password, as openssl is told; return the settings with it."""
    openssl("pkcs8", "-topk8", *how, "-in", "job.key", "-out", name, "-passout", f"pass:{CANARY}")
    return {**MTLS, "key_file": name, "key_password_env": "PASSWORD"}


@pytest.mark.parametrize("how", [("-v2", "aes-256-cbc"), ("-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA1")])
def test_a_key_encrypted_so_that_java_cannot_read_it_is_refused_with_the_command_that_helps(
    how: tuple[str, ...],
) -> None:
    line = refused(**encrypted("new.key", *how))
    assert "new.key': is encrypted by PBES2, which Java's client cannot read: openssl pkcs8 -topk8 -v1" in line
    command = line.rpartition(": ")[2].split()
    assert command[0] == "openssl"
    answered = [{"old.key": "new.key", "new.key": "mended.key"}.get(word, word) for word in command[1:]]
    openssl(*answered, "-passin", f"pass:{CANARY}", "-passout", f"pass:{CANARY}")
    address = locked(**{**MTLS, "key_file": "mended.key", "key_password_env": "PASSWORD"}).source.bootstrap
    AdminClient({**entry(address), "bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def test_the_command_for_a_key_that_is_not_pkcs_8_makes_one_that_is_taken() -> None:
    openssl("ec", "-in", "job.key", "-out", "old.key")
    line = refused(**{**MTLS, "key_file": "old.key"})
    command = line.partition("): ")[2].partition(";")[0].split()
    openssl(*command[1:])
    assert locked(**{**MTLS, "key_file": "new.key"}).security.locked


@pytest.mark.parametrize(
    ("name", "begin", "told"),
    [
        ("ca_file", "CERTIFICATE", "must hold certificates in PEM form, but what stands there is damaged"),
        ("certificate_file", "CERTIFICATE", "must hold certificates in PEM form, but what stands there is damaged"),
        ("key_file", "PRIVATE KEY", "must hold a PKCS #8 key, but what stands there is damaged"),
    ],
)
@pytest.mark.parametrize("body", ["", f"{CANARY}\n", "bm8gY2VydGlmaWNhdGUgYXQgYWxs\n"])
def test_a_file_that_only_looks_right_is_refused_and_not_shown(name: str, begin: str, told: str, body: str) -> None:
    Path("damaged").write_text(f"-----BEGIN {begin}-----\n{body}-----END {begin}-----\n", "ascii")
    line = refused(**{**MTLS, name: "damaged"})
    assert line == f"{BEGINS}{name} = '{Path.cwd()}/damaged': {told}"


def test_the_key_of_another_certificate_is_refused() -> None:
    line = refused(**{**MTLS, "key_file": "other.key"})
    assert line.startswith(f"{BEGINS}key_file = '{Path.cwd()}/other.key': is not the key of certificate_file = ")


def test_a_password_that_does_not_open_its_key_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    given = encrypted("new.key", "-v1", "PBE-SHA1-3DES")
    assert locked(**given).security.locked
    monkeypatch.setenv("PASSWORD", f"{CANARY}-of-yesterday")
    line = refused(**given)
    assert line == f"{BEGINS}key_file = '{Path.cwd()}/new.key': is not opened by its key_password, or is damaged"


@pytest.mark.parametrize("security", [{**SCRAM, **FILE}, MTLS, {**OAUTH, "client_secret_file": "password"}])
def test_a_relative_path_means_the_same_file_in_a_worker_whose_folder_is_another(
    security: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apart = build({**LEAST, "security": security, "output_security": {**SCRAM, **FILE}})
    before = [entry(apart.source.bootstrap), entry(apart.output_bootstrap)]
    java = [java_entry(apart.source.bootstrap), java_entry(apart.output_bootstrap)]
    carried = pickle.dumps(apart)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    back: Settings = pickle.loads(carried)  # noqa: S301  our own
    assert [entry(back.source.bootstrap), entry(back.output_bootstrap)] == before
    assert [java_entry(back.source.bootstrap), java_entry(back.output_bootstrap)] == java


def test_a_working_folder_that_java_would_misread_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "a,b"
    odd.mkdir()
    shutil.copy(tmp_path / "password", odd)
    monkeypatch.chdir(odd)
    assert "in it or in the working folder" in refused(**{**SCRAM, **FILE, "ca_file": ""})


@pytest.mark.parametrize(
    ("secret", "rule"),
    [
        (f"{CANARY}\n", "ends in a line end, which Java takes as a part of it; write it with printf %s"),
        (f'{CANARY}"', "must be 1 to 1000 printable ASCII signs without double quote and backslash"),
        (f"{CANARY}\\", "printable ASCII"),
        (f"{CANARY}ü", "printable ASCII"),
        ("", "printable ASCII"),
    ],
)
def test_a_secret_that_one_of_the_clients_would_not_take_is_refused_and_not_shown(
    secret: str, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "odd").write_text(secret, "utf-8")
    monkeypatch.setenv("ODD", secret)
    for place in ({"password_file": "odd"}, {"password_env": "ODD"}):
        line = refused(**SCRAM, **place)
        assert f"security.{next(iter(place))} = " in line
        assert rule in line


def test_the_output_says_its_own_section() -> None:
    line = refused("output_security", method="scram")
    assert line.startswith("pipeline.toml: output_security.username = '': method 'scram' needs it")
    assert "output_security.username = 'x': method = 'as-source'" in refused("output_security", username="x")


@pytest.mark.parametrize(
    ("section", "key", "reason"),
    [
        ("security", "password", "a secret has no place here"),
        ("security", "client_secret", "a secret has no place here"),
        ("output_security", "key_password", "a secret has no place here"),
        ("security", "verify_hostname", "certificates and host names are always checked"),
        ("client", "ssl.endpoint.identification.algorithm", "certificates and host names are always checked"),
        ("client", "enable.ssl.certificate.verification", "certificates and host names are always checked"),
        ("client", "sasl.jaas.config", "it makes a client load and run code"),
        ("client", "sasl.login.callback.handler.class", "it makes a client load and run code"),
        ("client", "interceptor.classes", "it makes a client load and run code"),
        ("client", "plugin.library.paths", "it makes a client load and run code"),
        ("client", "config.providers", "it makes a client load and run code"),
        ("client", "metric.reporters", "it makes a client load and run code"),
        ("client", "isolation.level", "the guarantee rests on it"),
        ("client", "enable.auto.commit", "the guarantee rests on it"),
        ("client", "transactional.id", "the guarantee rests on it"),
        ("client", "enable.idempotence", "the guarantee rests on it"),
        ("client", "acks", "the guarantee rests on it"),
        ("client", "security.protocol", "[security] sets it for all clients alike"),
        ("client", "debug", "it would write what must not be written"),
    ],
)
def test_what_may_never_be_set_is_refused_with_the_reason_and_the_value_is_not_repeated(
    section: str, key: str, reason: str
) -> None:
    line = refused(section, **{key: CANARY})
    assert line.startswith(f"pipeline.toml: {section}.{key}: refused: ")
    assert reason in line


def test_no_setting_that_exists_is_one_that_may_never_be_set() -> None:
    allowed = {"password_env", "password_file", "key_password_env", "key_password_file"}
    allowed |= {"client_secret_env", "client_secret_file", "token_url", "token_ca_file"}
    for section in ("client", "security"):
        for key, _ in getattr(build(LEAST), section):
            assert not reason_against(key) or key in allowed, key


def test_an_option_that_is_only_unknown_is_told_what_there_is() -> None:
    assert "client.linger: unknown; known are rack, dns_lookup, connect_timeout_ms" in refused("client", linger="5")
    assert "client.rac: unknown; did you mean rack?" in refused("client", rac="5")


def test_settings_are_shown_with_their_origin_and_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipeline.toml"
    path.write_text(
        '[app]\nid = "shop"\n[source]\nbootstrap = "kafka:9093"\ntopic = "payments"\n'
        '[output]\ntopics = ["receipts"]\ndead_letter_topic = "dead"\n'
        '[security]\nmethod = "scram"\nusername = "shop"\npassword_file = "password"\n',
        "utf-8",
    )
    monkeypatch.setenv("PIPELINE_SOURCE__TOPIC", "refunds")
    monkeypatch.setattr("sys.argv", ["pipeline", "settings"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    shown = capsys.readouterr().out
    assert not ended.value.code
    lines = shown.splitlines()
    assert 'topic = "refunds"  # environment variable PIPELINE_SOURCE__TOPIC' in lines
    assert 'bootstrap = "kafka:9093"  # pipeline.toml' in lines
    assert 'start = "earliest"  # default' in lines
    assert f'password_file = "{tmp_path}/password"  # pipeline.toml; a secret is there, not shown' in lines
    assert CANARY not in shown
    again = tmp_path / "again.toml"
    again.write_text(shown, "utf-8")
    told = [(one.key, one.value) for one in effective.effective(path)]
    assert [(one.key, one.value) for one in effective.effective(again, {})] == told


def test_acls_are_printed_for_the_user_of_the_settings_and_a_certificate_s_must_be_named() -> None:
    lines = list(printed(locked(**SCRAM, **ENV), command_config="admin.properties"))
    assert lines[0] == "# What `pipeline run` needs."
    assert lines[1] == (
        "kafka-acls --bootstrap-server kafka:9093 --command-config admin.properties --add --allow-principal User:shop "
        "--operation Read --topic payments"
    )
    assert not [line for line in lines if line.startswith("kafka") and ("--cluster" in line or "All" in line.split())]
    with pytest.raises(BadSettings, match="say --principal"):
        list(printed(locked(**MTLS)))
    assert any("--allow-principal 'User:CN=a b'" in line for line in printed(locked(**MTLS), "User:CN=a b"))


def test_each_part_of_the_acls_is_whole_on_top_of_the_first() -> None:
    settings = locked(**SCRAM, **ENV)
    parts = [part.splitlines()[1:] for part in "\n".join(printed(settings)).split("# ")[1:]]
    run = set(parts[0])
    for part, needed in zip(parts[1:], (of_provision, of_audit, of_replay), strict=True):
        assert not run & set(part)
        left = set(commands(needed(settings))) - run - set(part)
        assert not [line for line in left if "--transactional-id" not in line]  # those one prefix of the run holds


def test_two_ways_in_need_the_group_on_both_sides() -> None:
    apart = {"method": "mtls", "certificate_file": "job.pem", "key_file": "job.key"}
    settings = build({**LEAST, "security": {**SCRAM, **ENV}, "output_security": apart})
    groups = [acl for acl in of_run(settings) if acl.resource == "Group"]
    assert [(acl.operation, access_of(acl.cluster).method) for acl in groups] == [
        ("Read", "scram"),
        ("Describe", "mtls"),
    ]
    new = {"source": {**LEAST["source"], "new_partitions": "provision"}}
    assert any(acl.operation == "Create" for acl in of_run(build({**LEAST, **new})))


def allowed(*sections: dict[str, Any]) -> set[str]:
    """Return what `run` needs with these sections, as errors name it."""
    given = {name: {**LEAST.get(name, {}), **keys} for part in sections for name, keys in part.items()}
    return {str(acl) for acl in of_run(build({**LEAST, **given}))}


def test_reference_data_needs_its_topic_and_that_of_the_plans_and_nothing_else_does() -> None:
    table = {"reference": {"topic": "accounts", "schema_file": "accounts.avsc"}}
    plans = "on Topic shop.payments.plans"
    more = {"Read on Topic accounts", f"Read {plans}", f"Write {plans}", f"DescribeConfigs {plans}"}
    assert allowed(table) - allowed() == more
    settings = build({**LEAST, **table})
    assert f"Create {plans}" in map(str, of_provision(settings))
    assert next(acl for acl in of_run(settings) if acl.name == "accounts").cluster == settings.source.bootstrap


def test_every_transactional_id_lies_under_the_one_prefix_that_is_allowed() -> None:
    settings = build(LEAST)
    [allowed_one] = [acl for acl in of_run(settings) if acl.resource == "TransactionalId"]
    assert allowed_one.prefixed
    apart = (settings.batch_id, settings.plan_id, settings.trial_id)
    for name in (*apart, settings.transactional_id(0), settings.transactional_id(10_000)):
        assert name.startswith(allowed_one.name)


def test_the_shuffled_path_needs_no_more_than_the_lanes_do_and_late_events_only_their_topic() -> None:
    folder = {"spark": {"checkpoint": "x"}}
    dedup = {"dedup": {"strategy": "window"}, **folder}
    assert allowed(dedup) == allowed()
    late = {"flow": {"path": "windows"}, "windows": {"late_topic": "late"}, **folder}
    topics = {"output": {"topics": ["receipts", "late"]}}
    assert allowed({**late, **topics}) - allowed() == {"Write on Topic late", "DescribeConfigs on Topic late"}


def test_the_demo_s_own_broker_is_enteredwithout_locks(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.toml"
    lines = [
        f"[{section}]\n" + "".join(f"{key} = {value!r}\n" for key, value in keys.items())
        for section, keys in LEAST.items()
    ]
    path.write_text(
        "".join(lines) + '[security]\nmethod = "scram"\nusername = "shop"\npassword_env = "PASSWORD"\n', "utf-8"
    )
    assert load(path, {}).security.locked
    assert not load(path, without_locks()).security.locked


def test_a_security_without_an_address_is_that_of_a_clusterwithout_locks() -> None:
    assert access_of("kafka:9092") == Security()
    assert "c4nary" not in repr(locked(**SCRAM, **ENV))
