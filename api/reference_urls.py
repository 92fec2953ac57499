"""Reference recordings behind links: fetched from hosts that the operator has named, and from nowhere else.

A link is the client's word. So it is https, its host is on the list, every address that the host has is a public one
and the connection goes to an address that was checked; no redirect is followed; size and time are bounded.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from api.deadlines import done_within
from audio.decode import MAX_BYTES
from audio.errors import AudioError

HOSTS_VARIABLE = "COSYSERVE_REF_HOSTS"
SECONDS = 10.0
"""For all of a recording, from the look-up of its host to its last byte."""
MAX_URL = 2000  # characters
_LONGEST_SCHEME = 32
_NAT64 = IPv6Network("64:ff9b::/96")


class _RefusedAddressError(OSError):
    """The host has an address that is not on the public internet."""


def allowed_hosts() -> frozenset[str]:
    """The names, separated by commas, in COSYSERVE_REF_HOSTS; empty: no link is fetched."""
    names = os.environ.get(HOSTS_VARIABLE, "").split(",")
    return frozenset(name.strip().lower().rstrip(".") for name in names if name.strip())


def is_link(reference: str) -> bool:
    """Of any kind: `fetch` refuses all but those it may follow."""
    return "://" in reference[:_LONGEST_SCHEME]


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Whether an IP address is of the public internet, also one that carries an IPv4 address in itself."""
    ip: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if ip in _NAT64:
            inner = IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


class ReferenceLinks:
    """Fetches recordings from `hosts`; `permitted` decides which addresses may be connected to."""

    def __init__(
        self,
        hosts: Collection[str],
        permitted: Callable[[str], bool] = is_public,
        trust: ssl.SSLContext | None = None,
        seconds: float = SECONDS,
    ) -> None:
        self._hosts, self._permitted, self._seconds = frozenset(hosts), permitted, seconds
        self._trust = trust

    async def fetch(self, url: str) -> bytes:
        """The recording at `url`. Raises AudioError: ref_audio_url_not_allowed, ref_audio_url_failed,
        ref_audio_too_large."""
        url = url.strip()
        self._check(url)
        try:
            return await done_within(self._seconds, self._fetch(url))
        except asyncio.TimeoutError:
            raise _failed(f"it took longer than {self._seconds:g} s") from None
        except aiohttp.ClientError as error:
            if isinstance(error.__cause__, _RefusedAddressError) or isinstance(error.__context__, _RefusedAddressError):
                raise _refused("its host is not on the public internet") from error
            raise _failed("its host could not be reached") from error

    def _check(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _refused("it is no valid address") from None
        if len(url) > MAX_URL or parts.scheme.lower() != "https" or host is None or "@" in parts.netloc:
            raise _refused(f"only https://HOST/PATH of at most {MAX_URL:,} characters is fetched")
        named = host.rstrip(".") if port in (None, 443) else f"{host.rstrip('.')}:{port}"
        if named not in self._hosts:
            raise _refused(f"its host is not among those of {HOSTS_VARIABLE}")
        if _is_address(host) and not self._permitted(host):  # these are not looked up
            raise _refused("its host is not on the public internet")

    async def _fetch(self, url: str) -> bytes:
        connector = aiohttp.TCPConnector(
            resolver=_CheckedResolver(self._permitted),
            use_dns_cache=False,
            ssl=self._trust or True,
        )
        data = bytearray()
        async with (
            aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,  # a megabyte may unpack to gigabytes
            ) as session,
            session.get(url, allow_redirects=False, headers={"Accept-Encoding": "identity"}) as response,
        ):
            if response.status != 200:
                raise _failed(f"its host answered {response.status} (redirects are not followed)")
            async for chunk in response.content.iter_chunked(2**16):
                data += chunk
                if len(data) > MAX_BYTES:
                    raise AudioError(
                        "ref_audio_too_large", f"The reference audio is over {MAX_BYTES:,} bytes, which are accepted."
                    )
        return bytes(data)


class _CheckedResolver(AbstractResolver):
    """One look-up, all of whose addresses must be permitted. The connection goes to one of these: no second look-up
    could give another one."""

    def __init__(self, permitted: Callable[[str], bool]) -> None:
        self._permitted = permitted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        for *_, address in found:
            if not self._permitted(str(address[0])):
                raise _RefusedAddressError(f"{address[0]} is not public")
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=port,
                family=family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST,
            )
            for family, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """There is nothing to close."""


def _refused(reason: str) -> AudioError:
    return AudioError("ref_audio_url_not_allowed", f"The link to the reference audio is not fetched: {reason}.")


def _failed(reason: str) -> AudioError:
    return AudioError("ref_audio_url_failed", f"The reference audio could not be fetched: {reason}.")
