"""Any bytes in: audio or an error with a code and a sentence, never anything else."""

from __future__ import annotations

import base64
import pickle
import struct
import time
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audio import containers
from audio.decode import MAX_BYTES, Audio, check_reference, decode_audio, decode_reference, parse_data_url
from audio.encode import FORMATS, make_encoder
from audio.errors import AudioError
from audio.recording import sound_seconds
from audio.resample import resample
from tests.audio.sounds import muxed, sound_file, syllables, voice_like, wav_with

CODES = {
    "ref_audio_invalid",
    "ref_audio_too_large",
    "ref_audio_too_long",
    "ref_audio_too_short",
    "ref_audio_sample_rate",
    "ref_audio_silent",
    "ref_audio_clipped",
}
CODINGS = [
    ("WAV", "PCM_U8", 1e-2),
    ("WAV", "PCM_16", 1e-4),
    ("WAV", "PCM_24", 1e-6),
    ("WAV", "PCM_32", 1e-6),
    ("WAV", "FLOAT", 1e-7),
    ("WAV", "DOUBLE", 1e-7),
    ("WAV", "ULAW", 2e-2),
    ("WAVEX", "PCM_16", 1e-4),
    ("RF64", "PCM_16", 1e-4),
    ("AIFF", "PCM_16", 1e-4),
    ("FLAC", "PCM_16", 1e-4),
    ("FLAC", "PCM_24", 1e-6),
]
LOSSY = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]
FRAGMENTED = (("movflags", "frag_keyframe+empty_moov"),)
MUXED = [
    ("ipod", "aac", ()),
    ("ipod", "alac", ()),
    ("mp4", "aac", FRAGMENTED),
    ("webm", "libopus", ()),
    ("adts", "aac", ()),
]


def refusal(data: bytes) -> str:
    """The code with which an upload is refused."""
    with pytest.raises(AudioError) as error:
        decode_reference(data)
    assert error.value.code in CODES
    assert error.value.message.endswith(".") and str(error.value) == error.value.message
    return error.value.code


@pytest.mark.parametrize(("container", "coding", "tolerance"), CODINGS)
def test_lossless_codings(container: str, coding: str, tolerance: float) -> None:
    samples = voice_like(1.25)
    audio = decode_reference(sound_file(samples, 24000, container, coding))
    assert (audio.sample_rate, audio.samples.dtype, audio.duration) == (24000, np.float32, 1.25)
    np.testing.assert_allclose(audio.samples, samples, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "data",
    [sound_file(voice_like(2, 48000), 48000, container, coding) for container, coding in LOSSY]
    + [muxed(voice_like(2, 48000), 48000, *kind) for kind in MUXED],
    ids=[coding for _, coding in LOSSY] + [f"{container}+{codec}" for container, codec, _ in MUXED],
)
def test_what_people_record_with(data: bytes) -> None:
    audio = decode_reference(data)
    assert audio.sample_rate == 48000 and audio.duration == pytest.approx(2, abs=0.06)
    assert audio.samples.std() == pytest.approx(voice_like(2, 48000).std(), rel=0.1)


@pytest.mark.parametrize("channels", [2, 6, 8])
def test_channels_are_averaged(channels: int) -> None:
    samples = np.random.default_rng(0).uniform(-0.5, 0.5, (30000, channels)).astype(np.float32)
    audio = decode_audio(sound_file(samples, 24000, coding="FLOAT"))
    np.testing.assert_allclose(audio.samples, samples.mean(axis=1), rtol=0, atol=1e-6)


def test_more_than_eight_channels_are_refused() -> None:
    assert refusal(wav_with(bytes(16000 * 2 * 9), channels=9)) == "ref_audio_invalid"


@pytest.mark.parametrize("channels", [1, 2])
def test_the_left_and_the_right_of_a_compressed_recording_are_averaged(channels: int) -> None:
    left = voice_like(2, 48000)
    sides = np.stack([left, -left / 2])[:channels]
    audio = decode_reference(muxed(sides, 48000, "ipod", "alac"))
    np.testing.assert_allclose(audio.samples, sides.mean(axis=0), rtol=0, atol=1e-4)


@pytest.mark.parametrize("audio_format", [name for name in FORMATS if name != "pcm"])
def test_what_we_stream_can_be_uploaded_again(audio_format: str) -> None:
    encoder = make_encoder(audio_format, 24000)
    data = encoder.begin() + encoder.feed(voice_like(2)) + encoder.end()
    assert decode_reference(data).duration == pytest.approx(2, abs=0.06)


@pytest.mark.parametrize("size", [0, 5, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_false_declared_size_does_no_harm(size: int) -> None:
    data = wav_with((voice_like(2, 16000) * 32767).astype("<i2").tobytes(), size=size)
    try:
        assert decode_audio(data).samples.size <= 32000
    except AudioError as error:
        assert error.code in CODES


def test_a_truncated_wav_gives_what_is_there() -> None:
    data = sound_file(voice_like(2), 24000)
    assert decode_reference(data[: 44 + 60000]).samples.size == 30000


@pytest.mark.parametrize(
    "kind", [("mp3", "libmp3lame"), ("flac", "flac"), ("ogg", "libopus"), ("adts", "aac"), ("webm", "libopus")]
)
def test_an_interrupted_upload_gives_what_is_there(kind: tuple[str, str]) -> None:
    data = muxed(voice_like(4, 48000), 48000, *kind)
    assert decode_audio(data[: len(data) * 3 // 4]).duration == pytest.approx(2.5, abs=0.6)  # Ogg pages hold a second


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"hello, this is no audio at all",
        b"RIFF\xff\xff\xff\xffWAVE",
        b"fLaC" + bytes(100),
        b"OggS" + bytes(1000),
        b"ID3" + bytes(1000),
        b"\xff\xfb" + bytes(1000),
        b"\x00\x00\x00\x1cftypM4A " + bytes(1000),
        b"\x1aE\xdf\xa3" + bytes(1000),
        b"\xff\xf1" + bytes(1000),
        wav_with(b""),
        wav_with(bytes(1000), channels=0),
        wav_with(bytes(1000), rate=0),
        wav_with(bytes(1000), bits=0),
        wav_with(bytes(1000), coding=0x1234),
    ],
)
def test_what_is_no_audio_is_invalid(data: bytes) -> None:
    assert refusal(data) == "ref_audio_invalid"


@pytest.mark.parametrize("header", [b".snd" + bytes(60), b"RIFF\0\0\0\0AVI " + bytes(60), b"caff" + bytes(60)])
def test_containers_that_nobody_records_voices_in_are_not_even_parsed(header: bytes) -> None:
    assert refusal(header) == "ref_audio_invalid"


def test_a_file_cannot_name_other_files(tmp_path: Path) -> None:
    other = tmp_path / "other.wav"
    other.write_bytes(sound_file(voice_like(2), 24000))
    for text in (f"ffconcat version 1.0\nfile '{other}'\n", f"#EXTM3U\n#EXTINF:2,\n{other}\n", str(other)):
        for start in ("", "ID3", "RIFF\0\0\0\0WAVE"):
            assert refusal((start + text).encode()) == "ref_audio_invalid"


def test_a_video_is_no_recording() -> None:
    assert refusal(muxed(np.zeros(0, np.float32), 48000, "webm", "libvpx")) == "ref_audio_invalid"


@pytest.mark.parametrize(("options", "table", "count"), [((), b"stsz", 12), (FRAGMENTED, b"trun", 8)])
def test_a_table_of_samples_that_are_not_there_is_refused_before_it_is_built(
    options: tuple[tuple[str, str], ...], table: bytes, count: int
) -> None:
    data = bytearray(muxed(voice_like(2, 48000), 48000, "mp4", "aac", options))
    at = data.index(table) + count
    data[at : at + 4] = (10**7).to_bytes(4, "big")  # 400 MB, were it built
    with pytest.raises(AudioError, match="more than 100,000 packets"):
        decode_reference(bytes(data))


Box = tuple[bytes, "bytes | list[Box]"]
PARENTS = {b"moov", b"trak", b"mdia", b"minf", b"stbl"}


def boxes(data: bytes) -> list[Box]:
    found: list[Box] = []
    while data:
        size, name = int.from_bytes(data[:4], "big"), data[4:8]
        found.append((name, boxes(data[8:size]) if name in PARENTS else data[8:size]))
        data = data[size:]
    return found


def boxed(found: list[Box], changes: dict[bytes, list[Box]]) -> bytes:
    """The bytes of boxes, those named in `changes` replaced."""
    written = b""
    for box in found:
        for name, content in changes.get(box[0], [box]):
            inside = boxed(content, changes) if isinstance(content, list) else content
            written += struct.pack(">I", len(inside) + 8) + name + inside
    return written


PACKETS = 200_000
SIZES = struct.pack(">III", 0, 1, PACKETS)
HIDDEN: dict[str, dict[bytes, list[Box]]] = {
    "behind_half_a_table": {b"stsz": [(b"free", b"trun\0\0\0"), (b"stsz", SIZES)]},
    "compact": {b"stsz": [(b"stz2", struct.pack(">III", 0, 4, PACKETS) + b"\x11" * (PACKETS // 2))]},
    "compressed": {b"stsz": [(b"stsz", SIZES)]},
}


@pytest.mark.parametrize("hiding", HIDDEN)
def test_a_table_of_samples_is_found_wherever_it_hides(hiding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = boxes(muxed(voice_like(2, 48000), 48000, "ipod", "aac"))
    chunks: list[Box] = [(b"stsc", struct.pack(">IIIII", 0, 1, 1, PACKETS, 1))]
    changes = {b"stsc": chunks, **HIDDEN[hiding]}
    if hiding == "compressed":
        header = boxed([box for box in file if box[0] == b"moov"], changes)
        packed = (b"cmvd", struct.pack(">I", len(header)) + zlib.compress(header))
        changes = {b"moov": [(b"moov", boxed([(b"cmov", boxed([(b"dcom", b"zlib"), packed], {}))], {}))]}
    data = boxed(file, changes)
    monkeypatch.delattr(containers.av, "open")  # what builds the table
    with pytest.raises(AudioError, match=r"compressed header|more than 100,000 packets"):
        decode_reference(data)


def element(number: str, content: bytes) -> bytes:
    """One of Matroska's."""
    return bytes.fromhex(number) + (1 << 56 | len(content)).to_bytes(8, "big") + content


def matroska(packet: bytes, count: int) -> bytes:
    """`count` packets of 16-bit PCM, each compressed."""
    zipped = element("6d80", element("6240", element("5033", b"\0") + element("5034", element("4254", b"\0"))))
    sound = element("e1", element("b5", struct.pack(">d", 16000.0)) + element("6264", b"\x10"))
    names = element("d7", b"\1") + element("83", b"\2") + element("86", b"A_PCM/INT/LIT")
    track = element("1654ae6b", element("ae", names + sound + zipped))
    block = element("a3", b"\x81\0\0\x80" + zlib.compress(packet, 9))
    head = element("1a45dfa3", element("4282", b"matroska"))
    cluster = element("1f43b675", element("e7", b"\0") + count * block)
    return head + element("18538067", track + cluster)


@pytest.mark.parametrize(("size", "reason"), [(9_900_000, "packet of over"), (2_000_000, "damaged: 21 of 21")])
def test_packets_that_unpack_to_much_are_refused_at_the_first_ones(size: int, reason: str) -> None:
    data = matroska(bytes(size), 150)
    assert len(data) < 2e6
    began = time.thread_time()
    with pytest.raises(AudioError, match=reason):
        decode_reference(data)
    assert time.thread_time() - began < 1


def test_decoding_takes_only_so_much_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sound_file(voice_like(20), 24000, "FLAC")
    monkeypatch.setattr(containers, "_MAX_CPU_SECONDS", 0.002)
    with pytest.raises(AudioError) as error:
        decode_reference(data)
    assert error.value.code == "ref_audio_invalid"


@pytest.mark.parametrize("channels", [1, 2])
def test_sound_is_resampled_while_it_is_decoded(channels: int) -> None:
    samples = np.tile(syllables(3, 96_000)[:, None], channels)
    data = sound_file(samples, 96_000, "FLAC")
    tracemalloc.start()
    audio = decode_audio(data, max_rate=24_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (audio.sample_rate, audio.duration) == (24_000, pytest.approx(3, abs=0.001))
    assert peak < samples.size // channels * 4  # less than all of it at its own rate
    np.testing.assert_allclose(audio.samples[:72_000], resample(samples[:, 0], 96_000, 24_000), rtol=0, atol=5e-3)
    assert decode_audio(data, max_rate=192_000).sample_rate == 96_000


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("coding", ["FLOAT", "DOUBLE"])
def test_nonfinite_samples_are_invalid(value: float, coding: str) -> None:
    samples = voice_like(2)
    samples[-1] = value
    assert refusal(sound_file(samples, 24000, coding=coding)) == "ref_audio_invalid"


def test_doubles_beyond_float32_are_invalid() -> None:
    samples = voice_like(2).astype(np.float64)
    samples[7] = 1e300
    assert refusal(sound_file(samples, 24000, coding="DOUBLE")) == "ref_audio_invalid"


def test_float_files_scaled_as_integers_are_invalid() -> None:
    assert refusal(sound_file(voice_like(2) * 32768, 24000, coding="FLOAT")) == "ref_audio_invalid"


@pytest.mark.parametrize(
    ("seconds", "rate", "code"),
    [
        (0.2, 24000, "ref_audio_too_short"),
        (0.99, 24000, "ref_audio_too_short"),
        (31, 16000, "ref_audio_too_long"),
        (30.01, 16000, "ref_audio_too_long"),
        (3, 8000, "ref_audio_sample_rate"),
        (3, 15999, "ref_audio_sample_rate"),
        (3, 192001, "ref_audio_sample_rate"),
    ],
)
def test_limits(seconds: float, rate: int, code: str) -> None:
    assert refusal(sound_file(voice_like(seconds, rate), rate)) == code


@pytest.mark.parametrize(("seconds", "rate"), [(1, 16000), (30, 16000), (1, 192000)])
def test_the_limits_themselves_are_accepted(seconds: float, rate: int) -> None:
    assert decode_reference(sound_file(voice_like(seconds, rate), rate)).duration == seconds


def test_a_length_that_the_header_leaves_open_is_counted() -> None:
    encoder = make_encoder("flac", 16000)
    data = encoder.begin() + encoder.feed(voice_like(31, 16000)) + encoder.end()
    assert refusal(data) == "ref_audio_too_long"


def test_more_than_ten_mebibytes_are_too_large() -> None:
    assert refusal(bytes(MAX_BYTES + 1)) == "ref_audio_too_large"


def test_a_long_recording_packed_small_is_refused_within_bounds() -> None:
    data = muxed(np.zeros(24000 * 600, np.float32), 24000, "flac", "flac")
    assert len(data) < 1e6  # 58 MB decoded
    tracemalloc.start()
    assert refusal(data) == "ref_audio_too_long"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


@pytest.mark.parametrize(("gain", "share"), [(1, None), (6, "39.[0-9]%")])
@pytest.mark.parametrize("level", [1.0, 0.25])
def test_clipping_is_measured_wherever_the_ceiling_is(gain: float, share: str | None, level: float) -> None:
    loud = level * np.clip(gain * syllables(3) / np.abs(syllables(3)).max(), -1, 0.99997)
    data = sound_file(loud.astype(np.float32), 24000)
    if share is None:
        decode_reference(data)
        return
    with pytest.raises(AudioError, match=share) as error:
        decode_reference(data)
    assert error.value.code == "ref_audio_clipped"


# --- trimming ------------------------------------------------------------------------------------------------


def test_trimming_takes_the_silence_off_both_ends() -> None:
    room = np.random.default_rng(1).normal(0, 2e-4, 24000 * 40).astype(np.float32)
    room[24000 * 34 : 24000 * 36] += syllables(2)
    audio = decode_reference(sound_file(room, 24000), trim=True)
    assert audio.duration == pytest.approx(2.2, abs=0.1)
    np.testing.assert_allclose(audio.samples[2400:-2400].std(), syllables(2).std(), rtol=0.1)


def test_trimming_ends_at_a_pause_before_the_limit() -> None:
    phrases = [piece for _ in range(12) for piece in (syllables(4.6), np.zeros(9600, np.float32))]
    samples = np.concatenate(phrases)  # pauses of 0.4 s after each 5 s
    audio = decode_reference(sound_file(samples, 24000), trim=True)
    assert audio.duration == pytest.approx(29.8, abs=0.15)
    np.testing.assert_allclose(audio.samples, samples[: audio.samples.size], rtol=0, atol=1e-4)
    assert refusal(sound_file(samples, 24000)) == "ref_audio_too_long"


@pytest.mark.parametrize("seconds", [31, 125])
def test_what_a_transcript_speaks_of_is_not_cut(seconds: int) -> None:
    quiet = np.zeros(16000 * 5, np.float32)
    long = sound_file(np.concatenate([quiet, voice_like(seconds, 16000), quiet]), 16000)
    with pytest.raises(AudioError, match="transcript") as error:
        decode_reference(long, trim=True, transcribed=True)
    assert error.value.code == "ref_audio_too_long"
    short = sound_file(np.concatenate([quiet, voice_like(28, 16000), quiet]), 16000)
    assert decode_reference(short, trim=True, transcribed=True).duration == pytest.approx(28.2, abs=0.1)


def test_trimming_speech_without_pauses_keeps_the_limit() -> None:
    assert 20 <= decode_reference(sound_file(voice_like(60, 16000), 16000), trim=True).duration <= 30


@pytest.mark.parametrize(
    ("samples", "code"),
    [
        (np.zeros(24000 * 40, np.float32), "ref_audio_silent"),
        (
            np.concatenate([np.zeros(48000, np.float32), voice_like(0.5), np.zeros(48000, np.float32)]),
            "ref_audio_too_short",
        ),
    ],
)
def test_what_is_left_after_trimming_is_checked(samples: np.ndarray, code: str) -> None:
    with pytest.raises(AudioError) as error:
        decode_reference(sound_file(samples, 24000), trim=True)
    assert error.value.code == code


@pytest.mark.parametrize(
    "samples",
    [
        np.zeros(48000),
        np.full(48000, 0.5),  # a constant offset
        np.random.default_rng(0).normal(0, 3e-4, 48000),  # -70 dBFS: a quiet room
        np.eye(1, 48000, 24000)[0],  # one click
    ],
    ids=["zeros", "offset", "room", "click"],
)
def test_silence_is_refused(samples: np.ndarray) -> None:
    assert refusal(sound_file(samples, 24000, coding="FLOAT")) == "ref_audio_silent"


def test_quiet_speech_and_speech_in_a_long_pause_pass() -> None:
    decode_reference(sound_file(voice_like(2, level=0.005), 24000, coding="PCM_24"))
    paused = np.concatenate([np.zeros(24000 * 20, np.float32), voice_like(0.5)])
    decode_reference(sound_file(paused, 24000))


def test_sound_is_counted_in_seconds() -> None:
    samples = np.concatenate([voice_like(0.5), np.zeros(24000, np.float32), voice_like(0.25)])
    assert sound_seconds(Audio(samples, 24000)) == pytest.approx(0.75, abs=0.03)
    assert sound_seconds(Audio(np.ones(10, np.float32), 24000)) == 0


def test_checks_hold_for_audio_that_was_not_decoded_here() -> None:
    for samples, code in [
        (np.full(24000, np.nan, np.float32), "ref_audio_invalid"),
        (voice_like(31), "ref_audio_too_long"),
    ]:
        with pytest.raises(AudioError) as error:
            check_reference(Audio(samples, 24000))
        assert error.value.code == code


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(AudioError("ref_audio_silent", "The reference audio is silent.")))
    assert (error.code, error.message) == ("ref_audio_silent", "The reference audio is silent.")


# --- fuzzing -------------------------------------------------------------------------------------------------

SEEDS = [
    sound_file(voice_like(1.1, 16000), 16000, container, coding)
    for container, coding in [(c, k) for c, k, _ in CODINGS] + LOSSY
] + [muxed(voice_like(1.1, 48000), 48000, *kind) for kind in MUXED]
STARTS = [
    *(b"", b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEfmt ", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b"FORM\0\0\0\0AIFF"),
    *(b"\0\0\0\x1cftypM4A ", b"\x1aE\xdf\xa3", b"\xff\xf1"),
]


def assert_audio_or_error(data: bytes) -> None:
    try:
        audio = decode_reference(data)
    except AudioError as error:
        assert error.code in CODES and error.message.endswith(".")
    else:
        assert audio.samples.ndim == 1 and audio.samples.dtype == np.float32
        assert np.isfinite(audio.samples).all() and 1 <= audio.duration <= 30


@settings(max_examples=150, deadline=None)
@given(start=st.sampled_from(STARTS), rest=st.binary(max_size=400))
def test_random_bytes(start: bytes, rest: bytes) -> None:
    assert_audio_or_error(start + rest)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    changes=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 255)), max_size=20),
    in_header=st.booleans(),
    kept=st.floats(0, 1),
)
def test_damaged_files(seed: bytes, changes: list[tuple[int, int]], in_header: bool, kept: float) -> None:
    data = bytearray(seed[: int(len(seed) * kept)] if kept < 0.5 else seed)
    for position, value in changes:
        if data:
            data[position % (min(len(data), 80) if in_header else len(data))] = value
    assert_audio_or_error(bytes(data))


# --- data URLs -----------------------------------------------------------------------------------------------


def data_url(payload: bytes, header: str = "data:audio/wav;base64,") -> str:
    return header + base64.b64encode(payload).decode()


@pytest.mark.parametrize(
    "header",
    [
        "data:audio/wav;base64,",
        "data:audio/x-wav;base64,",
        "data:audio/vnd.wave;base64,",
        "data:audio/ogg;codecs=opus;base64,",
        'data:audio/ogg;codecs="opus";base64,',
        "DATA:Audio/MPEG;BASE64,",
        "data:application/octet-stream;base64,",
    ],
)
def test_data_urls_give_their_bytes(header: str) -> None:
    assert parse_data_url(data_url(b"\x00\x01\xff", header)) == b"\x00\x01\xff"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a.wav",
        "https://169.254.169.254/latest/meta-data",
        "HTTPS://example.org/a.wav",
        "file:///etc/passwd",
        "  http://example.org/a.wav",
        "//example.org/a.wav",
        "s3://bucket/key",
        "ftp://example.org/a.wav",
        "blob:https://example.org/1",
    ],
)
def test_links_are_never_fetched(url: str) -> None:
    with pytest.raises(AudioError) as error:
        parse_data_url(url)
    assert error.value.code == "ref_audio_url_not_allowed"
    assert "COSYSERVE_REF_HOSTS" in error.value.message


@pytest.mark.parametrize(
    "url",
    [
        "",
        "AAAA",
        "/etc/passwd",
        "data:",
        "data:audio/wav,AAAA",
        "data:audio/wav;base64",
        "data:audio/wav;base64,",
        "data:audio/wav;base64,AAA",
        "data:audio/wav;base64,A A A A",
        "data:audio/wav;base64,AAAA\n",
        "data:audio/wav;base64,AA==AAAA",
        "data:audio/wav;base64,ÄÖÜß",
        "data:audio/wav;base64,__--",
        "data:audio/wav;base64,AAAA%3D",
        "data:text/html;base64,AAAA",
        "data:audio/;base64,AAAA",
        "data:audio/wav;charset;base64,AAAA",
        " data:audio/wav;base64,AAAA",
        "data:;base64,AAAA",
    ],
)
def test_malformed_data_urls_are_invalid(url: str) -> None:
    with pytest.raises(AudioError) as error:
        parse_data_url(url)
    assert error.value.code == "ref_audio_invalid"


def test_a_data_url_that_is_too_large_is_refused_before_decoding() -> None:
    url = "data:audio/wav;base64," + "!" * (MAX_BYTES * 4 // 3 + 8)
    with pytest.raises(AudioError) as error:
        parse_data_url(url)
    assert error.value.code == "ref_audio_too_large"


def test_a_data_url_of_the_largest_size_is_accepted() -> None:
    assert len(parse_data_url(data_url(bytes(MAX_BYTES)))) == MAX_BYTES


@settings(max_examples=200, deadline=None)
@given(url=st.one_of(st.text(max_size=60), st.text(max_size=60).map(lambda x: "data:audio/wav;base64," + x)))
def test_any_text_is_bytes_or_an_error(url: str) -> None:
    try:
        assert parse_data_url(url)
    except AudioError as error:
        assert error.code in {"ref_audio_invalid", "ref_audio_url_not_allowed"}
