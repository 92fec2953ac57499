"""Links to references: only from hosts that were named, only from public addresses, no redirect, bounded."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from api.reference_urls import ReferenceLinks, is_public
from api.references import ReferenceVoices
from audio.decode import MAX_BYTES
from audio.errors import AudioError
from tests.api.oip_backend import FakeBackend

SOUND = b"RIFF not really"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "url",
    [
        "http://voices.example/a.wav",
        "https://other.example/a.wav",
        "https://voices.example.other.example/a.wav",
        "https://voices.example:8443/a.wav",
        "https://user@voices.example/a.wav",
        "https://voices.example@127.0.0.1/a.wav",
        "https://127.0.0.1/a.wav",
        "https://[::1]/a.wav",
        "https://voices.example:port/a.wav",
        "https://[voices.example/a.wav",
        "https:///a.wav",
        "https://voices.example/" + "a" * 2000,
    ],
)
async def test_other_links_are_refused_without_a_look_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _no_lookup)
    with pytest.raises(AudioError) as caught:
        await ReferenceLinks(["voices.example", "127.0.0.1"]).fetch(url)
    assert caught.value.code == "ref_audio_url_not_allowed"


async def _no_lookup(*_: object, **__: object) -> None:
    raise AssertionError("nothing should be looked up")


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::ffff:127.0.0.1"]])
async def test_a_host_with_an_address_that_is_not_public_is_refused(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lookup(host: str, port: int, **_: object) -> list[tuple]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
    with pytest.raises(AudioError) as caught:
        await ReferenceLinks(["voices.example"]).fetch("https://voices.example/a.wav")
    assert caught.value.code == "ref_audio_url_not_allowed"


async def test_links_are_off_unless_hosts_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSYSERVE_REF_HOSTS", raising=False)
    with pytest.raises(AudioError) as caught:
        await ReferenceVoices(FakeBackend()).read("https://voices.example/a.wav")
    assert caught.value.code == "ref_audio_url_not_allowed"
    monkeypatch.setenv("COSYSERVE_REF_HOSTS", "voices.example")
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _lookup("127.0.0.1"))
    with pytest.raises(AudioError, match="public internet"):
        await ReferenceVoices(FakeBackend()).read(" HTTPS://Voices.Example/a.wav")


def _lookup(address: str) -> Callable:
    async def lookup(host: str, port: int, **_: object) -> list[tuple]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return lookup


class Host:
    """An HTTPS server on this machine, whose certificate is for voices.example; `answer` writes what it sends."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[bytes] = []
        self._pair = _certificate(folder)

    @asynccontextmanager
    async def serving(self, answer: Callable[[asyncio.StreamWriter], object]) -> AsyncIterator[ReferenceLinks]:
        """What fetches from it, as if its address were public."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                sending = answer(writer)
                if asyncio.iscoroutine(sending):
                    await sending
                writer.close()

        offered = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        offered.load_cert_chain(*self._pair)
        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=offered)
        port = server.sockets[0].getsockname()[1]
        self.url = f"https://voices.example:{port}/a.wav"
        trust = ssl.create_default_context(cafile=self._pair[0])
        async with server:
            yield ReferenceLinks([f"voices.example:{port}"], lambda _: True, trust, seconds=1.0)


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "voices.example")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("voices.example")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path)


@pytest.fixture(autouse=True)
def named_only_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """voices.example is this machine, for tests that have a host."""
    if "host" in request.fixturenames:
        real = asyncio.BaseEventLoop.getaddrinfo

        async def lookup(loop: asyncio.BaseEventLoop, name: str, port: int, **options: Any) -> list:
            return await real(loop, "127.0.0.1" if name == "voices.example" else name, port, **options)

        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", lookup)


async def test_a_recording_is_fetched_without_credentials_or_cookies(host: Host) -> None:
    def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: %d\r\n\r\n%s" % (len(SOUND), SOUND))

    async with host.serving(answer) as links:
        assert [await links.fetch(host.url), await links.fetch(host.url)] == [SOUND, SOUND]
    assert all(
        b"cookie" not in request.lower() and b"authorization" not in request.lower() for request in host.requests
    )


async def test_what_a_host_has_packed_is_not_unpacked(host: Host) -> None:
    packed = gzip.compress(bytes(MAX_BYTES + 1))

    def answer(writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        writer.write(head + packed)

    async with host.serving(answer) as links:
        assert await links.fetch(host.url) == packed


async def test_what_a_host_may_not_do_to_this_server(host: Host) -> None:
    def redirect(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: https://voices.example/b.wav\r\nContent-Length: 0\r\n\r\n")

    async def endless(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(MAX_BYTES // 2**20 + 10):
            writer.write(bytes(2**20))
            await writer.drain()

    async def slow(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(30):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.1)

    def nonsense(writer: asyncio.StreamWriter) -> None:
        writer.write(b"nonsense\r\n\r\n")

    for answer, code in (
        (redirect, "ref_audio_url_failed"),
        (endless, "ref_audio_too_large"),
        (slow, "ref_audio_url_failed"),
        (nonsense, "ref_audio_url_failed"),
    ):
        async with host.serving(answer) as links:
            with pytest.raises(AudioError) as caught:
                await links.fetch(host.url)
        assert caught.value.code == code
    assert len(host.requests) == 4


async def test_a_host_that_is_not_who_it_says_is_refused(host: Host) -> None:
    async with host.serving(lambda writer: None) as links:
        links._trust = None  # what everybody trusts, which did not sign this certificate
        with pytest.raises(AudioError) as caught:
            await links.fetch(host.url)
    assert caught.value.code == "ref_audio_url_failed"
    assert not host.requests
