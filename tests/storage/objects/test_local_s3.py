"""Control objects keep their promises on local disk and on S3."""

from __future__ import annotations

import os
import threading
import time

import pytest
from table_bench import WatchedDisk

from omnigraph.errors import InputError, StorageUnavailableError
from omnigraph.model.ports import World
from omnigraph.storage.objects.root import Root, branch_folder, fnv1a64, open_store, type_folder
from s3_server import UNREACHABLE


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request):
    return request.getfixturevalue("local_root" if request.param == "local" else "s3_root")


@pytest.fixture
def store(place):
    return open_store(Root.parse(place.uri, place.environ), World())


def test_what_is_put_is_read(store):
    store.put("a/b.json", b"one")
    store.put("a/b.json", b"two")
    found = store.read("a/b.json")
    assert (found.key, found.body) == ("a/b.json", b"two")


def test_a_missing_object_is_none_and_a_missing_prefix_is_empty(store):
    assert store.read("nothing/here") is None
    assert list(store.list_keys("nothing")) == []
    assert store.delete("nothing/here") is False
    assert store.delete_prefix("nothing") == 0


def test_put_if_absent_never_overwrites(store):
    assert store.put_if_absent("k", b"first") is True
    assert store.put_if_absent("k", b"second") is False
    assert store.read("k").body == b"first"


def test_put_if_match_replaces_only_what_was_seen(store):
    store.put("k", b"1")
    seen = store.read("k").tag
    assert store.put_if_match("k", b"2", tag=seen) is True
    assert store.put_if_match("k", b"3", tag=seen) is False
    assert store.put_if_match("gone", b"3", tag=seen) is False
    assert store.read("k").body == b"2"


def test_keys_are_listed_sorted_and_below_their_prefix_only(store):
    for key in ("p/b", "p/a/x", "q/c", "pp/d"):
        store.put(key, b"")
    assert list(store.list_keys("p")) == ["p/a/x", "p/b"]
    assert store.delete_prefix("p") == 2
    assert list(store.list_keys("")) == ["pp/d", "q/c"]


def test_folders_are_those_right_below_whatever_lies_deeper(store):
    for key in ("a/x/1", "a/x/2", "a/y/deep/3", "a/file", "ab/z/4"):
        store.put(key, b"")
    assert store.folders("a") == ["x", "y"]
    assert store.folders("a/y") == ["deep"]
    assert store.folders("a/x") == store.folders("nowhere") == store.folders("a/file") == []


def test_delete_says_whether_it_was_there(store):
    store.put("k", b"")
    assert store.delete("k") is True
    assert store.delete("k") is False


def test_racing_put_if_absent_has_one_winner(store):
    winners = _race(8, lambda n: store.put_if_absent("k", str(n).encode()))
    assert sum(winners.values()) == 1
    (winner,) = [n for n, won in winners.items() if won]
    assert store.read("k").body == str(winner).encode()


def test_racing_put_if_match_has_one_winner(store):
    store.put("k", b"start")
    tag = store.read("k").tag
    winners = _race(8, lambda n: store.put_if_match("k", str(n).encode(), tag=tag))
    assert sum(winners.values()) == 1


def _race(count, act):
    outcome, gate = {}, threading.Barrier(count)

    def run(n):
        gate.wait()
        outcome[n] = act(n)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcome


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_a_local_write_syncs_its_bytes_then_its_name(local_root, verb):
    disk = WatchedDisk()
    store = open_store(Root.parse(local_root.uri, {}), World(disk=disk))
    store.put("f/first", b"")
    disk.files.clear()
    disk.folders.clear()
    getattr(store, verb)("f/second", b"body")
    assert len(disk.files) == 1
    assert disk.folders == [f"{local_root.uri}/f"]


def test_durability_process_never_syncs(local_root):
    disk = WatchedDisk()
    store = open_store(Root.parse(local_root.uri, {}), World(disk=disk, durability="process"))
    store.put("a/b", b"x")
    store.put_if_absent("a/c", b"x")
    store.delete("a/b")
    assert (disk.files, disk.folders) == ([], [])


def test_a_failed_local_write_leaves_nothing(local_root):
    class FullDisk(WatchedDisk):
        def fsync_file(self, path):
            raise OSError(28, "No space left on device")

    store = open_store(Root.parse(local_root.uri, {}), World(disk=FullDisk()))
    with pytest.raises(StorageUnavailableError) as raised:
        store.put("a/b", b"x")
    assert raised.value.reason == "No space left on device"
    assert list(store.list_keys("")) == []
    assert os.listdir(f"{local_root.uri}/a") == []


@pytest.mark.parametrize(
    ("typed", "uri", "scheme"),
    [
        ("/data/g.omni", "/data/g.omni", "file"),
        ("/data/g.omni/", "/data/g.omni", "file"),
        ("file:///data/with%20space", "/data/with space", "file"),
        ("s3://bucket/a/b/", "s3://bucket/a/b", "s3"),
        ("s3://bucket", "s3://bucket", "s3"),
    ],
)
def test_addresses_are_read_in_one_form(typed, uri, scheme):
    root = Root.parse(typed, {})
    assert (root.uri, root.scheme) == (uri, scheme)


def test_relative_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Root.parse("g.omni", {}).local_path == str(tmp_path / "g.omni")


@pytest.mark.parametrize(
    "typed",
    ["", "  ", "http://host/x", "gs://b/x", "s3://", "s3:///x", "s3://b/../x", "file://h/x"],
)
def test_addresses_that_name_no_place_are_refused(typed):
    with pytest.raises(InputError):
        Root.parse(typed, {})


def test_secrets_stay_out_of_the_repr():
    root = Root.parse("s3://b/x", {"AWS_SECRET_ACCESS_KEY": "hush"})
    assert "hush" not in repr(root)
    assert root.storage_options["aws_secret_access_key"] == "hush"


@pytest.mark.parametrize(
    ("environ", "option", "value"),
    [
        ({"AWS_ENDPOINT_URL": "http://a"}, "aws_endpoint", "http://a"),
        (
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"},
            "aws_endpoint",
            "http://b",
        ),
        ({"AWS_ALLOW_HTTP": "1"}, "allow_http", "true"),
        ({"AWS_REGION": "eu-north-1"}, "aws_region", "eu-north-1"),
        ({"AWS_SESSION_TOKEN": "t"}, "aws_session_token", "t"),
        (
            {"AWS_ENDPOINT_URL": "http://a"},
            "aws_virtual_hosted_style_request",
            "false",
        ),
        (
            {"AWS_ENDPOINT_URL": "http://a", "AWS_S3_FORCE_PATH_STYLE": "false"},
            "aws_virtual_hosted_style_request",
            "true",
        ),
    ],
)
def test_the_usual_variables_reach_lance(environ, option, value):
    assert Root.parse("s3://b/x", environ).storage_options[option] == value


def test_an_unreachable_bucket_fails_within_seconds():
    store = open_store(Root.parse("s3://nowhere/graph", UNREACHABLE), World())
    started = time.monotonic()
    with pytest.raises(StorageUnavailableError) as raised:
        store.read("anything")
    assert raised.value.uri == "s3://nowhere/graph/anything"
    assert time.monotonic() - started < 20


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_a_typed_error(tmp_path):
    tmp_path.chmod(0o500)
    store = open_store(Root.parse(str(tmp_path / "g"), {}), World())
    with pytest.raises(StorageUnavailableError):
        store.put("a", b"")


@pytest.mark.parametrize(
    ("text", "digest"),
    [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C), ("foobar", 0x85944171F73967E8)],
)
def test_folder_names_are_fnv1a(text, digest):
    assert fnv1a64(text) == digest


def test_folders_tell_kinds_and_lives_apart():
    assert type_folder("node", "a") == "nodes/af63dc4c8601ec8c"
    assert type_folder("edge", "a") == "edges/af63dc4c8601ec8c"
    assert type_folder("node", "a", life=3) == "nodes/af63dc4c8601ec8c-3"
    assert branch_folder("nodes/x", None) == "nodes/x"
    assert branch_folder("nodes/x", "01B") == "nodes/x/tree/01B"


def test_ranges_of_an_object_are_read(store):
    assert store.read_ranges("k", [(0, 1)]) is None
    store.put("k", b"0123456789")
    assert store.read_ranges("k", [(2, 4), (8, 10), (0, 1)]) == [b"23", b"89", b"0"]
    assert store.read_ranges("k", [(8, 100)]) == [b"89"]
