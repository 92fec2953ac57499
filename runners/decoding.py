"""The language model's side of the engine: who has a slot, and the steps that fill their tokens.

Steps compute on the device's thread; everything else is for the event loop. Who is live changes only between steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

import torch

from models.cosyvoice import CosyVoice
from models.decode_graphs import DecodeGraphs
from models.device import to_host
from models.sampling import Draw, ids_below_min_length, ras_sample_batch
from runners.intake import expected_tokens
from runners.request import INCREMENTAL_TOKENS
from runners.sequence import Job, Sampler, Utterance
from runners.stages import DECODE, PREFILL
from runners.step import Step

logger = logging.getLogger("cosyserve.engine")

_KEPT_POSITIONS = 1024  # of each slot's storage at least: one long text does not hold its memory for ever


class Decoder:
    """`slots` utterances are decoded together. `ended` is called with each that has left its slot with all its tokens,
    `failed` with a job and what went wrong with it alone."""

    def __init__(
        self,
        model: CosyVoice,
        slots: int,
        ended: Callable[[Utterance], None],
        failed: Callable[[Job, Exception], None],
        *,
        sampler: Sampler | None = None,
        cuda_graphs: bool = False,
        upstream_compat: bool = False,
    ) -> None:
        self.live: list[Utterance] = []  # in the order of their slots in the cache
        self.steps = 0  # decode steps so far
        self.sampler: Sampler = sampler or self._ras
        self.cache = model.lm.new_cache(slots)
        self._model, self._slots = model, slots
        self._ended, self._failed = ended, failed
        self._graphs = DecodeGraphs(model.lm, self.cache) if cuda_graphs else None
        self._below_minimum = ids_below_min_length(model.lm, upstream_compat=upstream_compat)
        self._freed: list[int] = []  # slots that the cache still holds
        self._longest = 0  # positions of a sequence since nobody was live

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        return self._slots - len(self.live)

    @property
    def bytes(self) -> int:
        """Of the keys and values of all live utterances."""
        return sum(self.cache.lengths) * self._position_bytes if self.live else 0  # who left goes at the next step

    def bytes_of(self, utterance: Utterance) -> int:
        """Which its keys and values may come to."""
        if utterance.decoded:
            return 0
        coming = 0 if utterance.bistream is None else INCREMENTAL_TOKENS
        positions = len(utterance.text_ids) + coming + len(utterance.job.lm_prompt_tokens) + expected_tokens(utterance)
        return positions * self._position_bytes

    def next_step(self, newcomer: Callable[[], Utterance | None]) -> Step | None:
        """The text of an utterance that has arrived, or of a newcomer; otherwise a token for all who can have one."""
        starting = next((one for one in self.live if one.extends), None) or newcomer()
        if starting is not None:
            return self._prefill(starting)
        return None if all(one.text_wanted for one in self.live) else self._decode()

    def settle(self) -> None:
        """To be called on the device's thread before a step: what has left gives its place in the cache back."""
        self._longest = max(self._longest, *self.cache.lengths, 0)
        while self._freed:
            self.cache.remove(self._freed.pop(0))
        if not self.cache.n:
            try:
                self.cache.shrink(max(_KEPT_POSITIONS, self._longest))
            except RuntimeError:  # there is no room for the smaller storage beside the larger one
                logger.exception("the key-value cache stays as large as it is")
            self._longest = 0

    def leave(self, utterance: Utterance) -> None:
        """Give the slot back. The last live utterance moves into it here, and in the cache before the next step."""
        slot = utterance.slot
        if slot is None:
            return
        self._freed.append(slot)
        last = self.live.pop()
        if last is not utterance:
            self.live[slot] = last
            last.slot = slot
        utterance.slot = None

    # -- steps -----------------------------------------------------------------------------------------------------

    def _prefill(self, utterance: Utterance) -> Step:
        """Of an utterance that begins, or, in its slot, of one whose next text is there."""
        held, lm = utterance.slot, self._model.lm
        arrived = None if utterance.bistream is None else utterance.bistream.next_input()

        def compute() -> int:
            slot = self.cache.add() if held is None else held
            try:
                if isinstance(arrived, torch.Tensor):
                    lm_input = arrived
                else:
                    lm_input = lm.build_input(utterance.text_ids, utterance.job.lm_prompt_tokens)
                (logp,) = to_host([lm.extend(self.cache, slot, lm_input)])  # sampling draws from CPU generators
                (token,) = self._sample([utterance], logp[None])
                if isinstance(token, Exception):
                    raise token
                return token
            except Exception:
                if held is None:
                    self.cache.remove(slot)
                raise

        def apply(token: int) -> None:
            if held is None:
                utterance.slot, utterance.live_at = len(self.live), time.monotonic()
                self.live.append(utterance)
            self._accept(utterance, token)

        return Step(compute, apply, utterance.job, (utterance.job,), PREFILL)

    def _decode(self) -> Step:
        waiting = [slot for slot, one in enumerate(self.live) if one.text_wanted]
        utterances = [one for one in self.live if not one.text_wanted]
        rows = 1 + max(one.slot for one in utterances if one.slot is not None)
        # A batch is the first so many slots: one that waits among them is decoded in vain, and its length stays.
        fed = [one.history[-1] if one.history else 0 for one in self.live[:rows]]

        def compute() -> list[int | Exception]:
            last = torch.tensor(fed)
            logp = self._graphs.decode(last) if self._graphs else self._model.lm.decode(self.cache, last)
            advanced = set(range(rows))
            try:
                for slot in waiting:
                    if slot in advanced:
                        self.cache.take_back(slot)
                        advanced.remove(slot)
                (logp,) = to_host([logp])
                return self._sample(utterances, logp[sorted(advanced)] if len(advanced) < rows else logp)
            except Exception:  # nobody has a token: the same ones are fed again
                for slot in advanced:
                    self.cache.take_back(slot)
                raise

        def apply(tokens: list[int | Exception]) -> None:
            self.steps += 1
            for utterance, token in zip(utterances, tokens, strict=True):
                try:
                    if isinstance(token, Exception):
                        raise token
                    self._accept(utterance, token)
                except Exception as error:  # its neighbours have their tokens
                    self._failed(utterance.job, error)

        # A decode step that fails as a whole (out of memory) ends the request that joined last.
        newest = max(utterances, key=lambda utterance: utterance.job.submitted_at)
        return Step(compute, apply, newest.job, [utterance.job for utterance in utterances], DECODE)

    # -- tokens ----------------------------------------------------------------------------------------------------

    def _sample(self, utterances: list[Utterance], logp: torch.Tensor) -> list[int | Exception]:
        """Of each row of `[B, vocab]` the next token, or what went wrong with that utterance."""
        if any(one.bistream is not None for one in utterances):
            return self._sample_bistream(utterances, logp)
        return self._draw(utterances, logp)

    def _sample_bistream(self, utterances: list[Utterance], logp: torch.Tensor) -> list[int | Exception]:
        """As `_sample`, where the format of text and speech by turns forces some ids and forbids others."""
        tokens: list[int | Exception | None] = [
            None if one.bistream is None else one.bistream.forced for one in utterances
        ]
        free = [index for index, token in enumerate(tokens) if token is None]
        if free:
            bistreams = [utterances[index].bistream for index in free]
            rows = [logp[i] if one is None else one.mask(logp[i]) for i, one in zip(free, bistreams, strict=True)]
            drawn = self._draw([utterances[index] for index in free], torch.stack(rows))
            for index, token in zip(free, drawn, strict=True):
                tokens[index] = token
        return tokens  # type: ignore[return-value]

    def _draw(self, utterances: list[Utterance], logp: torch.Tensor) -> list[int | Exception]:
        draws = [
            Draw(
                one.drawn,
                one.generator,
                self._below_minimum if len(one.history) < one.min_tokens else range(0),
                one.sampling,
                1.0 if (wanted := one.job.request.sampling.temperature) is None else wanted,
            )
            for one in utterances
        ]
        return self.sampler(logp, draws)

    def _ras(self, logp: torch.Tensor, draws: Sequence[Draw]) -> list[int | Exception]:
        return ras_sample_batch(logp, draws, self._model.config.sampling)

    def _accept(self, utterance: Utterance, token: int) -> None:
        bistream = utterance.bistream
        if bistream is not None:
            with torch.inference_mode():
                speech = bistream.accept(token)
            if speech is not None:
                utterance.accept(speech)
            utterance.decoded |= bistream.done
            utterance.truncated |= bistream.cut
        elif token in self._model.lm.stop_ids:
            utterance.decoded = True
        else:
            utterance.accept(token)
        if utterance.decoded:
            self._ended(utterance)

    @property
    def _position_bytes(self) -> int:
        """Of one position of a sequence in the key-value cache."""
        config = self._model.lm.backbone.config
        return 2 * config.layers * config.kv_heads * config.head_dim * self.cache.keys[0].element_size()
