"""Copies of checkpoints in a store: whole or not there, for one process at a time, in bounded space."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from drivetrain.config import Config
from drivetrain.core.checkpoint.transaction import CheckpointRecord
from drivetrain.core.replay.replay import Life
from drivetrain.errors import InputError, UnavailableError
from drivetrain.runtime.checkpoints import checkpoint_packs, copied_checkpoints, state_lease
from drivetrain.runtime.checkpoints.checkpoint_copy import Claimant, StillRunningError, TakenOverError
from drivetrain.runtime.checkpoints.claim_file import claim_name
from drivetrain.runtime.checkpoints.copied_checkpoints import CopiedCheckpoints
from drivetrain.runtime.checkpoints.savepoint_manifest import (
    FORMAT,
    Manifest,
    SavedFile,
    SavepointError,
    verified,
)
from drivetrain.runtime.checkpoints.state_lease import StateLease
from drivetrain.runtime.run_directory import RunDirectory
from drivetrain.simulator.simulate import chosen_seeds, run_seeds
from model_store import CHANGES, ModelStore


class DeathError(BaseException):
    """The process dies."""


def manifest(files: Mapping[str, SavedFile]) -> Manifest:
    record = CheckpointRecord(1, 1, {})
    return Manifest(FORMAT, "shop", "shop-1", {}, {}, 0, {}, Life(), record, None, {}, dict(files))


class Machine:
    """A machine with its disk, on which a process runs the application."""

    def __init__(self, store: ModelStore, directory: Path) -> None:
        self.directory = directory
        self.files: dict[str, str] = {}
        directory.mkdir(parents=True)
        self.copies = CopiedCheckpoints(store, "copies/shop-1", "s3://copies/shop-1", directory)

    def start(self, *, starts_over: bool = False) -> Machine:
        """Continue from the newest copy."""
        self.copies.require_own(has_state=bool(self.files))
        newest = self.copies.begin()
        if newest is not None and newest.manifest is not None and not starts_over:
            self.files = content_of(self.copies, self.directory / "fetched")
        self.copies.claim(starts_over=starts_over)
        return self

    def checkpoint(self, files: Mapping[str, str]) -> int:
        """Make a checkpoint of these files; returns how many bytes were sent."""
        place = self.directory / "snapshot"
        for name in self.files.keys() - files.keys():
            (place / name).unlink(missing_ok=True)
        for name, text in files.items():
            if self.files.get(name) != text or not (place / name).exists():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).unlink(missing_ok=True)
                (place / name).write_text(text)
        self.files = dict(files)
        return self.copies.add([(name, place / name) for name in files], manifest)


def content_of(copies: CopiedCheckpoints, aside: Path) -> dict[str, str]:
    """The files of the newest copy, which is verified."""
    newest = copies.newest()
    assert newest is not None
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    copies.fetch(newest, aside)
    return {name: (aside / name).read_text() for name in verified(aside).files}


@pytest.fixture
def store() -> ModelStore:
    return ModelStore()


def test_a_lost_machine_continues_elsewhere_with_the_newest_checkpoint(
    store: ModelStore, tmp_path: Path
) -> None:
    first = Machine(store, tmp_path / "a").start()
    first.checkpoint({"a/1": "one", "b/1": "two", "empty": ""})
    first.checkpoint({"a/1": "one", "b/2": "three", "empty": ""})
    assert Machine(store, tmp_path / "b").start().files == {"a/1": "one", "b/2": "three", "empty": ""}


def test_only_what_changed_is_sent(store: ModelStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "a").start()
    state = {f"state/{n}": "x" * 1000 + str(n) for n in range(20)}
    assert machine.checkpoint(state) > 20_000
    assert machine.checkpoint({**state, "state/20": "y" * 1000}) == 1000
    assert machine.checkpoint({**state, "copied": state["state/3"]}) == 0, "it has the content already"
    again = Machine(store, tmp_path / "b").start()
    assert again.checkpoint({**again.files, "new": "z"}) == 1, "a takeover sends nothing again"


@pytest.mark.parametrize("place", ["bucket", "ftp://bucket/x", "hdfs:///x", "s3://", "s3://key@bucket/x"])
def test_a_place_that_is_in_no_object_store_is_an_error(place: str, tmp_path: Path) -> None:
    config = Config.load(None, {}, {"checkpoint.copy-to": place})
    with pytest.raises(InputError, match="not a place in an object store"):
        CopiedCheckpoints.of(RunDirectory(str(tmp_path), "shop", {}), config)


def test_a_checkpoint_costs_as_many_requests_as_the_guide_says(store: ModelStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "a").start()
    files = {f"state/{n}": f"state {n}" for n in range(50)}
    for n in range(5):
        machine.checkpoint({**files, "newest": f"checkpoint {n}"})
    requests: list[str] = []
    store.before = lambda what, _path: requests.append(what)
    machine.checkpoint({**files, "newest": "checkpoint 5", "more": "m"})
    assert [what for what in requests if what != "delete"] == ["put", "create", "list"]
    requests.clear()
    machine.copies.require_newest()
    assert requests == ["list"]
    requests.clear()
    lease = StateLease(store, "copies/shop-1", "s3://copies/shop-1")
    lease.begin("one")
    requests.clear()
    lease.renew()
    assert requests == ["put"]


def test_a_store_that_is_empty_again_is_an_error(store: ModelStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "a")
    assert machine.copies.newest_elsewhere(has_state=False, was_copied=False) is None
    machine.start().checkpoint({"x": "1"})
    assert machine.copies.newest_elsewhere(has_state=True, was_copied=True) is None
    store.objects.clear()
    with pytest.raises(InputError, match="no longer in the store"):
        machine.copies.newest_elsewhere(has_state=True, was_copied=True)


def test_claims_after_an_emptied_store_are_later_than_those_before(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(1_000, 2_000))
    monkeypatch.setattr(copied_checkpoints, "_now_ms", lambda: next(times))
    names = []
    for series in range(2):
        for number in range(2):
            machine = Machine(store, tmp_path / f"machine-{series}-{number}").start()
            machine.checkpoint({"offsets": f"{series} {number}"})
            names.append(claim_name(machine.directory))
        store.objects.clear()  # sinks in stores still have records of these claims
    assert names == sorted(names)
    assert len({name.split("-")[0] for name in names}) == 2


def test_an_application_that_has_finished_is_known_as_finished_until_it_begins_again(
    store: ModelStore, tmp_path: Path
) -> None:
    first = Machine(store, tmp_path / "a").start()
    first.checkpoint({"x": "1"})
    first.copies.finish()
    newest = first.copies.newest()
    assert newest is not None
    assert newest.is_finished
    assert content_of(first.copies, tmp_path / "look") == {"x": "1"}
    for machine in (first, Machine(store, tmp_path / "b")):
        machine.copies.begin()
        machine.copies.claim(starts_over=False)
        newest = machine.copies.newest()
        assert newest is not None
        assert not newest.is_finished
        assert newest.manifest is not None


def test_a_checkpoint_that_was_under_way_at_the_end_does_not_make_the_application_unfinished(
    store: ModelStore, tmp_path: Path
) -> None:
    machine = Machine(store, tmp_path / "a").start()
    machine.checkpoint({"x": "1"})
    machine.copies.finish()
    machine.checkpoint({"x": "2"})
    newest = machine.copies.newest()
    assert newest is not None
    assert newest.is_finished
    assert content_of(machine.copies, tmp_path / "look") == {"x": "2"}


def test_a_process_that_was_taken_for_lost_makes_no_checkpoint_any_more(
    store: ModelStore, tmp_path: Path
) -> None:
    former = Machine(store, tmp_path / "a").start()
    former.checkpoint({"x": "1"})
    next_one = Machine(store, tmp_path / "b").start()
    with pytest.raises(TakenOverError, match="continued this application"):
        former.checkpoint({"x": "of the former"})
    next_one.checkpoint({"x": "2"})
    with pytest.raises(TakenOverError):
        former.checkpoint({"x": "of the former, again"})
    with pytest.raises(TakenOverError):  # its machine starts again, with its state
        CopiedCheckpoints(store, "copies/shop-1", "here", former.directory).require_own()
    assert content_of(next_one.copies, tmp_path / "look") == {"x": "2"}


@pytest.mark.parametrize("kind", ["list", "delete"])
def test_a_process_that_slept_after_its_claim_deletes_nothing_of_its_successor(
    store: ModelStore, tmp_path: Path, kind: str
) -> None:
    Machine(store, tmp_path / "a").start().checkpoint({"x": "1"})
    others: list[Machine] = []

    def sleep(what: str, path: str) -> None:
        has_claimed = any("0000002.json" in name for name in store.objects)
        if what == kind and has_claimed and not others:
            others.append(Machine(store, tmp_path / "c"))
            others[0].start()
            others[0].checkpoint({"x": "2", "y": "3"})

    store.before = sleep
    with contextlib.suppress(TakenOverError):  # it may notice at once
        Machine(store, tmp_path / "b").start()
    assert content_of(others[0].copies, tmp_path / "look") == {"x": "2", "y": "3"}


def test_a_process_that_slept_within_a_copy_is_refused_though_its_number_is_free_again(
    store: ModelStore, tmp_path: Path
) -> None:
    former = Machine(store, tmp_path / "a").start()
    former.checkpoint({"x": "1"})
    others: list[Machine] = []

    def sleep(what: str, path: str) -> None:
        if what == "create" and not others:  # its pack is there, and it is about to name its copy
            others.append(Machine(store, tmp_path / "b"))
            others[0].start()
            for n in range(5):
                others[0].checkpoint({"x": f"other {n}"})

    store.before = sleep
    with pytest.raises(TakenOverError):
        former.checkpoint({"x": "late"})
    assert content_of(others[0].copies, tmp_path / "look") == {"x": "other 4"}
    others[0].checkpoint({"x": "goes on"})
    assert content_of(others[0].copies, tmp_path / "look") == {"x": "goes on"}


def test_a_checkpoint_that_the_former_makes_meanwhile_is_not_computed_again(
    store: ModelStore, tmp_path: Path
) -> None:
    """Between fetching a checkpoint and claiming the next number, the successor compiles for many seconds."""
    former = Machine(store, tmp_path / "a").start()
    former.checkpoint({"x": "1"})
    late = Machine(store, tmp_path / "b")
    late.copies.begin()
    former.checkpoint({"x": "2"})  # and publishes its results
    assert late.copies.claim(starts_over=False)
    assert late.copies.is_outdated
    with pytest.raises(TakenOverError):
        former.checkpoint({"x": "3"})
    (late.directory / "copied-by").unlink()  # with its state
    late.start()
    assert late.files == {"x": "2"}
    assert not late.copies.is_outdated


def test_nor_when_it_makes_its_first_one_meanwhile(store: ModelStore, tmp_path: Path) -> None:
    former, late = Machine(store, tmp_path / "a").start(), Machine(store, tmp_path / "b")
    begun = late.copies.begin()
    assert begun is not None
    assert begun.manifest is None, "it has claimed a number, and copied nothing"
    former.checkpoint({"x": "1"})
    assert late.copies.claim(starts_over=False)
    assert late.copies.is_outdated


def test_nor_when_it_is_faster_than_the_claim(store: ModelStore, tmp_path: Path) -> None:
    former = Machine(store, tmp_path / "a").start()
    former.checkpoint({"x": "1"})
    late = Machine(store, tmp_path / "b")
    late.copies.begin()

    def faster(what: str, _path: str) -> None:
        if what == "create":
            store.before = undisturbed
            former.checkpoint({"x": "2"})

    undisturbed, store.before = store.before, faster
    assert late.copies.claim(starts_over=False)
    assert late.copies.is_outdated
    with pytest.raises(TakenOverError):
        former.checkpoint({"x": "3"})
    (late.directory / "copied-by").unlink()  # with its state
    late.start()
    assert late.files == {"x": "2"}


def test_a_state_that_was_never_copied_does_not_replace_copies(store: ModelStore, tmp_path: Path) -> None:
    never = CopiedCheckpoints(store, "copies/shop-1", "here", tmp_path)
    never.require_own(has_state=True)  # there are none yet: copying was turned on
    Machine(store, tmp_path / "a").start().checkpoint({"x": "1"})
    never.require_own(has_state=False)
    with pytest.raises(TakenOverError, match="delete this application's state directory"):
        never.require_own(has_state=True)


@pytest.mark.parametrize("after", [False, True])
def test_a_death_at_any_request_leaves_a_whole_checkpoint(tmp_path: Path, *, after: bool) -> None:
    """Before a request, or after it was done and before its answer."""
    seen = set[str]()
    for step in range(100):
        store = ModelStore()
        machine = Machine(store, tmp_path / str(step) / "a").start()
        for n in range(3):
            machine.checkpoint({"same": "s" * 100, "x": f"before {n}"})
        left = [step]

        def count(what: str, _path: str, left: list[int] = left) -> None:
            if what in CHANGES:
                left[0] -= 1
                if left[0] < 0:
                    raise DeathError

        if after:
            store.after = count
        else:
            store.before = count
        try:
            machine.checkpoint({"same": "s" * 100, "x": "new"})
            seen.add("lived")
        except DeathError:
            pass
        store.before = store.after = lambda *_: None
        other = Machine(store, tmp_path / str(step) / "b").start()
        assert other.files in ({"same": "s" * 100, "x": "before 2"}, {"same": "s" * 100, "x": "new"})
        seen.add(other.files["x"])
        other.checkpoint({"x": "on"})
        assert content_of(other.copies, tmp_path / "look") == {"x": "on"}
        if "lived" in seen:
            break
    assert seen == {"lived", "before 2", "new"}


@pytest.mark.parametrize("request_", ["create", "put"])
def test_a_lost_answer_is_an_error_and_the_next_checkpoint_counts(
    store: ModelStore, tmp_path: Path, request_: str
) -> None:
    machine = Machine(store, tmp_path / "a").start()
    machine.checkpoint({"x": "1"})

    def lose(what: str, _path: str) -> None:
        if what == request_:
            raise UnavailableError("no answer")

    store.after = lose
    with pytest.raises(UnavailableError):
        machine.checkpoint({"x": "2"})
    store.after = lambda *_: None
    machine.checkpoint({"x": "3"})
    assert content_of(machine.copies, tmp_path / "look") == {"x": "3"}
    machine.checkpoint({"x": "4"})
    assert Machine(store, tmp_path / "b").start().files == {"x": "4"}


def test_the_same_machine_continues_with_its_own_state(store: ModelStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "a").start()
    machine.checkpoint({"x": "1"})
    again = CopiedCheckpoints(store, "copies/shop-1", "here", machine.directory)
    again.require_own()
    again.claim(starts_over=False)
    machine.copies = again
    machine.checkpoint({"x": "2"})
    assert content_of(again, tmp_path / "look") == {"x": "2"}


def test_processes_of_one_machine_continue_the_claim_of_one_of_them(
    store: ModelStore, tmp_path: Path
) -> None:
    first = Machine(store, tmp_path / "a").start()
    with pytest.raises(TakenOverError):
        CopiedCheckpoints(store, "copies/shop-1", "here", tmp_path / "b").resume()
    another = Machine(store, tmp_path / "c")
    another.directory, another.copies = first.directory, beside(store, first)
    another.checkpoint({"x": "1"})
    assert content_of(first.copies, tmp_path / "look") == {"x": "1"}
    beside(store, first).finish()
    newest = first.copies.newest()
    assert newest is not None
    assert newest.is_finished
    Machine(store, tmp_path / "d").start()
    with pytest.raises(TakenOverError):
        beside(store, first)


def beside(store: ModelStore, machine: Machine) -> CopiedCheckpoints:
    """The same claim, in another process of the machine."""
    copies = CopiedCheckpoints(store, "copies/shop-1", "here", machine.directory)
    copies.resume()
    return copies


def test_a_later_epoch_waits_for_no_lease_and_a_former_one_claims_nothing(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_lease, "LEASE_S", 0.2)
    monkeypatch.setattr(state_lease, "_LOOK_S", 0.05)

    def machine(name: str, by: Claimant) -> CopiedCheckpoints:
        (tmp_path / name).mkdir()
        lease = StateLease(store, "copies/shop-1", "here")
        return CopiedCheckpoints(store, "copies/shop-1", "here", tmp_path / name, lease, by)

    def claim(copies: CopiedCheckpoints) -> None:
        copies.newest_elsewhere(has_state=False, was_copied=False)
        copies.begin()
        copies.claim(starts_over=False)

    def look(what: str, path: str) -> None:
        assert "/leases/" not in path or what != "get", "it looks whether a lease is over"

    first, late = machine("first", Claimant("shop", 1)), machine("late", Claimant("shop", 1))
    claim(first)
    late.newest_elsewhere(has_state=False, was_copied=False)
    late.begin()
    store.before = look
    claim(machine("second", Claimant("shop", 2)))
    for copies in (late, machine("later", Claimant("shop", 1))):
        with pytest.raises(TakenOverError):
            copies.claim(starts_over=False)
        with pytest.raises(TakenOverError):
            copies.newest_elsewhere(has_state=False, was_copied=False)
    with pytest.raises(TakenOverError):
        first.require_newest()
    store.before = lambda *_: None
    stranger = machine("stranger", Claimant("another submission", 9))
    with pytest.raises(StillRunningError):  # it has not looked whether the lease is over
        stranger.claim(starts_over=False)
    claim(machine("patient", Claimant()))


def test_a_takeover_that_died_before_its_claim_is_done_again(store: ModelStore, tmp_path: Path) -> None:
    Machine(store, tmp_path / "a").start().checkpoint({"x": "1"})
    second = Machine(store, tmp_path / "b")

    def die(what: str, _path: str) -> None:
        if what == "create":
            raise DeathError

    store.before = die
    with pytest.raises(DeathError):
        second.start()
    store.before = lambda *_: None
    assert second.start().files == {"x": "1"}
    second.checkpoint({"x": "2"})


def test_what_begins_anew_does_not_continue_from_what_was(store: ModelStore, tmp_path: Path) -> None:
    Machine(store, tmp_path / "a").start().checkpoint({"x": "old"})
    fresh = Machine(store, tmp_path / "b").start(starts_over=True)
    assert Machine(store, tmp_path / "c").files == {}
    newest = fresh.copies.newest()
    assert newest is not None
    assert newest.manifest is None
    fresh.checkpoint({"x": "new"})
    assert content_of(fresh.copies, tmp_path / "look") == {"x": "new"}


def test_what_others_put_beside_the_checkpoints_is_no_checkpoint(store: ModelStore, tmp_path: Path) -> None:
    machine = Machine(store, tmp_path / "a").start()
    machine.checkpoint({"x": "1"})
    folder = "copies/shop-1/checkpoints"
    backup = store.objects[f"{folder}/{0:020d}.json"]
    foreign = {f"{folder}/backup/{9:020d}.json": backup, f"{folder}/notes.txt": b"do not delete", folder: b""}
    foreign[f"{folder}/{7:020d}.json.bak"] = backup
    store.objects.update(foreign)
    machine.checkpoint({"x": "2"})
    machine.copies.require_newest()
    other = Machine(store, tmp_path / "b").start()
    assert other.files == {"x": "2"}
    other.checkpoint({"x": "3"})
    assert foreign.items() <= store.objects.items()


def test_a_copy_that_a_running_process_replaces_while_it_is_read_is_not_called_damaged(
    store: ModelStore, tmp_path: Path
) -> None:
    """The remedy for a damaged one is to start over, which would lose everything."""
    former = Machine(store, tmp_path / "a").start()
    former.checkpoint({"x": "1"})
    late = CopiedCheckpoints(store, "copies/shop-1", "here", tmp_path)
    newest = late.begin()
    assert newest is not None
    for n in range(3):
        former.checkpoint({"x": f"other {n}"})
    with pytest.raises(UnavailableError, match="end the process") as refused:
        late.fetch(newest, tmp_path)
    assert not isinstance(refused.value, SavepointError)


@pytest.mark.parametrize("damage", [b"", b"{}", b"truncated"])
def test_a_damaged_copy_is_an_error_with_a_remedy(store: ModelStore, tmp_path: Path, damage: bytes) -> None:
    machine = Machine(store, tmp_path / "a").start()
    machine.checkpoint({"x": "1"})
    name = max(name for name in store.objects if "/checkpoints/" in name)
    whole = store.objects[name]
    store.objects[name] = whole[: len(whole) // 2] if damage == b"truncated" else damage
    with pytest.raises(SavepointError, match="--fresh"):
        machine.copies.newest()
    store.objects[name] = whole
    for pack in [name for name in store.objects if "/packs/" in name]:
        del store.objects[pack]
    with pytest.raises(SavepointError, match="damaged or incomplete"):
        content_of(machine.copies, tmp_path / "look")


def test_space_is_bounded_and_every_checkpoint_is_what_was_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random files come, go and stay; machines are lost; packs are small."""
    monkeypatch.setattr(checkpoint_packs, "PACK_BYTES", 3_000)

    def run(seed: int) -> None:
        random, store = Random(seed), ModelStore()
        here = tmp_path / str(seed)
        machine = Machine(store, here / "0").start()
        files: dict[str, str] = {}
        for step in range(60):
            for _ in range(random.randrange(4)):
                files[f"f{random.randrange(20)}"] = "c" * random.randrange(1_500) + str(random.randrange(9))
            for name in list(files):
                if random.random() < 0.1:
                    del files[name]
            machine.checkpoint(files)
            assert content_of(machine.copies, here / "look") == files
            if random.random() < 0.1:
                machine = Machine(store, here / f"m{step}").start()
                assert machine.files == files
        stored = sum(len(content) for content in store.objects.values())
        needed = sum(map(len, files.values()))
        names = [name for name in store.objects if "/checkpoints/" in name]
        assert len(names) <= 2
        assert stored - sum(len(store.objects[name]) for name in names) <= 8 * needed + 20_000, seed

    run_seeds(run, chosen_seeds(5, at_most=200))
