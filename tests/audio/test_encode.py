"""Encoded audio decodes to the samples that went in, streamed or whole."""

from __future__ import annotations

import io
import struct
import wave

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.decode import decode_audio
from audio.encode import FORMATS, encode_whole, make_encoder, to_pcm16
from audio.errors import AudioError
from tests.audio.sounds import voice_like

LENGTHS = [1, 100, 1152, 1153, 24001]


def stream(audio_format: str, pieces: list[np.ndarray], rate: int = 24000) -> bytes:
    encoder = make_encoder(audio_format, rate)
    return encoder.begin() + b"".join(encoder.feed(piece) for piece in pieces) + encoder.end()


def decoded(audio_format: str, data: bytes) -> np.ndarray:
    """[L] int16, by libsndfile."""
    if audio_format == "pcm":
        return np.frombuffer(data, "<i2")
    return np.round(decode_audio(data).samples * 32768).astype(np.int16)


@pytest.mark.parametrize("audio_format", FORMATS)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_sample_comes_back(audio_format: str, length: int) -> None:
    samples = voice_like(2)[:length]
    expected = to_pcm16(samples)
    pieces = np.array_split(samples, 3)
    np.testing.assert_array_equal(decoded(audio_format, encode_whole(audio_format, samples, 24000)), expected)
    np.testing.assert_array_equal(decoded(audio_format, stream(audio_format, pieces)), expected)


@settings(max_examples=40, deadline=None)
@given(
    audio_format=st.sampled_from(FORMATS),
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=8).filter(any),
    rate=st.sampled_from([16000, 22050, 24000, 48000]),
)
def test_where_the_stream_is_cut_does_not_matter(audio_format: str, lengths: list[int], rate: int) -> None:
    samples = voice_like(1, 24000)[: sum(lengths)]
    pieces = np.split(samples, np.cumsum(lengths)[:-1])
    np.testing.assert_array_equal(decoded(audio_format, stream(audio_format, pieces, rate)), to_pcm16(samples))


@pytest.mark.parametrize("audio_format", FORMATS)
def test_audio_leaves_while_it_is_made(audio_format: str) -> None:
    encoder = make_encoder(audio_format, 24000)
    sent = encoder.begin()
    for second in range(1, 5):
        sent += encoder.feed(voice_like(1))
        held_back = second * 24000 - len(decoded(audio_format, sent))
        assert 0 <= held_back <= 1153  # at most one FLAC block: 48 ms


def test_a_whole_wav_declares_its_exact_length() -> None:
    data = encode_whole("wav", voice_like(1.5), 24000)
    riff, data_size = struct.unpack_from("<I", data, 4)[0], struct.unpack_from("<I", data, 40)[0]
    assert (riff, data_size, len(data)) == (len(data) - 8, 72000, 72044)
    with wave.open(io.BytesIO(data)) as file:
        assert file.getparams()[:4] == (1, 2, 24000, 36000)


def test_a_streamed_wav_leaves_its_length_open_and_plays() -> None:
    data = stream("wav", [voice_like(1), voice_like(0.5)])
    assert data[4:8] == data[40:44] == b"\xff\xff\xff\xff"
    assert soundfile.read(io.BytesIO(data))[0].shape == (36000,)
    with wave.open(io.BytesIO(data)) as file:
        assert len(file.readframes(file.getnframes())) == 72000


def test_a_whole_flac_declares_its_exact_length() -> None:
    info = soundfile.info(io.BytesIO(encode_whole("flac", voice_like(1.5), 24000)))
    assert (info.frames, info.samplerate, info.channels, info.subtype) == (36000, 24000, 1, "PCM_16")


def test_a_streamed_flac_leaves_length_and_checksum_open() -> None:
    data = stream("flac", [voice_like(1)])
    assert data[:4] == b"fLaC"
    stream_info = data[8:42]
    total_samples = int.from_bytes(stream_info[13:18], "big") & (2**36 - 1)
    assert total_samples == 0 and stream_info[18:] == bytes(16)


def test_an_abandoned_flac_stream_can_be_dropped() -> None:
    for _ in range(20):
        make_encoder("flac", 24000).feed(voice_like(0.2))


@pytest.mark.parametrize(
    ("audio_format", "content_type"),
    [("wav", "audio/wav"), ("pcm", "audio/pcm;rate=22050;channels=1"), ("flac", "audio/flac")],
)
def test_content_types(audio_format: str, content_type: str) -> None:
    assert make_encoder(audio_format, 22050).content_type == content_type


def test_pcm_is_rounded_and_saturates() -> None:
    step = 1 / 32768
    samples = np.array([0, step, -step, 0.6 * step, 1.0, -1.0, 1e30, -1e30, 0.99997], np.float32)
    assert to_pcm16(samples).tolist() == [0, 1, -1, 1, 32767, -32768, 32767, -32768, 32767]


@pytest.mark.parametrize("audio_format", FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_audio_is_an_error_and_never_sent(audio_format: str, value: float) -> None:
    samples = voice_like(0.1)
    samples[77] = value
    for encode in (make_encoder(audio_format, 24000).feed, lambda x: encode_whole(audio_format, x, 24000)):
        with pytest.raises(AudioError) as error:
            encode(samples)
        assert error.value.code == "nonfinite_audio"


@pytest.mark.parametrize("audio_format", ["mp3", "WAV", "", "opus"])
def test_a_format_we_lack_is_an_error_that_lists_ours(audio_format: str) -> None:
    with pytest.raises(AudioError, match="wav, pcm, flac") as error:
        make_encoder(audio_format, 24000)
    assert error.value.code == "unsupported_format"
