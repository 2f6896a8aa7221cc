"""Checks of the locks: how the clusters are entered, who may read the secrets, and what this user may do."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.acls import check, of_run
from pipeline.address import access_of
from pipeline.avro.login import KEY
from pipeline.observe.doctor.finding import Finding, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.observe.doctor.site import Site

OTHERS = stat.S_IRWXG | stat.S_IRWXO
HERE = ("localhost", "127.", "[::1]")
FILES = ("password_file", "key_file", "key_password_file", "client_secret_file")


def locks(site: Site) -> Iterator[Finding]:
    """The network does not see what only the clusters may see."""
    addresses = dict.fromkeys((site.settings.source.bootstrap, site.settings.output_bootstrap))
    for address in addresses:
        access = access_of(address)
        if access.locked:
            yield ok("locks", f"{address}: {access.method} as {access.principal}; host names are checked")
        elif all(host.startswith(HERE) for host in address.split(",")):
            yield ok("locks", f"{address}: none, on this machine")
        else:
            remedy = "set [security]; see docs/security.md"
            yield warn("locks", f"{address}: plaintext: whoever sees the network reads and writes as we do", remedy)
        for key in FILES:
            yield from _kept(f"{access.section}.{key}", getattr(access, key))
    yield from _kept(KEY, site.settings.codec.registry_user_info_file)


def _kept(key: str, name: str) -> Iterator[Finding]:
    if name and Path(name).stat().st_mode & OTHERS:
        yield warn("locks", f"{key} = {name!r}: others than its owner may read it", f"chmod 600 {name}")


def allowed(site: Site) -> Iterator[Finding]:
    """The user may do what the job does; what he may not is told with operation and resource."""
    settings = site.settings
    if not (access_of(settings.source.bootstrap).locked or access_of(settings.output_bootstrap).locked):
        yield ok("permissions", "not asked for: there are no locks")
        return
    _ = site.source.topics, site.output.topics  # a cluster that lets nobody in has been told of
    check(settings)
    yield ok("permissions", f"all of the {len(of_run(settings))} that `pipeline run` needs, but for transactional ids")
