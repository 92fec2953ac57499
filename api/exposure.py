"""Where a server may listen: beyond this machine only with API keys, or where somebody said that it may be open."""

from __future__ import annotations

import ipaddress
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Mapping

from api.auth import KeyRing
from api.jwt_settings import JWKS
from api.keyring import KEYS, KEYS_FILE

ALLOW_OPEN = "COSYSERVE_ALLOW_OPEN"


def check_exposure(hosts: Iterable[str], keys: KeyRing | None, environment: Mapping[str, str] = os.environ) -> None:
    """Raises ValueError with a sentence where everybody who reaches one of `hosts` could use the server, and nobody
    said that they may."""
    if keys is not None or may_be_open(environment):
        return
    for host in hosts:
        if not _is_loopback(host):
            raise ValueError(
                f"Listening on {host} without API keys is refused: set {KEYS_FILE}, {KEYS} or {JWKS}, or "
                f"{ALLOW_OPEN}=1 where something else decides who reaches this server."
            )


def may_be_open(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether somebody said that everybody who reaches the server may use it."""
    return environment.get(ALLOW_OPEN) == "1"


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of `host:port` and `[host]:port`."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def listening_hosts() -> Iterator[str]:
    """The addresses of the sockets that this process was given to listen on, whatever chose them."""
    for name in os.listdir("/dev/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as found:
                    internet = found.family in (socket.AF_INET, socket.AF_INET6)
                    if internet and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        yield str(found.getsockname()[0])
        except OSError:  # closed since it was listed
            continue


def _is_loopback(host: str) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        return False
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
