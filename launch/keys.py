"""`python -m launch.keys new NAME`: an API key for its user, and the line that lets it in for the server."""

from __future__ import annotations

import argparse
import sys

from api.auth import KEYS_FILE, entry, new_key


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m launch.keys", description=__doc__)
    commands = parser.add_subparsers(required=True)
    new = commands.add_parser("new", help="make a key: the line goes to standard output, the key to standard error")
    new.add_argument("name", help="whose key it is: letters, digits and . _ @ -")
    name = parser.parse_args().name
    key = new_key()
    try:
        line = entry(name, key)
    except ValueError as error:
        parser.error(f"{name!r}: {error}")
    print(f"The key, shown this once: {key}\nThe line for {KEYS_FILE}:", file=sys.stderr)
    print(line)


if __name__ == "__main__":
    main()
