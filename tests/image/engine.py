"""podman for tests: a base image made without a registry of images, and containers hardened as on a cluster."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx

BASE = "localhost/cosyserve-test-python"
DEBIAN = "localhost/cosyserve-test-debian"
TOOLS = ("podman", "runc", "debootstrap")
CERTIFICATES = Path("/usr/local/share/ca-certificates")


def configure(folder: Path) -> dict[str, str]:
    """Environment in which podman starts containers also where it may raise no limit and cgroups are hybrid."""
    limits = []
    for name, limit in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC)):
        hard = min(resource.getrlimit(limit)[1], 20_000) if resource.getrlimit(limit)[1] > 0 else 20_000
        limits.append(f'"{name}={hard}:{hard}"')
    path = folder / "containers.conf"
    path.write_text(f'[containers]\ndefault_ulimits = [{", ".join(limits)}]\n[engine]\nruntime = "runc"\n')
    return {**os.environ, "CONTAINERS_CONF": str(path), "BENTOML_HOME": str(folder / "bentoml")}


def podman(arguments: Sequence[str], env: dict[str, str], *, timeout: float = 600, check: bool = True) -> str:
    result = subprocess.run(
        ["podman", *arguments], env=env, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert result.returncode == 0 or not check, result.stderr
    return result.stdout.strip()


def make_base(folder: Path, env: dict[str, str]) -> str:
    """Debian with its own Python, made by debootstrap; kept in podman's store for the next time."""
    if podman(["images", "--quiet", BASE], env):
        return BASE
    root = folder / "debian"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(root)], check=True, timeout=600)
    with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["podman", "import", "-", DEBIAN], env=env, stdin=tar.stdout, check=True, timeout=600)
    context = folder / "context" / "certificates"
    context.mkdir(parents=True)
    for certificate in CERTIFICATES.glob("*.crt"):
        shutil.copy(certificate, context)
    recipe = Path(__file__).parent / "base.Containerfile"
    build = ["build", "--quiet", "--network", "host", "--file", str(recipe), "--tag", BASE, str(context.parent)]
    podman(build, env)
    return BASE


class Container:
    """A started container of `image`, as on a cluster: no root, no capability, nothing to write to but /tmp."""

    def __init__(
        self,
        image: str,
        env: dict[str, str],
        *,
        ports: Sequence[int] = (9090,),
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        """`ports` inside, HTTP first; `environment` and `arguments` of the server, by default PORT as on a cluster."""
        self.addresses = {port: f"127.0.0.1:{_free_port()}" for port in ports}
        self.url = f"http://{self.addresses[ports[0]]}"
        self._env = env
        options = ["--read-only", "--tmpfs", "/tmp:rw,mode=1777", "--user", "1034:1034", "--cap-drop", "all"]
        options += ["--security-opt", "no-new-privileges", "--env", "COSYSERVE_ALLOW_OPEN=1"]
        for port, address in self.addresses.items():
            options += ["--publish", f"{address}:{port}"]
        for name, value in (environment or {"PORT": str(ports[0])}).items():
            options += ["--env", f"{name}={value}"]
        self.began = time.monotonic()
        self.id = podman(["run", "--detach", *options, image, *arguments], env)

    def wait_ready(self, timeout: float) -> float:
        """Seconds from the start until /readyz answered 200."""
        while time.monotonic() < self.began + timeout:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return time.monotonic() - self.began
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not ready after {timeout} s:\n{self.logs()}")

    def shell(self, command: str) -> str:
        """What a command prints inside, whatever its exit code."""
        return podman(["exec", self.id, "bash", "-c", command], self._env, check=False)

    def signal(self, name: str) -> None:
        podman(["kill", "--signal", name, self.id], self._env)

    def wait(self, timeout: float) -> int:
        """The exit code."""
        return int(podman(["wait", self.id], self._env, timeout=timeout))

    def logs(self) -> str:
        return podman(["logs", "--tail", "40", self.id], self._env)

    def remove(self) -> None:
        podman(["rm", "--force", self.id], self._env)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
