"""`ci/containers.sh` and its kin with engines that are only played: what they use, start, and stop again."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import PROJECT, ROOT, outside_make

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = ROOT / "ci" / "containers.sh"
DEADLINE_SECONDS = 30.0

# Answers while the file `engine` is there; knows every image.
DOCKER = '#!/bin/sh\necho "$@" >> "$PLAY/calls"\n[ -e "$PLAY/engine" ]\n'
# Starts to answer, and stops when it is told to; leaves a namespace mounted, as real ones do (where root may mount).
DOCKERD = """#!/bin/sh
echo $$ > "$PLAY/started"
for last; do [ "$before" = --exec-root ] && root=$last; before=$last; done
mkdir -p "$root/netns" && touch "$root/netns/default" && mount --bind /proc/self/ns/net "$root/netns/default"
trap 'rm "$PLAY/engine"; exit 0' TERM
touch "$PLAY/engine"
while :; do sleep 0.1; done
"""
# The same, without any image: none here, none to be pulled.
IMAGELESS = DOCKER.replace("[ -e", 'case "$1 $2" in "image inspect" | pull*) exit 1 ;; esac\n[ -e')
BROKEN = "#!/bin/sh\necho no room\nexit 1\n"


class Play:
    """A machine that is played: its programs come first on the path."""

    def __init__(self, folder: Path) -> None:
        """Lay out the programs; root may do everything, and no engine runs."""
        self.folder = folder
        for name, text in {
            "docker": DOCKER,
            "dockerd": DOCKERD,
            "ip": "#!/bin/sh\n",
            "iptables": "#!/bin/sh\n",
            "id": "#!/bin/sh\necho 0\n",
            "unshare": "#!/bin/sh\n",
        }.items():
            self.program(name, text)

    def program(self, name: str, text: str) -> None:
        """Put another program in the place of one."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def start(self, *command: str, **environ: str) -> subprocess.Popen[str]:
        """Call the script."""
        inherited = {key: value for key, value in outside_make().items() if key not in ("DOCKER_HOST", "KAFKA_IMAGE")}
        inherited |= {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "PLAY": str(self.folder),
            "CONTAINERS_STATE": str(self.folder / "state"),
            **environ,
        }
        return subprocess.Popen(
            [SCRIPT, *command], env=inherited, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *command: str, **environ: str) -> tuple[int, str]:
        """Call the script to its end; returns its exit code and what it said."""
        process = self.start("run", *command, **environ)
        said, _ = process.communicate(timeout=DEADLINE_SECONDS)
        return process.returncode, said

    def ask(self, script: str, **environ: str) -> str:
        """Call another script, which prints what it has found."""
        variables = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "PLAY": str(self.folder),
            "CONTAINERS_STATE": str(self.folder / "state"),
            **environ,
        }
        done = subprocess.run([ROOT / "ci" / script], env=variables, check=True, capture_output=True, text=True)
        return done.stdout

    @property
    def engine_answers(self) -> bool:
        """Whether the played engine runs."""
        return (self.folder / "engine").exists()

    @property
    def engine_was_started(self) -> bool:
        """Whether the script has started one."""
        return (self.folder / "started").exists()


@pytest.fixture
def play(tmp_path: Path) -> Play:
    """Return a machine without an engine, for root."""
    return Play(tmp_path)


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    until = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_an_engine_that_answers_is_used_and_left_running(play: Play) -> None:
    """With the pinned image, which it can pull."""
    (play.folder / "engine").touch()

    code, said = play.run("sh", "-c", "echo $KAFKA_IMAGE; exit 7")

    pins = (PROJECT / "src/pipeline/local/jars.toml").read_text(encoding="utf-8")
    version = pins.partition("org.apache.kafka:kafka_2.13:")[2].partition('"')[0]
    assert f"\napache/kafka:{version}\n" in said
    assert code == 7, "the code of the command"
    assert play.engine_answers
    assert not play.engine_was_started


def test_an_engine_is_started_where_none_answers_and_stopped_after_the_command(play: Play) -> None:
    """With variables by which clients find it, and testcontainers pulls nothing."""
    code, said = play.run("sh", "-c", 'test -e "$PLAY/engine" && echo $DOCKER_HOST $TESTCONTAINERS_RYUK_DISABLED')

    assert code == 0, said
    [host, ryuk] = said.splitlines()[-1].split()
    assert (host[:12], ryuk) == ("unix:///tmp/", "true")
    assert not Path(host.removeprefix("unix://")).parent.exists()
    assert play.engine_was_started
    assert not play.engine_answers


def test_a_command_that_fails_stops_the_engine_as_well(play: Play) -> None:
    """And its code is handed on."""
    code, _ = play.run("false")

    assert code == 1
    assert play.engine_was_started
    assert not play.engine_answers


def test_a_command_that_takes_too_long_is_ended_and_so_is_the_engine(play: Play) -> None:
    """A hanging test must not hang a build."""
    code, said = play.run("sleep", "60", CONTAINERS_SECONDS="1")

    assert code == 124
    assert "not done within 1 s" in said
    assert not play.engine_answers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_engine_outlives_the_script_that_is_killed(play: Play, number: signal.Signals) -> None:
    """However it ends."""
    script = play.start("run", "sh", "-c", 'touch "$PLAY/running"; while [ ! -e "$PLAY/end" ]; do sleep 0.1; done')
    wait_until((play.folder / "running").exists)
    sockets = Path((play.folder / "state/sockets").read_text(encoding="utf-8").strip())

    script.send_signal(number)
    if number is signal.SIGTERM:  # bash hears it when the command has ended
        (play.folder / "end").touch()

    wait_until(lambda: not play.engine_answers)
    (play.folder / "end").touch()
    script.communicate(timeout=DEADLINE_SECONDS)
    code, said = play.run("true")
    assert code == 0, said
    assert not sockets.exists(), "the next run clears away what a killed one has left"


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({"id": "#!/bin/sh\necho 1000\n"}, "no Docker engine answers, and only root can start one"),
        ({"unshare": BROKEN}, "no Docker engine answers, and root may not mount here"),
        ({"docker": IMAGELESS, "uname": "#!/bin/sh\necho aarch64\n"}, "no Docker engine or no Kafka image is here"),
    ],
    ids=["not root", "root in a cage", "another machine"],
)
def test_what_cannot_be_tried_is_skipped_and_the_reason_is_told(
    play: Play, programs: dict[str, str], reason: str
) -> None:
    """Visibly, without a failure, and nothing is run; unless containers are required."""
    for name, text in programs.items():
        play.program(name, text)

    code, said = play.run("touch", str(play.folder / "ran"))

    assert f"container tests SKIPPED: {reason}" in said
    assert code == 0
    code, said = play.run("touch", str(play.folder / "ran"), CONTAINERS="required")
    assert f"container tests FAILED: {reason}" in said
    assert code == 1
    assert not (play.folder / "ran").exists()
    assert not play.engine_answers


def test_a_run_does_not_wait_for_ever_for_another(play: Play) -> None:
    """It names the file that is locked."""
    (play.folder / "state").mkdir()
    with (play.folder / "state/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = play.run("true", CONTAINERS_SECONDS="1")

    assert code == 1
    assert f"another run of this script has held {play.folder}/state/lock for 1 s" in said
    assert not play.engine_was_started


@pytest.mark.parametrize(
    ("programs", "reason"),
    [
        ({"dockerd": BROKEN}, "a Docker engine was started, but does not answer"),
        ({"docker": IMAGELESS, "apt-get": BROKEN}, "busybox-static could not be fetched"),
    ],
    ids=["engine", "image"],
)
def test_what_was_tried_and_failed_is_a_failure_shown_with_its_last_words(
    play: Play, programs: dict[str, str], reason: str
) -> None:
    """Or a broken build of the image would pass for a machine without containers."""
    for name, text in programs.items():
        play.program(name, text)

    code, said = play.run("touch", str(play.folder / "ran"))

    assert code == 1
    assert "no room\n" in said
    assert f"container tests FAILED: {reason}" in said
    assert not (play.folder / "ran").exists()
    assert not play.engine_answers


def test_up_and_down_are_a_pair_and_down_stops_no_other_process(play: Play) -> None:
    """`down` without `up` does nothing, also when the noted number now belongs to somebody else."""
    up = play.start("up")
    said, _ = up.communicate(timeout=DEADLINE_SECONDS)
    assert up.returncode == 0, said
    assert "export DOCKER_HOST=unix:///tmp/" in said
    assert play.engine_answers, "it outlives the script"
    assert play.start("down").wait(DEADLINE_SECONDS) == 0
    assert not play.engine_answers

    with subprocess.Popen(["sleep", "60"]) as stranger:
        (play.folder / "state/pid").write_text(f"{stranger.pid}\n", encoding="ascii")
        assert play.start("down").wait(DEADLINE_SECONDS) == 0
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize(
    ("script", "path", "before", "after"),
    [
        ("base.sh", "Dockerfile", "ARG BASE=", "\n"),
        ("prometheus.sh", "ops/compose.yaml", "${PROMETHEUS_IMAGE:-", "}"),
    ],
    ids=["base", "Prometheus"],
)
def test_the_image_that_a_file_names_is_taken_where_it_can_be_pulled(
    play: Play, script: str, path: str, before: str, after: str
) -> None:
    """Nothing is built then."""
    (play.folder / "engine").touch()

    said = play.ask(script)

    named = (PROJECT / path).read_text(encoding="utf-8").partition(before)[2].partition(after)[0]
    assert said == f"{named}\n"
    assert (play.folder / "calls").read_text(encoding="utf-8") == f"pull --quiet {named}\n"


def test_compose_is_taken_where_it_is_and_what_keeps_it_from_being_built_is_said(play: Play) -> None:
    """The folder is that of docker's own settings."""
    (play.folder / "engine").touch()
    assert play.ask("compose.sh", DOCKER_CONFIG="/some/folder") == "/some/folder\n"
    assert (play.folder / "calls").read_text(encoding="utf-8") == "compose version\n"

    (play.folder / "engine").unlink()
    play.program("go", "#!/bin/sh\necho no way out\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        play.ask("compose.sh")
    assert failed.value.stderr == "the source of compose could not be fetched:\nno way out\n"
