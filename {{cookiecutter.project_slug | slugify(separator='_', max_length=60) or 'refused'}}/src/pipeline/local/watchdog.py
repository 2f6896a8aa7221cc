"""Parent of one broker JVM: passes signals on to it, and ends it when the program that started it is gone.

Guarantee: no JVM outlives its creator by more than a moment, however the creator ended. This is a program of its own,
on the standard library alone: only the parent of a process can signal it without ever hitting a reused process id,
and prctl(PR_SET_PDEATHSIG) is neither on macOS nor safe with threads.

Usage: watchdog.py <creator's pid> <folder to delete if the creator is gone, or ""> <command ...>
It prints the pid of the JVM. Then each byte on its standard input is the number of a signal to send, and is given back
on its standard output once the signal has had its effect. The end of the input, or another parent than the creator,
means that the creator is gone.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

# Bounds how late the end of the JVM is noticed, and the end of a creator whose pipe a forked child still holds open.
LOOK_SECONDS = 0.1
# A process that was stopped already does not report it again: then this is how long the answer takes.
STOP_SECONDS = 1.0


def main() -> int:
    """Start the command, and stay until it has ended."""
    creator, leftover, *command = sys.argv[1:]
    # The JVM writes to the standard error, which is the log file.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno()) as jvm:
        _tell(b"%d\n" % jvm.pid)
        while jvm.poll() is None:
            readable, _, _ = select.select([sys.stdin], [], [], LOOK_SECONDS)
            signals = os.read(sys.stdin.fileno(), 1) if readable else b""
            if os.getppid() != int(creator) or (readable and not signals):
                jvm.kill()
                jvm.wait()
                _delete(leftover)
            for number in signals:
                jvm.send_signal(number)
                if number == signal.SIGSTOP:
                    _await_stopped(jvm)
                _tell(signals)
    return 0


def _delete(leftover: str) -> None:
    if leftover:
        shutil.rmtree(leftover, ignore_errors=True)
        # The folder around it goes with the last node.
        with suppress(OSError):
            Path(leftover).parent.rmdir()


def _await_stopped(jvm: subprocess.Popen[bytes]) -> None:
    # The signal only asks; until all threads have stopped, one of them may still answer a client.
    until = time.monotonic() + STOP_SECONDS
    while time.monotonic() < until:
        pid, status = os.waitpid(jvm.pid, os.WNOHANG | os.WUNTRACED)
        if pid:
            if not os.WIFSTOPPED(status):
                jvm.returncode = os.waitstatus_to_exitcode(status)
            return
        time.sleep(0.001)


def _tell(message: bytes) -> None:
    # Where the creator is gone, the next look at the standard input sees it.
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), message)


if __name__ == "__main__":
    sys.exit(main())
