"""Every environment variable that the service and its commands read: its default and what it does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from api.exchange import LOG_INPUT
from api.logs import FORMATS, LOG_FORMAT
from launch.operations.codes import python_files
from launch.server import ROOT
from models.config import MOUNTED
from runners.settings import _MAX_TTFA_SECONDS, _WINDOW_SECONDS, EngineSettings

_ENGINE = EngineSettings()


@dataclass(frozen=True)
class Setting:
    name: str
    default: str
    meaning: str


SERVICE = (
    Setting(
        "MODEL_DIR",
        f"`{MOUNTED}` if anything is there, else the embedded voice",
        "folder of the model, or `bento:NAME[:VERSION]`",
    ),
    Setting(
        "STORAGE_URI", "none", f"set by KServe: the model is fetched to `{MOUNTED}`, and nothing else is served instead"
    ),
    Setting("HOST", "`127.0.0.1`", "where `make serve` listens"),
    Setting("PORT", "3000", "where `make serve` listens"),
    Setting("GRPC_PORT", "off", "the Open Inference Protocol over gRPC"),
    Setting("GRPC_HOST", "`127.0.0.1`, in the image `0.0.0.0`", "where gRPC listens"),
    Setting("INFERENCE_SERVICE_NAME", "the model's own name", "the model's name in the Open Inference Protocol"),
    Setting(
        "COSYSERVE_VOICES", "off", "folder of saved voices and pronunciation dictionaries, which replicas may share"
    ),
    Setting("COSYSERVE_API_KEYS_FILE", "off", "a file of keys' hashes; it is read again when it changes"),
    Setting("COSYSERVE_API_KEYS", "off", "the lines of such a file with `;` between them"),
    Setting("COSYSERVE_KEY_LIMITS", "none", "limits of keys that name none, and of tokens"),
    Setting("COSYSERVE_JWT_JWKS", "off", "tokens are let in too: the issuer's public keys, a file or an https address"),
    Setting("COSYSERVE_JWT_ISSUER", "required with it", "the `iss` of tokens"),
    Setting("COSYSERVE_JWT_AUDIENCE", "required with it", "the `aud` of tokens, several with commas between them"),
    Setting("COSYSERVE_ALLOW_OPEN", "0", "1: listen beyond loopback without keys"),
    Setting("COSYSERVE_REF_HOSTS", "off", "hosts, with commas between them, whose https links `ref_audio` may name"),
    Setting("COSYSERVE_UPSTREAM_ROUTES", "0", "1: upstream's `/inference_*`"),
    Setting("COSYSERVE_THREADS", "cores that are free (affinity, cgroup quota)", "threads of the engine"),
    Setting("COSYSERVE_MAX_LIVE", str(_ENGINE.max_live), "utterances decoded together"),
    Setting("COSYSERVE_MAX_REQUESTS", str(_ENGINE.max_requests), "requests inside the engine; more get 429"),
    Setting(
        "COSYSERVE_MAX_TTFA",
        f"{_MAX_TTFA_SECONDS:g}",
        "seconds to the first audio beyond which a request is refused at once; `none`: it waits",
    ),
    Setting(
        "COSYSERVE_DTYPE",
        "auto",
        "`float32`, `bfloat16`, or `auto`: what is fastest for the model's size on this device",
    ),
    Setting(
        "COSYSERVE_WINDOW",
        str(_WINDOW_SECONDS),
        "seconds before a chunk, beside the prompt, that a stream's flow looks back; `none`: to the beginning",
    ),
    Setting(
        "COSYSERVE_MEMORY_MB",
        "60 % of what is free",
        "for what utterances keep while they run and, a quarter, the prompts of known voices",
    ),
    Setting("COSYSERVE_CUDA_GRAPHS", "0", "1: decode by CUDA graphs"),
    Setting("COSYSERVE_OVERLAP", "0", "1: decoding and synthesis at once, on a GPU"),
    Setting(LOG_FORMAT, FORMATS[0], f"of the log: {' or '.join(FORMATS)}"),
    Setting(LOG_INPUT, "0", "1: the texts of requests in the log, and details of what went wrong with them"),
    Setting("OTEL_EXPORTER_OTLP_ENDPOINT", "off", "where traces are sent; needs the extra `otlp`"),
    Setting("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "off", "the same, for traces alone"),
    Setting("OTEL_SERVICE_NAME", "`cosyserve`", "the service's name in traces"),
    Setting("OTEL_TRACES_EXPORTER", "`otlp`", "`none`: no traces"),
    Setting("OTEL_SDK_DISABLED", "false", "true: no traces"),
    Setting(
        "BENTOML_HOME",
        "`~/bentoml`",
        "where BentoML keeps models, and counts for `/metrics`: one folder for each server",
    ),
)
COMMANDS = (
    Setting("TEXT", "a greeting", "`make demo`: what is said"),
    Setting("VOICE", "the model's own", "`make demo`: by whom"),
    Setting("ENGINE", "what is installed", "`make image`: `podman`, `buildah` or `docker`"),
    Setting("VARIANT", "`cpu`", "`make image`: `cpu` or `gpu`"),
)
INTERNAL = {
    "BENTOML_CONTAINERIZED": "BentoML says so inside its images",
    "BENTOML_DO_NOT_TRACK": "set for BentoML",
    "OMP_WAIT_POLICY": "set for OpenMP",
    "PROMETHEUS_MULTIPROC_DIR": "set by BentoML",
}
"""What the code reads or sets, and nobody else should."""


def names_in_code() -> set[str]:
    """Of all environment variables: what is looked up literally, and whatever is named like one of ours."""
    return {name for path in (*python_files(), *_others()) for name in _names(ast.parse(path.read_text()))}


def _others() -> Iterator[Path]:
    for folder in ("launch", "models"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def _names(tree: ast.Module) -> Iterator[str]:
    constants = {
        ast.unparse(target): node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and re.fullmatch(r"(COSYSERVE|OTEL|GRPC)_[A-Z_]*[A-Z]", str(node.value)):
            yield str(node.value)
        elif isinstance(key := _looked_up(node), ast.Constant):
            yield str(key.value)
        elif key is not None and ast.unparse(key) in constants:
            yield str(constants[ast.unparse(key)])


def _looked_up(node: ast.AST) -> ast.expr | None:
    """The key in `os.environ[key]`, `os.environ.get(key)` and the like."""
    if isinstance(node, ast.Subscript):
        place, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        place, key = node.func.value, node.args[0]
    else:
        return None
    return key if ast.unparse(place) in ("os.environ", "environment") else None
