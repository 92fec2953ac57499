"""Read what a model folder says of itself: which CosyVoice it is, its rates, sampling and networks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from models.errors import ModelError
from models.manifest import Manifest, check_sizes, read_manifest
from models.recipe import read_recipe

_YAML_VERSIONS = {"cosyvoice3.yaml": 3, "cosyvoice2.yaml": 2, "cosyvoice.yaml": 1}
FOLDER_FILE = "cosyserve.json"
STAGING = ".pull"  # inside a model folder: what a pull that has not finished left behind
EMBEDDED = Path(__file__).parent / "embedded"
MOUNTED = Path("/mnt/models")  # where KServe mounts the weights


def model_dir() -> Path:
    """The folder that `MODEL_DIR` names; without it `/mnt/models` if anything is there, else the embedded voice.

    Where KServe was told to bring weights (`STORAGE_URI`) nothing but those will do, there yet or not.
    """
    if named := os.environ.get("MODEL_DIR"):
        return Path(named)
    return MOUNTED if os.environ.get("STORAGE_URI") or _holds_anything(MOUNTED) else EMBEDDED


def _holds_anything(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # weights that may not be read are an error to be told, no reason to take other ones
        return True


@dataclass(frozen=True)
class SamplingConfig:
    """Repetition-aware sampling (RAS; VALL-E 2, Chen et al. 2024) as the checkpoint was tuned for it."""

    top_p: float
    top_k: int
    win_size: int
    tau_r: float


@dataclass(frozen=True)
class MelConfig:
    """The mel spectrogram of prompts. Lengths in samples, frequencies in Hz; `fmax` None: half the rate."""

    n_fft: int
    num_mels: int
    sampling_rate: int
    hop_size: int
    win_size: int
    fmin: float
    fmax: float | None


@dataclass(frozen=True)
class VoiceFolderConfig:
    """What a folder may declare about itself in `cosyserve.json`; genuine folders have none."""

    name: str | None = None
    frontend: str = "upstream"  # or "phonemes": the text is turned into phonemes before the tokenizer
    languages: tuple[str, ...] = ()
    default_voice: str | None = None
    max_words: int | None = None  # longest utterance the voice was trained on
    silence_tokens: tuple[int, ...] = ()  # speech tokens of silence; those before a request's first sound go, but
    leading_silence_kept: int = 0  # the last so many, from which the flow starts the sound
    instructions: bool = True  # the model follows natural-language instructions
    bistream: bool = True  # it was trained to speak while its text arrives


@dataclass(frozen=True)
class ModelConfig:
    """A model folder, read and checked. `llm`, `flow`, `hift` are sections of the yaml, its tags dropped."""

    root: Path
    version: int
    name: str
    sample_rate: int  # Hz
    token_frame_rate: int  # speech tokens per second
    token_mel_ratio: int  # mel frames per speech token
    chunk_size: int  # speech tokens per streaming chunk
    pre_lookahead_len: int  # speech tokens
    spk_embed_dim: int  # width of an x-vector
    sampling: SamplingConfig
    mel: MelConfig
    llm: Mapping[str, Any]
    flow: Mapping[str, Any]
    hift: Mapping[str, Any]
    folder: VoiceFolderConfig


def load_config(model_dir: str | Path) -> ModelConfig:
    """Read the folder's `cosyvoice{2,3}.yaml` and, if there, its `cosyserve.json` and its manifest.

    Raises ModelError: model_file_missing (no such folder), model_unrecognised (no known yaml, or that of
    CosyVoice 1), model_config_invalid (a value is missing or of the wrong kind), checksum_mismatch (a file has not
    the size that the manifest states), manifest_invalid.
    """
    root = Path(model_dir)
    try:
        path, version = _find_yaml(root)
        manifest = read_manifest(root)
        tree = read_recipe(path)
        folder = _load_folder_config(root / FOLDER_FILE)
    except PermissionError as error:
        raise _unreadable(error.filename) from error
    if manifest is not None:
        check_sizes(root, manifest)
    llm, flow, hift, mel = (_section(tree, key, path) for key in ("llm", "flow", "hift", "feat_extractor"))
    # A folder of the first CosyVoice 2 release states rates and chunk only inside its flow section.
    chunk = (flow.get("encoder") or {}).get("static_chunk_size")
    try:
        return ModelConfig(
            root=root,
            version=version,
            name=folder.name or _name(root, version, manifest),
            sample_rate=_whole("sample_rate", tree["sample_rate"]),
            token_frame_rate=_whole("token_frame_rate", tree.get("token_frame_rate"), flow.get("input_frame_rate")),
            token_mel_ratio=_whole("token_mel_ratio", tree.get("token_mel_ratio"), flow.get("token_mel_ratio")),
            chunk_size=_whole("chunk_size", tree.get("chunk_size"), chunk),
            pre_lookahead_len=_whole("pre_lookahead_len", flow["pre_lookahead_len"]),
            spk_embed_dim=_whole("spk_embed_dim", tree.get("spk_embed_dim"), flow.get("spk_embed_dim")),
            sampling=_sampling(llm["sampling"]),
            mel=_mel(mel),
            llm=llm,
            flow=flow,
            hift=hift,
            folder=folder,
        )
    except (KeyError, TypeError, ValueError) as error:
        detail = f"no value for {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError("model_config_invalid", f"{path}: {detail}") from error


def check_files(config: ModelConfig) -> None:
    """Raises ModelError model_file_missing for the first file of the folder that the service would miss later."""
    for name in (*required_files(config.version), *(["phonemes.json"] if config.folder.frontend == "phonemes" else [])):
        if not (config.root / name).is_file():
            raise ModelError("model_file_missing", f"{config.root / name} is missing: the download is not complete")


def required_files(version: int) -> tuple[str, ...]:
    """Paths below the folder of what the service reads of every CosyVoice `version`."""
    tokenizer = ("config.json", "vocab.json", "merges.txt", "tokenizer_config.json")
    return (
        *("llm.pt", "flow.pt", "hift.pt", "campplus.onnx", f"speech_tokenizer_v{version}.onnx"),
        *(f"CosyVoice-BlankEN/{name}" for name in tokenizer),
        f"cosyvoice{version}.yaml",
    )


# What it reads besides, if it is there.
OPTIONAL_FILES = ("spk2info.pt", FOLDER_FILE, "phonemes.json")


def model_files(names: Collection[str], where: str | Path) -> list[str]:
    """Those of `names` (paths below the folder or repository `where`) that the service reads.

    The yaml, which makes a folder a model, comes last. Raises ModelError: model_unrecognised, model_file_missing.
    """
    required = required_files(recognise(names, where))
    if missing := [name for name in required if name not in names]:
        raise ModelError("model_file_missing", f"{where} is not complete, it has no {', '.join(missing)}")
    return [*(name for name in OPTIONAL_FILES if name in names), *required]


def files_of(root: Path) -> list[str]:
    """The files in the folder `root` that the service reads, in order of their paths. Raises ModelError, see above."""
    names = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    return sorted(model_files(names, root))


def recognise(names: Collection[str], where: str | Path) -> int:
    """The version of CosyVoice, 2 or 3, by the yaml among `names`. Raises ModelError model_unrecognised."""
    for name, version in _YAML_VERSIONS.items():
        if name in names:
            if version == 1:
                raise ModelError(
                    "model_unrecognised",
                    f"{where}/{name}: CosyVoice 1 is not supported yet; use a CosyVoice 2 folder (cosyvoice2.yaml) "
                    "or a Fun-CosyVoice 3 folder (cosyvoice3.yaml)",
                )
            return version
    raise ModelError(
        "model_unrecognised",
        f"{where} holds neither cosyvoice2.yaml nor cosyvoice3.yaml: not a CosyVoice model folder",
    )


def _find_yaml(root: Path) -> tuple[Path, int]:
    if not root.is_dir():
        raise ModelError("model_file_missing", f"{root} is not a folder; point MODEL_DIR at a CosyVoice model folder")
    if not os.access(root, os.R_OK | os.X_OK):
        raise _unreadable(root)
    names = [name for name in _YAML_VERSIONS if (root / name).is_file()]
    if not names and (root / STAGING).is_dir():
        raise ModelError("model_file_missing", f"the pull into {root} has not finished: run it again, it continues")
    version = recognise(names, root)
    return root / f"cosyvoice{version}.yaml", version


def _unreadable(path: object) -> ModelError:
    return ModelError("model_file_missing", f"{path} may not be read by this user (uid {os.getuid()})")


def _name(root: Path, version: int, manifest: Manifest | None) -> str:
    """What a folder that does not name itself is called: by its manifest, else by its own name if that tells."""
    if manifest is not None and manifest.name:
        return manifest.name
    return f"cosyvoice{version}" if root == MOUNTED else root.resolve().name


def _section(tree: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    section = tree.get(key)
    if not isinstance(section, Mapping):
        raise ModelError("model_config_invalid", f"{path} has no section `{key}`")
    return section


def _whole(name: str, *values: Any) -> int:
    """The first of `values` that is given, as an int above 0."""
    value = next((value for value in values if value is not None), None)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf or value % 1:
        raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
    return int(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} must be a number, not {value!r}")
    return float(value)


def _sampling(section: Any) -> SamplingConfig:
    return SamplingConfig(
        top_p=_real("top_p", section["top_p"]),
        top_k=_whole("top_k", section["top_k"]),
        win_size=_whole("win_size", section["win_size"]),
        tau_r=_real("tau_r", section["tau_r"]),
    )


def _mel(section: Mapping[str, Any]) -> MelConfig:
    return MelConfig(
        **{key: _whole(key, section[key]) for key in ("n_fft", "num_mels", "sampling_rate", "hop_size", "win_size")},
        fmin=_real("fmin", section["fmin"]),
        fmax=None if section["fmax"] is None else _real("fmax", section["fmax"]),
    )


_JSON_KINDS = {"str": str, "int": int, "bool": bool, "tuple": list}


def _declared(key: str, value: Any) -> Any:
    """The value of one entry of `cosyserve.json`, checked against the field of that name."""
    types = {field.name: str(field.type) for field in fields(VoiceFolderConfig)}
    if key not in types:
        raise ValueError(f"unknown entry {key!r}; known are {', '.join(types)}")
    if value is None and "None" in types[key]:
        return None
    kind = _JSON_KINDS[types[key].partition(" ")[0].partition("[")[0]]
    if type(value) is not kind:
        raise ValueError(f"{key} must be of type {types[key]}, not {value!r}")
    return tuple(value) if isinstance(value, list) else value


def _load_folder_config(path: Path) -> VoiceFolderConfig:
    if not path.is_file():
        return VoiceFolderConfig()
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError("it holds no object")
        config = VoiceFolderConfig(**{key: _declared(key, value) for key, value in data.items()})
        if config.frontend not in ("upstream", "phonemes"):
            raise ValueError(f"frontend is {config.frontend!r}; known are 'upstream' and 'phonemes'")
        return config
    except (ValueError, TypeError, RecursionError) as error:
        raise ModelError("model_config_invalid", f"{path}: {error}") from error
