"""`python -m launch.import_voices`: save the voices of upstream's `spk2info.pt` where the service finds them."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from api.wish import INLINE_VOICE
from launch.server import LaunchError
from launch.terminal import ProgressLine, run
from models.conditioning import PRESETS_FILE, load_presets
from models.config import load_config
from models.errors import ModelError
from runners.model_folder import model_folder
from runners.request import RequestError
from runners.voice_store import FOLDER_VARIABLE, VoiceStore, model_key


def import_voices(
    file: Path, folder: str | None, model: str | None, consent: str, overwrite: bool, progress: ProgressLine
) -> None:
    """Save the voices of `file` in `folder` for `model`. All are checked before the first is saved; should the disk
    fail in between, those that were printed are saved. Raises LaunchError."""
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise LaunchError(f"set {FOLDER_VARIABLE} or give --to: the folder of the voices.")
    if not file.is_file():
        raise LaunchError(f"{file} is missing.")
    if not consent.strip():
        raise LaunchError("--consent is the statement by which those who are heard agreed; it is empty.")
    try:
        config = load_config(model_folder(model))
        voices = load_presets(file, config)
        presets = load_presets(config.root / PRESETS_FILE, config)
        store = VoiceStore(folder, lambda: model_key(config))
        progress.show("reading", str(folder))
        store.warm_up()
        names = [store.check_free(name, overwrite) for name in voices]
        for name in names:
            if name in {INLINE_VOICE, *presets}:
                raise LaunchError(f"{name!r} is a preset of {config.root}, or reserved: it cannot be a saved voice's.")
            if names.count(name) > 1:
                raise LaunchError(f"{file} has a voice {name!r} twice.")
        progress.clear()
        for name, conditioning in voices.items():
            voice = store.create(name, conditioning, consent=consent, overwrite=overwrite)
            print(f"{voice.id}  {name}", flush=True)
    except (ModelError, RequestError) as error:
        raise LaunchError(error.message) from error
    except OSError as error:
        raise LaunchError(f"{error.filename or folder}: {error.strerror or error}.") from error
    print(f"{folder}: {len(voices)} voices for {config.name}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m launch.import_voices", description=__doc__)
    parser.add_argument("file", type=Path, metavar="SPK2INFO.pt")
    parser.add_argument("--to", metavar="DIR", help=f"the folder of the voices (default: {FOLDER_VARIABLE})")
    parser.add_argument("--model", metavar="DIR", help="the model that they were made with (default: MODEL_DIR)")
    parser.add_argument("--consent", required=True, help="by what statement those who are heard agreed; kept with each")
    parser.add_argument("--overwrite", action="store_true", help="replace voices of the same names")
    given = parser.parse_args(arguments)
    work = partial(import_voices, given.file, given.to, given.model, given.consent, given.overwrite)
    return run("import-voices", work)


if __name__ == "__main__":
    sys.exit(main())
