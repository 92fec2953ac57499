"""What is asked to be spoken: everyday sentences from two words to a short story, or the lines of a file."""

from __future__ import annotations

import json
from pathlib import Path

TEXTS = (
    "Good morning.",
    "The train to the coast leaves from platform nine in twenty minutes, so there is time for a coffee.",
    "Could you hold the door for me?",
    "We moved the meeting to Thursday afternoon, because half of the team is still on the road on Wednesday.",
    "Thank you for calling. All our lines are busy at the moment. Please stay with us, and the next person who is free "
    "will help you; it should not take longer than three minutes.",
    "Your parcel has arrived.",
    "Mix the flour with the butter, add two eggs and a little salt, and let the dough rest in a cool place overnight.",
    "It rained until the evening.",
    "When we were children, our grandfather took us up the hill behind the village every autumn. He carried the bread, "
    "we carried the apples, and at the top he would name every farm in the valley, one after the other, and who had "
    "lived there, and whom they had married. I have forgotten most of the names, but not his voice.",
    "Turn left after the bridge, and then keep going straight until you see the old water tower.",
    "No, that one is mine; yours is hanging next to the window.",
    "The museum opens at ten, and on the first Sunday of every month nobody has to pay for a ticket.",
)


def read_texts(path: Path) -> tuple[str, ...]:
    """One text per line; in a .jsonl one JSON object with `text` per line. Raises ValueError, OSError."""
    lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    try:
        texts = [json.loads(line)["text"] for line in lines] if path.suffix == ".jsonl" else lines
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f'{path}: every line must be JSON with "text" ({error})') from error
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{path} holds no texts")
    return tuple(texts)
