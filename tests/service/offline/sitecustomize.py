"""On the PYTHONPATH of a process under test: every attempt to leave this machine is written down and refused."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from typing import Any

ATTEMPTS = os.environ["COSYSERVE_TEST_ATTEMPTS"]  # a file
_connect, _getaddrinfo = socket.socket.connect, socket.getaddrinfo


def _is_here(host: Any) -> bool:
    if host in (None, "", b"", "localhost", b"localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(host: Any) -> OSError:
    with open(ATTEMPTS, "a", encoding="utf-8") as file:
        file.write(f"{host}\n")
    return OSError(errno.ENETUNREACH, "the network is blocked")


class _Socket(socket.socket):
    def connect(self, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_here(address[0]):
            raise _refuse(address[0])
        _connect(self, address)

    def connect_ex(self, address: Any) -> int:
        try:
            self.connect(address)
        except OSError as error:
            return error.errno or errno.EIO
        return 0


def _look_up(host: Any, *arguments: Any, **options: Any) -> Any:
    if not _is_here(host):
        raise _refuse(host)
    return _getaddrinfo(host, *arguments, **options)


socket.socket = _Socket  # type: ignore[misc]
socket.getaddrinfo = _look_up
