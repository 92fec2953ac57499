"""Encoded audio decodes to what went in, streamed or whole, by FFmpeg and by libsndfile."""

from __future__ import annotations

import io
import struct
import wave

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from audio.decode import Audio, decode_audio
from audio.encode import FORMATS, Coded, coded_as, encode_whole, make_encoder, to_pcm16
from audio.errors import AudioError
from tests.audio.sounds import syllables, voice_like

EXACT = ("wav", "pcm", "flac")
LOSSY = ("mp3", "opus", "aac")
LENGTHS = [1, 100, 1152, 1153, 24001]
RATES = [8000, 11025, 12345, 16000, 22050, 24000, 44100, 48000]


def stream(audio_format: str, pieces: list[np.ndarray], rate: int = 24000) -> bytes:
    encoder = make_encoder(audio_format, rate)
    return encoder.begin() + b"".join(encoder.feed(piece) for piece in pieces) + encoder.end()


def made(audio_format: str, samples: np.ndarray, rate: int, streamed: bool) -> bytes:
    if streamed:
        return stream(audio_format, np.array_split(samples, 7), rate)
    return encode_whole(audio_format, samples, rate)


def decoded(audio_format: str, data: bytes) -> np.ndarray:
    """[L] int16."""
    if audio_format == "pcm":
        return np.frombuffer(data, "<i2")
    return np.round(decode_audio(data).samples * 32768).astype(np.int16)


@pytest.mark.parametrize("audio_format", EXACT)
@pytest.mark.parametrize("length", LENGTHS)
def test_every_sample_comes_back(audio_format: str, length: int) -> None:
    samples = voice_like(2)[:length]
    expected = to_pcm16(samples)
    pieces = np.array_split(samples, 3)
    np.testing.assert_array_equal(decoded(audio_format, encode_whole(audio_format, samples, 24000)), expected)
    np.testing.assert_array_equal(decoded(audio_format, stream(audio_format, pieces)), expected)


@settings(max_examples=40, deadline=None)
@given(
    audio_format=st.sampled_from(EXACT),
    lengths=st.lists(st.integers(0, 3000), min_size=1, max_size=8).filter(any),
    rate=st.sampled_from(RATES),
)
def test_where_the_stream_is_cut_does_not_matter(audio_format: str, lengths: list[int], rate: int) -> None:
    samples = voice_like(1, 24000)[: sum(lengths)]
    pieces = np.split(samples, np.cumsum(lengths)[:-1])
    np.testing.assert_array_equal(decoded(audio_format, stream(audio_format, pieces, rate)), to_pcm16(samples))


@pytest.mark.parametrize("audio_format", LOSSY)
def test_where_a_compressed_stream_is_cut_does_not_matter(audio_format: str) -> None:
    one, other = (stream(audio_format, np.array_split(syllables(1.5), pieces)) for pieces in (2, 50))
    np.testing.assert_array_equal(decoded(audio_format, one), decoded(audio_format, other))


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("audio_format", [name for name in FORMATS if name != "pcm"])
def test_durations_are_exact_to_60_ms_at_any_rate(audio_format: str, rate: int, streamed: bool) -> None:
    samples = syllables(1.1, rate)[:-77]
    longer = decode_audio(made(audio_format, samples, rate, streamed)).duration - samples.size / rate
    exact = audio_format in ("wav", "flac", "opus") or (audio_format == "mp3" and not streamed)
    assert abs(longer) < 0.001 if exact else 0 <= longer < 0.06


@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("rate", [16000, 24000])
@pytest.mark.parametrize("audio_format", LOSSY)
def test_compressed_speech_is_the_same_speech(audio_format: str, rate: int, streamed: bool) -> None:
    samples = syllables(2, rate)
    heard = at_48_khz(decode_audio(made(audio_format, samples, rate, streamed)))
    said = at_48_khz(decode_audio(encode_whole("wav", samples, rate)))
    said = said[:91200] / np.linalg.norm(said[:91200])
    likeness = [heard[d : d + said.size] @ said / np.linalg.norm(heard[d : d + said.size]) for d in range(0, 2880, 8)]
    assert max(likeness) > 0.99  # within what the coding puts before the sound
    if audio_format == "opus" or (audio_format == "mp3" and not streamed):
        assert np.argmax(likeness) <= 48  # 1 ms: nothing before it


def at_48_khz(audio: Audio) -> np.ndarray:
    """[2.1 s] float32 by linear interpolation, silence at the end."""
    samples = np.interp(np.arange(48000 * 2) / 48000, np.arange(audio.samples.size) / audio.sample_rate, audio.samples)
    return np.pad(samples, (0, 4800)).astype(np.float32)


@pytest.mark.parametrize(
    ("audio_format", "most"), [("wav", 0), ("pcm", 0), ("flac", 0.028), ("opus", 0.05), ("mp3", 0.05), ("aac", 0.05)]
)
def test_audio_leaves_while_it_is_made(audio_format: str, most: float) -> None:
    """`most`: seconds of sound that may be held back after a hop (MP3: two frames)."""
    encoder = make_encoder(audio_format, 24000)
    sent = encoder.begin()
    hops = []
    for second in range(1, 5):
        hops.append(encoder.feed(voice_like(1)))
        sent += hops[-1]
        there = len(decoded("pcm", sent)) / 24000 if audio_format == "pcm" else decode_audio(sent).duration
        assert second - there <= most
    assert min(map(len, hops[1:])) > 0.9 * max(map(len, hops[1:]))


@pytest.mark.parametrize("audio_format", [name for name in FORMATS if name != "pcm"])
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "whole"])
def test_a_response_is_one_container_with_one_mono_stream(audio_format: str, streamed: bool) -> None:
    data = made(audio_format, syllables(1), 24000, streamed)
    start = {"wav": b"RIFF", "flac": b"fLaC", "opus": b"OggS", "mp3": b"\xff\xfb", "aac": b"\xff\xf1"}[audio_format]
    assert data.startswith(start)
    assert data.count(b"OpusHead") == (audio_format == "opus") and data.count(b"RIFF") == (audio_format == "wav")
    with av.open(io.BytesIO(data)) as file:
        (found,) = file.streams
        assert isinstance(found, av.AudioStream)
        assert (found.channels, found.rate) == (1, make_encoder(audio_format, 24000).sample_rate)


@pytest.mark.parametrize("audio_format", ["wav", "flac", "mp3", "opus"])
def test_libsndfile_reads_whole_files_too(audio_format: str) -> None:
    samples, rate = soundfile.read(io.BytesIO(encode_whole(audio_format, syllables(1.5), 24000)))
    assert samples.shape[0] / rate == pytest.approx(1.5, abs=0.06)


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


@pytest.mark.parametrize(
    ("audio_format", "content_type"),
    [
        ("wav", "audio/wav"),
        ("pcm", "audio/pcm;rate=22050;channels=1"),
        ("flac", "audio/flac"),
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg; codecs=opus"),
        ("aac", "audio/aac"),
    ],
)
def test_content_types(audio_format: str, content_type: str) -> None:
    assert coded_as(audio_format, 22050).content_type == content_type
    for rate in (8000, 22050, 24000, 44100, 48000):
        encoder = make_encoder(audio_format, rate)
        assert coded_as(audio_format, rate) == Coded(encoder.content_type, encoder.sample_rate)


def test_pcm_is_rounded_and_saturates() -> None:
    step = 1 / 32768
    samples = np.array([0, step, -step, 0.6 * step, 1.0, -1.0, 1e30, -1e30, 0.99997], np.float32)
    assert to_pcm16(samples).tolist() == [0, 1, -1, 1, 32767, -32768, 32767, -32768, 32767]


@pytest.mark.parametrize("audio_format", LOSSY)
def test_too_loud_audio_is_cut_off_before_it_is_compressed(audio_format: str) -> None:
    loud = 30 * syllables(1, 48000)
    made, expected = (encode_whole(audio_format, samples, 48000) for samples in (loud, np.clip(loud, -1, 1)))
    np.testing.assert_array_equal(decoded(audio_format, made), decoded(audio_format, expected))


@pytest.mark.parametrize("audio_format", FORMATS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nonfinite_audio_is_an_error_and_never_sent(audio_format: str, value: float) -> None:
    samples = voice_like(0.1)
    samples[77] = value
    for encode in (make_encoder(audio_format, 24000).feed, lambda x: encode_whole(audio_format, x, 24000)):
        with pytest.raises(AudioError) as error:
            encode(samples)
        assert error.value.code == "nonfinite_audio"


@pytest.mark.parametrize("audio_format", ["vorbis", "WAV", "", "mp4"])
def test_a_format_we_lack_is_an_error_that_lists_ours(audio_format: str) -> None:
    with pytest.raises(AudioError, match="wav, pcm, mp3, opus, flac, aac") as error:
        make_encoder(audio_format, 24000)
    with pytest.raises(AudioError):
        coded_as(audio_format, 24000)
    assert error.value.code == "unsupported_format"
