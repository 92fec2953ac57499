"""`python -m models`: pull weights from a hub, verify a folder, say what a folder is."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from models.config import check_files, files_of, load_config
from models.errors import ModelError
from models.hub import HUBS, KNOWN_MODELS, open_hub, repository
from models.manifest import MANIFEST_FILE, Manifest, read_manifest, record_of, verify, write_manifest
from models.pull import pull

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0, 1 with one sentence on stderr, 2 for wrong arguments, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options, _say)
    except ModelError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename or ''}: {error.strerror or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        return 130
    return 0


def pull_model(options: argparse.Namespace, say: Say) -> None:
    name, repo = repository(options.model, options.source)
    root = options.to or Path("weights") / name
    manifest = pull(open_hub(options.source), repo, root, name=name, revision=options.revision, report=say)
    check_files(load_config(root))
    size = sum(record.size for record in manifest.files.values())
    say(f"{root}: {len(manifest.files)} files, {size / 1e6:.0f} MB, checksums in {MANIFEST_FILE}")
    say(f"serve it: make serve MODEL_DIR={root.resolve()}")


def list_models(options: argparse.Namespace, say: Say) -> None:
    for name, repos in KNOWN_MODELS.items():
        say(f"{name:20} " + ", ".join(f"{source}: {repo}" for source, repo in repos.items()))


def verify_folder(options: argparse.Namespace, say: Say) -> None:
    manifest = read_manifest(options.folder)
    if manifest is None:
        raise ModelError(
            "manifest_invalid",
            f"{options.folder} has no {MANIFEST_FILE}; `python -m models manifest {options.folder}` writes one",
        )
    verify(options.folder, manifest, say)
    origin = f", {manifest.repo} at {manifest.revision}" if manifest.repo else ""
    say(f"{options.folder}: all {len(manifest.files)} files are right{origin}")


def make_manifest(options: argparse.Namespace, say: Say) -> None:
    root = options.folder
    files = files_of(root)
    old = read_manifest(root)
    name = options.name or (old.name if old else None)
    write_manifest(root, Manifest(name, {file: record_of(root / file) for file in files}))
    say(f"{root / MANIFEST_FILE}: {len(files)} files")


def check_folder(options: argparse.Namespace, say: Say) -> None:
    """Load everything, strictly, as the service does."""
    config = load_config(options.folder)
    check_files(config)
    from models.cosyvoice import CosyVoice
    from models.prompt_features import PromptModels

    model = CosyVoice.load(config)
    PromptModels.load(config)
    voices = ", ".join(model.presets) or "none, give reference audio"
    say(f"{config.name}: CosyVoice {config.version}, {config.sample_rate} Hz; voices: {voices}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    command = commands.add_parser("pull", help="bring a model from a hub; run again, it continues")
    command.set_defaults(command=pull_model)
    command.add_argument("model", help=f"{', '.join(KNOWN_MODELS)}, or OWNER/NAME on the hub")
    command.add_argument("--to", type=Path, metavar="DIR", help="the folder (default: weights/NAME)")
    command.add_argument("--source", choices=list(HUBS), default="huggingface")
    command.add_argument("--revision", help="branch, tag or commit (default: the main branch)")

    commands.add_parser("list", help="the models that have a short name").set_defaults(command=list_models)
    for name, function, text in (
        ("verify", verify_folder, "compare every byte of a folder with its manifest"),
        ("manifest", make_manifest, "write the manifest of a folder that came by other ways"),
        ("check", check_folder, "load a folder, strictly, and say what it is"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(command=function)
        command.add_argument("folder", type=Path, metavar="DIR")
        if function is make_manifest:
            command.add_argument("--name", help="what the model shall be called")
    return parser


def _say(line: str) -> None:
    """Ends the process where nobody reads on or the disk is full: that is no fault of what is worked on."""
    try:
        print(line, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what stayed in the buffer would fail again at the end
        sys.exit(f"error: stdout cannot be written: {error.strerror or error}")


if __name__ == "__main__":
    sys.exit(main())
