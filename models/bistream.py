"""Speech from text that is still arriving: when to feed text, when to decode, when to wait (CosyVoice 2 and 3).

The sequence alternates 5 text tokens and 15 speech tokens (CosyVoice 2, Du et al. 2024, section 2.3); the id `fill`
after a block asks for the next text. When the text ends, its rest, the task id and the rest of the speech follow.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from models.errors import ModelError
from models.sampling import mask_ids
from models.speech_lm import SpeechLM

DEFAULT_MIX = (5, 15)  # text and speech tokens per block where the yaml's `mix_ratio` says nothing


class _Phase(enum.Enum):
    WAITING = enum.auto()  # for text
    DECODING = enum.auto()  # a block of speech
    FINAL = enum.auto()  # the text has ended
    DONE = enum.auto()


class Bistream:
    """One utterance: `push` and `finish` bring text; the engine feeds `next_input` and tells `accept` what it drew.

    `next_input` is None while text is missing and once the utterance is `done`. Differs from upstream, unless
    `upstream_compat`, where that breaks its own training format: nothing is fed twice, v3 waits for the first
    text, prompt speech longer than the text allows is kept, no id but the intended one can end the utterance;
    and its length has a limit.
    """

    def __init__(
        self,
        lm: SpeechLM,
        prompt_text: Sequence[int],
        prompt_speech: Sequence[int],
        *,
        end_of_prompt_id: int,
        mix: Sequence[int] = DEFAULT_MIX,
        upstream_compat: bool = False,
    ) -> None:
        self._lm = lm
        self._compat = upstream_compat
        self._text_block, self._speech_block = mix
        instruction, transcript = _split_prompt(lm, list(prompt_text), end_of_prompt_id)
        self._feed = torch.cat([lm.start, lm.embed_text(instruction)])  # gathered, not yet fed
        self._last_token: int | None = None  # decoded, not yet fed
        self._arrived = transcript  # text that no block holds yet
        self._arriving: deque[int] = deque()
        self._prompt = list(prompt_speech)
        self._blocks = 0
        self._ended = False  # no more text will come
        self._phase = _Phase.WAITING
        self._next_fill = self._speech_block - len(self._prompt) % self._speech_block
        self.history: list[int] = []  # all ids drawn or forced: what sampling looks back on
        self.text_tokens = 0
        self._spoken = 0

    @property
    def done(self) -> bool:
        return self._phase is _Phase.DONE

    @property
    def cut(self) -> bool:
        """Whether its limit ended it, not the model."""
        return self.done and bool(self.history) and self.history[-1] != self._lm.eos

    def push(self, text_ids: Sequence[int]) -> None:
        """More text, in any portions: the result depends only on the ids."""
        self._arriving.extend(text_ids)
        self.text_tokens += len(text_ids)
        self._take_text()

    def finish(self) -> None:
        """The text is complete."""
        self._ended = True
        self._take_text()

    def next_input(self) -> Tensor | int | None:
        """What to feed now: embeddings `[N, hidden]` (extend), a speech token (decode), or None: wait, or done."""
        if self._phase in (_Phase.WAITING, _Phase.DONE):
            return None
        return self._last_token if self._last_token is not None else self._feed

    @property
    def forced(self) -> int | None:
        """The id to take instead of drawing one: `fill` where a block is complete."""
        due = self._phase is _Phase.DECODING and len(self.history) == self._next_fill
        return self._lm.fill if due else None

    def mask(self, logp: Tensor) -> Tensor:
        """`logp: [vocab]` without the ids that must not be drawn now."""
        stops = self._lm.stop_ids
        if self._compat:
            return mask_ids(logp, range(stops.start, stops.start + 1)) if self._phase is _Phase.DECODING else logp
        meant = self._lm.fill if self._phase is _Phase.DECODING else self._lm.eos
        return mask_ids(mask_ids(logp, range(stops.start, meant)), range(meant + 1, stops.stop))

    def accept(self, token: int) -> int | None:
        """The input was fed and `token` drawn (or forced): the token if it is speech, else None."""
        self.history.append(token)
        if token in self._lm.stop_ids:
            self._accept_special(token)
            return None
        self._last_token = token
        self._spoken += 1
        limit = self._lm.length_limits(self.text_tokens)[1]
        if self._phase is _Phase.FINAL and not self._compat and self._spoken >= limit:
            self._phase = _Phase.DONE
        return token

    def _accept_special(self, token: int) -> None:
        if self._phase is _Phase.DECODING and token == self._lm.fill:
            self._next_fill = len(self.history) + self._speech_block
            stale = [] if self._last_token is None or not self._compat else [self._last_token]
            self._feed = self._lm.embed_speech(stale)
            self._last_token = None
            self._phase = _Phase.WAITING
            self._take_text()
        elif self._phase is _Phase.FINAL and token == self._lm.eos:
            self._phase = _Phase.DONE
        else:
            raise ModelError("model_input_invalid", f"speech id {token} cannot come here")

    def _take_text(self) -> None:
        """Text arrives token by token until there is something to decode, or it is all taken."""
        if self._phase is not _Phase.WAITING:
            return
        while self._arriving:
            self._arrived.append(self._arriving.popleft())
            while self._prompt and len(self._arrived) >= self._text_block:
                self._feed_block(self._prompt[: self._speech_block])
                del self._prompt[: self._speech_block]
            if not self._prompt and self._ready():
                self._phase = _Phase.DECODING
                return
        if self._ended:
            rest = [] if self._compat else self._prompt
            lm = self._lm
            self._feed = torch.cat([self._feed, lm.embed_text(self._arrived), lm.task, lm.embed_speech(rest)])
            self._phase = _Phase.FINAL if self.text_tokens else _Phase.DONE

    def _ready(self) -> bool:
        """Whether a block of speech can be decoded, after feeding it text where it needs that."""
        first = not self.history and (len(self._feed) == 1 if self._compat else not self._blocks)
        if not first and not self.history:
            return True  # the last block of the prompt is to be completed
        if len(self._arrived) < self._text_block:
            return False
        if self.history and self._compat:
            self._feed = self._feed[:0]
        self._feed_block([])
        return True

    def _feed_block(self, speech: Sequence[int]) -> None:
        text = self._arrived[: self._text_block]
        self._feed = torch.cat([self._feed, self._lm.embed_text(text), self._lm.embed_speech(speech)])
        del self._arrived[: self._text_block]
        self._blocks += 1


def _split_prompt(lm: SpeechLM, prompt: list[int], end_of_prompt_id: int) -> tuple[list[int], list[int]]:
    """Version 3 puts the instruction, up to and including the end of the prompt, before all blocks."""
    if lm.version == 2 or end_of_prompt_id not in prompt:
        return [], prompt
    cut = prompt.index(end_of_prompt_id) + 1
    return prompt[:cut], prompt[cut:]
