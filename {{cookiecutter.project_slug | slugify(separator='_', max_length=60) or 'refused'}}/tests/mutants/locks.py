"""The mutants of the locks: secrets, host names, ACLs."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SECURITY = "pipeline.security"
LOCKS = "tests/integration/test_locks.py::"
TOLD = "tests/unit/test_security.py::test_scram_is_passed_alike_and_java_is_told_only_where_the_secret_is"

SEARCHED = f"{LOCKS}test_a_job_behind_locks_is_exact_with_the_fewest_acls_and_its_secret_is_seen_nowhere"

LOCK_MUTANTS = (
    Mutant(
        "secret-as-the-name-of-the-app",
        "pipeline.flow.session",
        {".appName(settings.app.id)": ".appName(f\"{settings.app.id} {settings.security.secret('password').read()}\")"},
        SEARCHED,
    ),
    Mutant(
        "secret-in-a-line-of-the-log",
        "pipeline.flow.preflight",
        {
            "check_acls(settings)": """\
import logging
logging.getLogger("pipeline").warning("enter by %s", settings.security.librdkafka())
check_acls(settings)""",
        },
        SEARCHED,
    ),
    Mutant(
        "secret-in-a-temporary-file",
        SECURITY,
        {
            "class Secret(NamedTuple):": "KEPT: list[Any] = []\n\n\nclass Secret(NamedTuple):",
            # In the folder for as long as the process lives.
            "return self.read()": """\
import tempfile
KEPT.append(tempfile.NamedTemporaryFile("w"))
KEPT[-1].write(self.read())
KEPT[-1].flush()
return self.read()""",
        },
        SEARCHED,
    ),
    Mutant(
        "secret-in-spark-s-options",
        SECURITY,
        # Spark hides options that look like secrets; this one does not.
        {
            '"config.providers": "env,dir",': """\
"config.providers": "env,dir",
"client.rack": self.secret("password").read(),""",
        },
        TOLD,
    ),
    Mutant(
        "secret-in-the-login-configuration",
        SECURITY,
        {'return f"${{env:{self.variable}}}" if self.variable else placeholder(self.file)': "return self.read()"},
        TOLD,
    ),
    Mutant(
        "host-name-not-checked",
        SECURITY,
        {
            'HOST_NAMES = {"ssl.endpoint.identification.algorithm": "https"}': """\
HOST_NAMES = {"ssl.endpoint.identification.algorithm": "none"}"""
        },
        f"{LOCKS}test_whoever_is_not_let_in_is_told_so_at_once_and_no_secret_is_repeated",
    ),
    Mutant(
        "plans-without-acls",
        "pipeline.acls",
        {"plans = [settings.plan_topic] if settings.reference.topic else []": "plans: list[str] = []"},
        "tests/unit/test_security.py::test_reference_data_needs_its_topic_and_that_of_the_plans_and_nothing_else_does",
    ),
    Mutant(
        "acls-not-asked-for",
        "pipeline.flow.preflight",
        {"check_acls(settings)": "pass"},
        f"{LOCKS}test_each_acl_that_is_missing_ends_the_start_with_its_operation_and_resource",
    ),
    Mutant(
        "denials-tried-again",
        "pipeline.kafka",
        {"if denied := denial(error, action, *needs):": "if False and (denied := denial(error, action, *needs)):"},
        f"{LOCKS}test_each_acl_that_is_missing_ends_the_start_with_its_operation_and_resource",
    ),
    Mutant(
        "secrets-taken-as-settings",
        "pipeline.rules",
        {'if reason := reason_against(key.partition(".")[2] or key):': "if reason := '':"},
        "tests/unit/test_security.py::"
        "test_what_may_never_be_set_is_refused_with_the_reason_and_the_value_is_not_repeated",
    ),
)
