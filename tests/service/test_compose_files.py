"""The files of deploy/compose: what nginx and compose would refuse, and what keeps the containers in."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from api.app import create_app
from api.arrival import MAX_BODY_BYTES, MAX_BYTES_BY_PATH
from api.auth import KeyRing
from api.jwt_tokens import MAX_TOKEN
from api.oip.grpc_server import GrpcServer
from api.oip.messages import SERVICE as INFERENCE
from api.oip.messages import message
from launch.server import ROOT, free_port
from tests.api.oip_backend import FakeBackend
from tests.service.nginx import CONF, Nginx, needs_nginx, rendered

FOLDER = ROOT / "deploy" / "compose"
# What the compose specification knows, of what is used here.
SERVICE = {"image", "restart", "user", "read_only", "tmpfs", "cap_drop", "security_opt", "pids_limit", "mem_limit"} | {
    *("cpus", "environment", "volumes", "stop_grace_period", "healthcheck", "logging", "networks", "ports"),
    *("extra_hosts", "depends_on", "deploy"),
}


def loaded(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / name).read_text())


@needs_nginx
def test_nginx_takes_its_file(tmp_path: Path) -> None:
    servers = {f"tts-{number}:{port}": 9 for number in (1, 2) for port in (8080, 8081)}
    path = tmp_path / "nginx.conf"
    path.write_text(rendered({8080: 18_080, 8081: 18_081}, servers, tmp_path))
    tested = subprocess.run(["nginx", "-t", "-c", str(path)], capture_output=True, text=True, check=False)
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr.replace('[warn] the "user"', "")


def test_nginx_lets_through_what_the_servers_take() -> None:
    conf = CONF.read_text()
    body = re.search(r"client_max_body_size (\d+)m;", conf)
    header = re.search(r"large_client_header_buffers \d+ (\d+)k;", conf)
    assert body is not None
    assert header is not None
    assert max(MAX_BODY_BYTES, *MAX_BYTES_BY_PATH.values()) < int(body[1]) << 20 < 2 * max(MAX_BYTES_BY_PATH.values())
    assert int(header[1]) << 10 > MAX_TOKEN + 1000


@needs_nginx
async def test_a_grpc_call_may_have_more_messages_than_a_body_has_room_for(tmp_path: Path) -> None:
    draining, there = asyncio.Event(), free_port()
    server = GrpcServer(create_app(FakeBackend()).state.inference, draining)
    await server.start(f"127.0.0.1:{there}")
    servers = {f"tts-{number}:{port}": there for number in (1, 2) for port in (8080, 8081)}
    asked = message("ModelInferRequest")(model_name="nobody", raw_input_contents=[bytes(4 << 20)])
    try:
        with Nginx(servers, tmp_path) as nginx:
            async with grpc.aio.insecure_channel(nginx.grpc_address) as channel:
                call = channel.stream_stream(f"/{INFERENCE}/ModelStreamInfer")(timeout=30)
                for _ in range(8):  # 32 MiB
                    await call.write(asked.SerializeToString())
                    assert b"invalid_tensor" in await call.read()
                await call.done_writing()
                assert await call.code() is grpc.StatusCode.OK
    finally:
        draining.set()
        await server.stop()


@pytest.mark.parametrize("name", ["compose.yaml", "compose.gpu.yaml"])
def test_services_have_only_what_compose_knows(name: str) -> None:
    file = loaded(name)
    assert {key for key in file if not key.startswith("x-")} <= {"name", "services", "networks"}
    for service in file["services"].values():
        assert set(service) <= SERVICE


def test_every_container_is_shut_in_and_every_server_is_where_nginx_asks() -> None:
    file = loaded("compose.yaml")
    for service in file["services"].values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert int(service["user"].split(":")[0]) > 0
        assert service["pids_limit"]
        assert service["mem_limit"]
        assert service["healthcheck"]["test"][0] == "CMD"
        assert all(not mount["bind"]["create_host_path"] for mount in service["volumes"])
    servers = {name: service for name, service in file["services"].items() if name.startswith("tts-")}
    asked = re.findall(r"\bserver (tts-\d):(808[01]) max_fails=1", CONF.read_text())
    assert sorted(asked) == sorted((name, port) for name in servers for port in ("8080", "8081"))
    known = dict(line.split(":") for line in file["services"]["nginx"]["extra_hosts"])
    assert known == {name: service["networks"]["tts"]["ipv4_address"] for name, service in servers.items()}
    assert all("ports" not in service for service in servers.values())
    for service in servers.values():
        environment, mounts = service["environment"], {mount["target"]: mount for mount in service["volumes"]}
        assert "read_only" not in mounts[environment["COSYSERVE_VOICES"]]
        assert mounts[str(Path(environment["COSYSERVE_API_KEYS_FILE"]).parent)]["read_only"]


def test_each_server_has_a_card_of_its_own() -> None:
    cards = [
        card
        for service in loaded("compose.gpu.yaml")["services"].values()
        for device in service["deploy"]["resources"]["reservations"]["devices"]
        for card in device["device_ids"]
    ]
    assert sorted(cards) == ["0", "1"]


def test_its_settings_are_those_of_the_server(tmp_path: Path) -> None:
    environment = loaded("compose.yaml")["services"]["tts-1"]["environment"]
    (tmp_path / "keys").write_text("")
    keys_file = {**environment, "COSYSERVE_API_KEYS_FILE": str(tmp_path / "keys")}
    assert KeyRing.from_environment(keys_file) is not None
    known = " ".join(path.read_text() for folder in ("api", "runners") for path in (ROOT / folder).rglob("*.py"))
    assert all(name in known for name in environment)
