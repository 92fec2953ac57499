"""The folder of voices: shared by processes that come, go, crash and fill the disk, and always whole."""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from models.__main__ import main
from models.config import load_config
from runners import record_folder, voice_record, voice_store
from runners.request import RequestError
from runners.voice_record import model_key
from runners.voice_store import VoiceStore
from tests.golden import golden
from tests.runners.voice_folder import (
    CONSENT,
    MODEL,
    conditioning,
    finished,
    in_child,
    killed_at,
    same,
    start_child,
    store,
)

NOBODY = 65534


def _names(folder: Path) -> list[str]:
    return [voice.name for voice in store(folder).list()]


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def _code(work: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        work()
    return caught.value.status, caught.value.code


def test_a_voice_survives_a_restart_as_it_was_saved(tmp_path: Path) -> None:
    saved = store(tmp_path).create("Ada", conditioning(1), consent=CONSENT, transcript="Good day.", description="warm")
    found = store(tmp_path).get(saved.id)
    assert found is not None and same(found.conditioning, conditioning(1))
    record = store(tmp_path).record("Ada")
    assert dataclasses.asdict(record) == {
        field.name: getattr(saved, field.name)
        if field.name not in ("consent", "model")
        else dataclasses.asdict(getattr(saved, field.name))
        for field in dataclasses.fields(record)
    }
    assert (record.transcript, record.description) == ("Good day.", "warm")
    assert record.consent.statement == CONSENT
    assert abs(record.consent.given_at - time.time()) < 60
    assert saved.id.startswith("voice_") and saved.consent_id.startswith("consent_")


def test_speaking_leaves_the_record_as_it_is(tmp_path: Path) -> None:
    voices = store(tmp_path)
    voices.create("Ada", conditioning(), consent=CONSENT)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    first, again = voices.get("Ada"), voices.get("Ada")
    assert first is not None and again is not None and same(first.conditioning, again.conditioning)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_processes_see_new_renamed_replaced_and_deleted_voices_within_seconds(tmp_path: Path) -> None:
    reader = store(tmp_path)
    assert reader.get("Ada") is None

    def seen(condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + 2.5
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.05)
        return False

    def has(name: str, seed: int) -> bool:
        voice = reader.get(name)
        return voice is not None and same(voice.conditioning, conditioning(seed))

    assert in_child(lambda: store(tmp_path).create("Ada", conditioning(1), consent=CONSENT)) == 0
    assert seen(lambda: has("Ada", 1))
    assert in_child(lambda: store(tmp_path).update("Ada", name="Bob")) == 0
    assert seen(lambda: has("Bob", 1) and reader.get("Ada") is None)
    assert in_child(lambda: store(tmp_path).create("Bob", conditioning(2), consent=CONSENT, overwrite=True)) == 0
    assert seen(lambda: has("Bob", 2))
    assert in_child(lambda: store(tmp_path).delete("Bob")) == 0
    assert seen(lambda: reader.get("Bob") is None)
    assert _files(tmp_path) == set()


def test_a_voice_replaced_under_a_reader_who_has_not_looked_yet_is_the_new_one(tmp_path: Path) -> None:
    store(tmp_path).create("Ada", conditioning(1), consent=CONSENT)
    reader = store(tmp_path)
    old = reader.record("Ada")
    assert in_child(lambda: store(tmp_path).create("Ada", conditioning(2), consent=CONSENT, overwrite=True)) == 0
    voice = reader.get(old.id)  # within the second in which the folder is not looked at
    assert voice is not None and voice.id == old.id and same(voice.conditioning, conditioning(2))


def test_of_processes_that_take_one_name_at_once_one_has_it(tmp_path: Path) -> None:
    def take(seed: int) -> bool:
        try:
            store(tmp_path).create("Ada", conditioning(seed), consent=CONSENT)
        except RequestError as error:
            return error.code != "voice_exists"
        return True

    children = [start_child(partial(take, seed)) for seed in range(6)]
    assert sorted(map(finished, children)) == [0, 1, 1, 1, 1, 1]
    assert _names(tmp_path) == ["Ada"]


@pytest.mark.parametrize("change", ["create", "overwrite", "rename", "delete"])
def test_a_writer_killed_at_any_step_leaves_the_old_or_the_new_state(tmp_path: Path, change: str) -> None:
    changes: dict[str, tuple[Callable[[VoiceStore], object], tuple[str, int | None], tuple[str, int | None]]] = {
        "create": (lambda voices: voices.create("Ada", conditioning(2), consent=CONSENT), ("Ada", None), ("Ada", 2)),
        "overwrite": (
            lambda voices: voices.create("Ada", conditioning(2), consent=CONSENT, overwrite=True),
            ("Ada", 1),
            ("Ada", 2),
        ),
        "rename": (lambda voices: voices.update("Ada", name="Bob"), ("Ada", 1), ("Bob", 1)),
        "delete": (lambda voices: voices.delete("Ada"), ("Ada", 1), ("Ada", None)),
    }
    work, before, after = changes[change]
    outcomes = []
    for step in range(1, 20):
        folder = tmp_path / str(step)
        folder.mkdir()
        store(folder).create("other", conditioning(7), consent=CONSENT)
        if before[1] is not None:
            store(folder).create("Ada", conditioning(1), consent=CONSENT)
        status = killed_at(step, partial(work, store(folder)))

        def found(folder: Path, name: str) -> int | None:
            voice = store(folder).get(name)
            seeds = [seed for seed in (1, 2) if voice is not None and same(voice.conditioning, conditioning(seed))]
            assert voice is None or seeds, "half of a voice"
            return seeds[0] if seeds else None

        state = next((state for state in (after, before) if found(folder, state[0]) == state[1]), None)
        assert state is not None
        outcomes.append(state)
        other = store(folder).get("other")
        assert other is not None and same(other.conditioning, conditioning(7))
        # What the killed one left is no hindrance, and goes.
        store(folder).create("later", conditioning(3), consent=CONSENT)
        if status == 0:
            break
    assert status == 0 and step > 3
    first_new = outcomes.index(after)
    assert outcomes == [before] * first_new + [after] * (len(outcomes) - first_new)
    assert first_new > 0


def test_what_a_killed_writer_left_is_removed_later_and_a_record_being_restored_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 5):  # before the record is there
        assert killed_at(step, lambda: store(tmp_path).create("Ada", conditioning(), consent=CONSENT)) < 0
    left = _files(tmp_path)
    assert any(name.endswith(".draft") for name in left) and any(name.endswith(".safetensors") for name in left)
    store(tmp_path).create("Bob", conditioning(), consent=CONSENT)
    assert left < _files(tmp_path)
    monkeypatch.setattr(record_folder, "LEFTOVER_SECONDS", -1.0)
    store(tmp_path).update("Bob", description="warm")
    assert len(_files(tmp_path)) == 2 and _names(tmp_path) == ["Bob"]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def _edit(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda record, data: record.write_bytes(b""),
        lambda record, data: record.write_bytes(record.read_bytes()[:100]),
        lambda record, data: record.write_bytes(b"\xff\x00no json"),
        lambda record, data: record.write_text("[" * 100_000),
        lambda record, data: record.write_text(" " * (record_folder.MAX_RECORD_BYTES + 1)),
        lambda record, data: record.write_text("[]"),
        lambda record, data: _edit(record, id="voice_" + "0" * 24),
        lambda record, data: _edit(record, name=5),
        lambda record, data: _edit(record, consent=None),
        lambda record, data: _edit(record, sha256="/../../../etc/passwd"),
        lambda record, data: _edit(record, size=1),
        lambda record, data: data.unlink(),
        lambda record, data: data.write_bytes(data.read_bytes()[:-1]),
        lambda record, data: (record.unlink(), record.mkdir()),
    ],
)
def test_a_damaged_record_is_skipped_with_one_warning_and_the_others_live(
    tmp_path: Path, damage: Callable[[Path, Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    store(tmp_path).create("Ada", conditioning(1), consent=CONSENT)
    voice = store(tmp_path).create("Bob", conditioning(2), consent=CONSENT)
    damage(tmp_path / f"{voice.id}.json", tmp_path / voice.conditioning_file)
    voices = store(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert [voice.name for voice in voices.list()] == ["Ada"]
        voices.warm_up()
    assert [voice.id in record.message for record in caplog.records] == [True]
    assert voices.get(voice.id) is None
    ada = voices.get("Ada")
    assert ada is not None and same(ada.conditioning, conditioning(1))
    voices.create("Carla", conditioning(3), consent=CONSENT)
    assert sorted(_names(tmp_path)) == ["Ada", "Carla"]


def test_a_changed_conditioning_is_never_spoken_with(tmp_path: Path) -> None:
    voice = store(tmp_path).create("Ada", conditioning(), consent=CONSENT)
    _flip(tmp_path / voice.conditioning_file)
    assert _code(lambda: store(tmp_path).get("Ada")) == (500, "voice_damaged")


def test_a_voice_of_another_model_is_listed_but_not_spoken_with(tmp_path: Path) -> None:
    store(tmp_path).create("Ada", conditioning(), consent=CONSENT)
    renamed = dataclasses.replace(MODEL, name="the same model in another folder")
    assert store(tmp_path, renamed).get("Ada") is not None
    for other in (dataclasses.replace(MODEL, version=3), dataclasses.replace(MODEL, encoders="others")):
        voices = store(tmp_path, other)
        assert [voices.usable(voice) for voice in voices.list()] == [False]
        assert _code(partial(voices.get, "Ada")) == (409, "voice_not_usable")


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb", "a\x00b", "a\u202eb", "voice_" + "0" * 24])
def test_names_that_nobody_could_use_are_refused(tmp_path: Path, name: str) -> None:
    assert _code(lambda: store(tmp_path).create(name, conditioning(), consent=CONSENT)) == (400, "invalid_value")


@pytest.mark.parametrize("name", ["../../etc/passwd", "你好", "Ada's voice / 2", "e\u0301"])
def test_names_are_no_paths(tmp_path: Path, name: str) -> None:
    voice = store(tmp_path).create(f" {name} ", conditioning(), consent=CONSENT)
    assert _files(tmp_path) == {f"{voice.id}.json", voice.conditioning_file}
    assert store(tmp_path).get(voice.name) is not None
    assert _code(lambda: store(tmp_path).create(name, conditioning(), consent=CONSENT)) == (409, "voice_exists")


def test_a_renamed_voice_frees_its_name_and_may_not_take_another_ones(tmp_path: Path) -> None:
    voices = store(tmp_path)
    ada, bob = (voices.create(name, conditioning(), consent=CONSENT) for name in ("Ada", "Bob"))
    assert _code(lambda: voices.update(bob.id, name="Ada")) == (409, "voice_exists")
    assert voices.update(ada.id, name="Ada").name == "Ada"
    voices.update(ada.id, name="Carla")
    assert voices.update(bob.id, name="Ada").id == bob.id
    assert _code(lambda: voices.update("voice_" + "0" * 24, name="Eve")) == (404, "voice_not_found")
    assert _code(lambda: voices.delete("../Ada")) == (404, "voice_not_found")


@pytest.mark.parametrize(
    ("limit", "tokens", "description"),  # bytes of one file
    [(5_000, 25, ""), (1_500, 0, "x" * 1_500)],
    ids=["conditioning", "record"],
)
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, limit: int, tokens: int, description: str) -> None:
    store(tmp_path).create("Ada", conditioning(1), consent=CONSENT)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    small = conditioning(2, tokens)
    assert (len(small.to_bytes()) > limit) == (not description)

    def fill() -> bool:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        voices = store(tmp_path)
        save = partial(voices.create, conditioning=small, consent=CONSENT, description=description)
        works: list[Callable[[], object]] = [partial(save, "Bob"), partial(save, "Ada", overwrite=True)]
        if description:
            works.append(partial(voices.update, "Ada", description=description))
        return [_code(work) for work in works] == [(507, "voice_store_full")] * len(works)

    assert in_child(fill) == 0
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_may_only_be_read_serves_its_voices(open_folder: Path) -> None:
    store(open_folder).create("Ada", conditioning(1), consent=CONSENT)
    for path in open_folder.iterdir():
        path.chmod(0o444)
    open_folder.chmod(0o555)

    def use() -> bool:
        voices = store(open_folder)
        voices.warm_up()
        voice = voices.get("Ada")
        assert voice is not None and same(voice.conditioning, conditioning(1))
        for work in (
            lambda: voices.create("Bob", conditioning(), consent=CONSENT),
            lambda: voices.update("Ada", name="Bob"),
            lambda: voices.delete("Ada"),
        ):
            assert _code(work) == (503, "voice_store_read_only")
        return True

    assert in_child(use, uid=NOBODY if os.geteuid() == 0 else None) == 0
    open_folder.chmod(0o755)


def test_a_folder_that_is_gone_is_an_error_and_not_an_empty_store(tmp_path: Path) -> None:
    voices = store(tmp_path / "voices")
    assert _code(voices.list) == (503, "voice_store_unavailable")
    voices.warm_up()
    assert voices.list() == []
    with pytest.raises(FileNotFoundError):
        store(tmp_path / "no" / "volume").warm_up()


def test_a_folder_in_which_nothing_changed_costs_next_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = store(tmp_path).create("Ada", conditioning(), consent=CONSENT)
    record = (tmp_path / f"{voice.id}.json").read_text()
    for number in range(1000):
        other = f"voice_{number:024x}"
        os.link(tmp_path / voice.conditioning_file, tmp_path / voice.conditioning_file.replace(voice.id, other))
        (tmp_path / f"{other}.json").write_text(record.replace(voice.id, other).replace('"Ada"', f'"{number}"'))
    clock = 1000.0
    monkeypatch.setattr(record_folder.time, "monotonic", lambda: clock)
    voices = store(tmp_path)
    assert len(voices.list()) == 1001

    def seconds() -> float:
        began = time.perf_counter()
        assert len(voices.list()) == 1001
        return time.perf_counter() - began

    clock += 1.5
    read = seconds()  # the folder's time may not have settled yet
    clock += record_folder.SETTLE_SECONDS
    voices.list()
    looks = []
    for _ in range(5):
        clock += 1.5
        looks.append(seconds())
    assert min(looks) < read / 5
    store(tmp_path).delete("7")
    clock += 1.5
    assert len(voices.list()) == 1000


def test_the_key_of_a_model_is_that_of_its_encoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = model_key(load_config(golden(2).dir))
    assert key.encoders != model_key(load_config(golden(3).dir)).encoders
    root = Path(shutil.copytree(golden(2).dir, tmp_path / "model"))
    for name in ("campplus.onnx", "llm.pt"):
        with (root / name).open("ab") as file:
            file.write(b"\0")
        changed = model_key(load_config(root))
        assert (changed.encoders != key.encoders) == (name == "campplus.onnx")
        shutil.copy(golden(2).dir / name, root / name)
    assert main(["manifest", str(root), "--name", "another name"]) == 0
    monkeypatch.setattr(voice_record, "sha256_of", None)  # with a manifest no file is read
    again = model_key(load_config(root))
    assert again.name == "another name" and key.takes(again)


def test_whoever_may_write_to_the_folder_shares_it_whatever_the_umask(open_folder: Path) -> None:
    open_folder.chmod(0o777)

    def save_closed(name: str) -> bool:
        os.umask(0o077)
        return store(open_folder).create(name, conditioning(), consent=CONSENT).name == name

    assert in_child(partial(save_closed, "Ada")) == 0
    assert {path.stat().st_mode & 0o777 for path in open_folder.iterdir()} == {0o666}
    assert in_child(partial(save_closed, "Bob"), uid=NOBODY if os.geteuid() == 0 else None) == 0
    assert store(open_folder).get("Bob") is not None
    open_folder.chmod(0o750)
    voice = store(open_folder).create("Carla", conditioning(), consent=CONSENT)
    assert (open_folder / voice.conditioning_file).stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("asked", ["e\u0301", " \u00e9 ", "\u00e9"])
def test_a_voice_is_found_under_every_spelling_of_its_name(tmp_path: Path, asked: str) -> None:
    voice = store(tmp_path).create("e\u0301", conditioning(), consent=CONSENT)
    assert store(tmp_path).record(asked).id == voice.id


def test_a_name_of_megabytes_is_not_looked_for(tmp_path: Path) -> None:
    began = time.thread_time()
    assert store(tmp_path).get("\u0301\u0316" * 2**19) is None
    assert time.thread_time() - began < 0.2


@pytest.mark.parametrize("seen", [True, False])
def test_what_the_disk_fails_with_is_no_damage_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    voice = store(tmp_path).create("Ada", conditioning(1), consent=CONSENT)
    voices = store(tmp_path)
    if seen:
        voices.list()
        os.utime(tmp_path / f"{voice.id}.json")
    read = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path.suffix == ".json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "read_bytes", fail)
        voices.warm_up()
        assert [found.name for found in voices.list()] == (["Ada"] if seen else [])
        refusal = (409, "voice_exists") if seen else (503, "voice_store_unavailable")
        assert _code(lambda: voices.create("Ada", conditioning(), consent=CONSENT)) == refusal
    voices.warm_up()
    assert voices.record("Ada").id == voice.id


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("tells_its_name", [True, False])
def test_the_name_of_a_damaged_record_stays_taken(tmp_path: Path, seen: bool, tells_its_name: bool) -> None:
    voice = store(tmp_path).create("Ada", conditioning(1), consent=CONSENT)
    voices = store(tmp_path)
    if seen:
        voices.list()
    if tells_its_name:
        (tmp_path / voice.conditioning_file).unlink()
        _edit(tmp_path / f"{voice.id}.json", created_at=1)
    else:
        (tmp_path / f"{voice.id}.json").write_text("{")
    bob = voices.create("Bob", conditioning(), consent=CONSENT)
    if not (seen or tells_its_name):
        assert voices.update(bob.id, name="Ada").name == "Ada"
        return
    assert _code(lambda: voices.create("Ada", conditioning(), consent=CONSENT)) == (409, "voice_exists")
    assert _code(lambda: voices.update(bob.id, name="Ada")) == (409, "voice_exists")
    assert voices.create("Ada", conditioning(2), consent=CONSENT, overwrite=True).id == voice.id


def test_there_are_only_so_many_voices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_store, "MAX_VOICES", 1)
    voices = store(tmp_path)
    voices.create("Ada", conditioning(), consent=CONSENT)
    assert _code(lambda: voices.create("Bob", conditioning(), consent=CONSENT)) == (409, "too_many_voices")
    voices.create("Ada", conditioning(), consent=CONSENT, overwrite=True)
