"""`python -m launch.keys new NAME [FILE]`: an API key for its user, and the line that lets it in for the server."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from api.keyring import KEYS_FILE, entry, new_key, parse_keys
from api.limits import KeyLimits
from api.scopes import parse_scopes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m launch.keys", description=__doc__)
    commands = parser.add_subparsers(required=True)
    new = commands.add_parser("new", help="make a key: it is shown on standard error, this once")
    new.add_argument("name", help="whose key it is: letters, digits and . _ @ -")
    new.add_argument("file", nargs="?", type=Path, help="where its line goes; without it to standard output")
    new.add_argument("--scopes", help="what it is for: some of speech,voices,admin; without it for all")
    given = parser.parse_args()
    key = new_key()
    try:
        line = entry(given.name, key)
        if given.scopes is not None:
            parse_scopes(given.scopes.split(","))
            line += f" scopes={given.scopes}"
        if given.file is not None:
            _append(given.file, line)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"The key, shown this once: {key}\nIts line for {KEYS_FILE} goes to {given.file or 'here'}.", file=sys.stderr)
    if given.file is None:
        print(line)


def _append(file: Path, line: str) -> None:
    """Raises ValueError where `file` would not be one of keys any more, and OSError."""
    before = file.read_text() if file.exists() else ""
    added = f"{line}\n" if before.endswith("\n") or not before else f"\n{line}\n"
    parse_keys(before + added, str(file), KeyLimits())
    file.touch(mode=0o600)
    with file.open("a") as keys:
        keys.write(added)


if __name__ == "__main__":
    main()
