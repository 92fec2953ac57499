"""The hubs that weights come from, Hugging Face and ModelScope, each through its own client library."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from models.errors import ModelError

if TYPE_CHECKING:
    import httpx2

LISTING_SECONDS = 30.0  # without an answer
MAX_RATE_LIMIT_SECONDS = 60
INSTALL = '.venv/bin/pip install ".[hub]"'
_NO_LISTING = (ValueError, TypeError, LookupError, AttributeError, RecursionError)  # by the libraries, unchecked
_OWNER_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

# Short names, and what they are called on each hub.
KNOWN_MODELS: Mapping[str, Mapping[str, str]] = {
    "CosyVoice2-0.5B": {"huggingface": "FunAudioLLM/CosyVoice2-0.5B", "modelscope": "iic/CosyVoice2-0.5B"},
    "Fun-CosyVoice3-0.5B": {
        "huggingface": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
        "modelscope": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
    },
}


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub states it; of a file that Hugging Face keeps in git itself it states git's hash."""

    name: str  # path below the repository, with slashes
    size: int  # bytes
    sha256: str | None
    git_sha1: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """The files of a repository at one revision; a commit, where the hub tells it."""

    repo: str
    revision: str
    files: Mapping[str, RemoteFile]


class Hub(Protocol):
    """A place to pull from. Both methods raise ModelError: repository_not_found, hub_refused, hub_unreachable,
    checksum_mismatch; and OSError when the disk refuses."""

    source: str

    def snapshot(self, repo: str, revision: str | None) -> Snapshot: ...

    def download(self, snapshot: Snapshot, file: RemoteFile, folder: Path) -> None:
        """Bring `file` to its name below `folder`. What an earlier call left there unfinished is continued."""


def open_hub(source: str) -> Hub:
    """The hub called `source`, `huggingface` or `modelscope`. Raises ModelError hub_client_missing."""
    try:
        return HUBS[source]()
    except ImportError as error:
        raise ModelError(
            "hub_client_missing", f"pulling from {source} needs its client library, {error.name}: {INSTALL}"
        ) from error


def repository(model: str, source: str) -> tuple[str, str]:
    """The model's own name and its `owner/name` on the hub, for a short name of KNOWN_MODELS or an `owner/name`.

    Raises ModelError repository_not_found.
    """
    for name, repos in KNOWN_MODELS.items():
        if model.lower() == name.lower():
            return name, repos[source]
    if _OWNER_NAME.fullmatch(model):
        return model.partition("/")[2], model
    raise ModelError(
        "repository_not_found",
        f"{model} is no model that is known here ({', '.join(KNOWN_MODELS)}), nor OWNER/NAME on a hub",
    )


class HuggingFace:
    """Hugging Face by huggingface_hub. HF_ENDPOINT names another server, HF_TOKEN an account."""

    source = "huggingface"

    def __init__(self, endpoint: str | None = None) -> None:
        from huggingface_hub import constants

        self._endpoint = endpoint or constants.ENDPOINT

    def snapshot(self, repo: str, revision: str | None) -> Snapshot:
        from huggingface_hub import HfApi

        with _listed(self._endpoint, "Hugging Face"), self._errors(repo, revision):
            info = HfApi(self._endpoint).model_info(
                repo, revision=revision, files_metadata=True, timeout=LISTING_SECONDS
            )
            files = {
                entry.rfilename: _stated(
                    entry.rfilename,
                    entry.size,
                    sha256=entry.lfs.sha256 if entry.lfs else None,
                    git_sha1=None if entry.lfs else entry.blob_id,
                )
                for entry in info.siblings or ()
            }
            commit = _hash(info.sha, digits=40)
            if commit is None:
                raise ValueError("no commit is named")
        return Snapshot(repo, commit, files)

    def download(self, snapshot: Snapshot, file: RemoteFile, folder: Path) -> None:
        from huggingface_hub import hf_hub_url
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers, get_session

        # The library's snapshot_download starts a file anew after the process was ended; http_get, which it is built
        # upon, continues one. The revision is in the name: bytes of another one are not continued.
        part = folder / f"{file.name}.{snapshot.revision}.part"
        part.parent.mkdir(parents=True, exist_ok=True)
        get_session().event_hooks["response"] = [_refuse_long_waits]
        url = hf_hub_url(snapshot.repo, file.name, revision=snapshot.revision, endpoint=self._endpoint)
        with self._errors(snapshot.repo, snapshot.revision), part.open("ab") as stream:
            if stream.tell() > file.size:
                stream.seek(0)
                stream.truncate()
            http_get(
                url,
                stream,
                resume_size=stream.tell(),
                headers=build_hf_headers(),
                expected_size=file.size,
                displayed_filename=file.name,
            )
        part.replace(folder / file.name)

    @contextlib.contextmanager
    def _errors(self, repo: str, revision: str | None) -> Iterator[None]:
        import httpx2
        from huggingface_hub import errors

        try:
            yield
        except errors.GatedRepoError as error:
            raise _gated(repo, f"{self._endpoint}/{repo}", "HF_TOKEN") from error
        except (
            errors.RepositoryNotFoundError,
            errors.RevisionNotFoundError,
            errors.EntryNotFoundError,
            errors.HFValidationError,
        ) as error:
            raise _not_found(repo, revision, self._endpoint, "HF_TOKEN") from error
        except errors.HfHubHTTPError as error:
            raise _refused(self._endpoint, error.response.status_code) from error
        except errors.OfflineModeIsEnabled as error:
            raise _unreachable(self._endpoint, "HF_HUB_OFFLINE forbids it") from error
        except httpx2.HTTPError as error:
            raise _unreachable(self._endpoint, error) from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise _unreachable(self._endpoint, error) from error  # fewer or more bytes than announced


class ModelScope:
    """ModelScope by modelscope_hub. MODELSCOPE_ENDPOINT names another server, MODELSCOPE_API_TOKEN an account."""

    source = "modelscope"

    def __init__(self, endpoint: str | None = None) -> None:
        import modelscope_hub

        self._api = modelscope_hub.HubApi(endpoint=endpoint)
        self._endpoint = self._api.legacy.endpoint

    def snapshot(self, repo: str, revision: str | None) -> Snapshot:
        revision = revision or "master"
        with _listed(self._endpoint, "ModelScope"), self._errors(repo, revision):
            entries = self._api.list_repo_files(repo, "model", revision=revision)
            files = {entry.path: _stated(entry.path, entry.size, entry.sha256) for entry in entries if not entry.is_dir}
        return Snapshot(repo, revision, files)

    def download(self, snapshot: Snapshot, file: RemoteFile, folder: Path) -> None:
        with self._errors(snapshot.repo, snapshot.revision):
            self._api.download_file(
                snapshot.repo,
                "model",
                file.name,
                revision=snapshot.revision,
                local_dir=folder,
                expected_sha256=file.sha256,
                file_size=file.size,
            )

    @contextlib.contextmanager
    def _errors(self, repo: str, revision: str) -> Iterator[None]:
        import requests
        from modelscope_hub import errors

        try:
            yield
        except (errors.AuthenticationError, errors.PermissionDeniedError) as error:
            raise _gated(repo, f"{self._endpoint}/models/{repo}", "MODELSCOPE_API_TOKEN") from error
        except errors.NotExistError as error:
            raise _not_found(repo, revision, self._endpoint, "MODELSCOPE_API_TOKEN") from error
        except errors.FileIntegrityError as error:
            raise ModelError("checksum_mismatch", f"{repo} on {self._endpoint}: {error}") from error
        except errors.APIError as error:
            raise _refused(self._endpoint, error.status_code) from error
        except (errors.HubError, requests.RequestException) as error:
            raise _unreachable(self._endpoint, error) from error


HUBS: Mapping[str, type[HuggingFace] | type[ModelScope]] = {hub.source: hub for hub in (HuggingFace, ModelScope)}


@contextlib.contextmanager
def _listed(endpoint: str, hub: str) -> Iterator[None]:
    """Round the call for a listing and the reading of it; outside of what knows the client library's own errors."""
    try:
        yield
    except _NO_LISTING as error:
        raise _refused(endpoint, f"what is not {hub}'s language ({error})") from error


def _stated(name: str, size: int | None, sha256: str | None, git_sha1: str | None = None) -> RemoteFile:
    """The file that an entry of a listing states; one of _NO_LISTING where it states none."""
    if not isinstance(name, str) or type(size) is not int or size < 0:
        raise ValueError(f"{name!r} has the size {size!r}")
    return RemoteFile(name, size, _hash(sha256, digits=64), _hash(git_sha1, digits=40))


def _hash(text: str | None, digits: int) -> str | None:
    """In lower case; None where the hub states none."""
    if not text:
        return None
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        raise ValueError(f"{text!r} is no hash")
    return text.lower()


def _refuse_long_waits(response: httpx2.Response) -> None:
    """Raises the library's error where it would sleep for as long as the hub asks, be it hours, and then ask again."""
    if response.status_code != 429:
        return
    from huggingface_hub.utils import hf_raise_for_status, parse_ratelimit_headers

    limit, after = parse_ratelimit_headers(response.headers), response.headers.get("Retry-After", "")
    if limit is not None and limit.remaining == 0:
        seconds = limit.reset_in_seconds
    else:
        seconds = int(after) if after.isdecimal() else 0
    if seconds > MAX_RATE_LIMIT_SECONDS:
        response.read()
        hf_raise_for_status(response)


def _not_found(repo: str, revision: str | None, endpoint: str, token: str) -> ModelError:
    at = f" at revision {revision}" if revision else ""
    return ModelError(
        "repository_not_found",
        f"{endpoint} has no {repo}{at} that you may see: check the name; if it is private, set {token}",
    )


def _gated(repo: str, page: str, token: str) -> ModelError:
    return ModelError(
        "hub_refused", f"{repo} is given to those only who asked for access: ask at {page}, then set {token}"
    )


def _refused(endpoint: str, answer: object) -> ModelError:
    return ModelError("hub_refused", f"{endpoint} answered {answer}: try again later, the pull continues")


def _unreachable(endpoint: str, reason: object) -> ModelError:
    detail = (str(reason).splitlines() or [type(reason).__name__])[0]
    return ModelError(
        "hub_unreachable", f"{endpoint} cannot be reached ({detail}): run it again with a network, the pull continues"
    )
