"""Where the model lies: `MODEL_DIR` is a folder, or `bento:NAME[:VERSION]`, a tag of BentoML's model store."""

from __future__ import annotations

import os
from pathlib import Path

from models.config import model_dir
from models.errors import ModelError

SCHEME = "bento:"


def model_folder(named: str | None = None) -> Path:
    """The folder to load from: of `named`, else of the environment. A tag without a version is the store's newest.

    Raises ModelError model_file_missing: the store has no such model.
    """
    named = named or str(model_dir())
    if not named.startswith(SCHEME):
        return Path(named)
    import bentoml  # takes a second, and a folder needs none of it

    tag = named.removeprefix(SCHEME)
    try:
        return Path(bentoml.models.get(tag).path)
    except (bentoml.exceptions.BentoMLException, ValueError) as error:
        home = os.environ.get("BENTOML_HOME") or "~/bentoml"
        raise ModelError(
            "model_file_missing",
            f"MODEL_DIR={named}: the model store in {home} has no such model ({error}); `bentoml models list` shows "
            "what is there, `python -m launch.model_import DIR` puts a folder in",
        ) from error
