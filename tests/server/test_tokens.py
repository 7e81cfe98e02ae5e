"""Tokens: where they come from, what is refused, what is kept of them, and how they change."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.errors import InputError
from omnigraph.server.tokens import FILE, JSON, SINGLE, token_set


def write(path, body, *, mode=0o600):
    path.write_text(json.dumps(body) if not isinstance(body, str) else body)
    path.chmod(mode)
    return str(path)


def test_no_source_means_no_tokens():
    assert token_set({}) is None
    assert token_set({SINGLE: "", FILE: "", JSON: ""}) is None


def test_sources_combine(tmp_path):
    path = write(tmp_path / "tokens.json", {"ada": "t-ada", "bob": ["t-bob-1", "t-bob-2"]})
    found = token_set({SINGLE: "t-single", FILE: path, JSON: '{"eve": "t-eve"}'})
    actors = {token: found.actor(token) for token in ("t-single", "t-ada", "t-bob-2", "t-eve")}
    assert actors == {"t-single": "default", "t-ada": "ada", "t-bob-2": "bob", "t-eve": None}
    assert token_set({JSON: '{"eve": "t-eve"}'}).actor("t-eve") == "eve"


@pytest.mark.parametrize("token", ["", " ", "t-ada ", "T-ADA", "t-ad", "t-ada\x00", "\udcff"])
def test_nothing_but_the_token_itself_is_accepted(token):
    assert token_set({JSON: '{"ada": "t-ada"}'}).actor(token) is None


def test_a_digest_stands_for_its_token_and_may_expire():
    digest = hashlib.sha256(b"t-ada").hexdigest()
    body = {
        "ada": {"sha256": digest},
        "old": {"sha256": hashlib.sha256(b"t-old").hexdigest(), "expires": "2001-01-01T00:00:00Z"},
        "new": {"sha256": hashlib.sha256(b"t-new").hexdigest(), "expires": "2999-01-01T00:00:00Z"},
    }
    found = token_set({JSON: json.dumps(body)})
    assert [found.actor(t) for t in ("t-ada", "t-old", "t-new")] == ["ada", None, "new"]
    assert found.actor(digest) is None


WRONG = {
    "no JSON": ("{", "not valid JSON"),
    "a list": ("[]", "must be an object"),
    "a blank actor": ('{" ": "t"}', "blank name"),
    "a blank token": ('{"a": " "}', "is blank"),
    "an actor twice": ('{"a": "t", "a": "u"}', "twice"),
    "a token twice": ('{"a": "t", "b": "t"}', "have one token"),
    "a number": ('{"a": 7}', "must be text"),
    "no tokens": ('{"a": []}', "has no tokens"),
    "a bad digest": ('{"a": {"sha256": "abc"}}', "64 hex digits"),
    "a bad time": (json.dumps({"a": {"sha256": "0" * 64, "expires": "soon"}}), "expires at no"),
    "another member": (json.dumps({"a": {"sha256": "0" * 64, "role": "x"}}), "must be text or"),
    "nobody at all": ("{}", "hold none"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_sources_are_refused(case, tmp_path):
    text, told = WRONG[case]
    for environ in ({JSON: text}, {FILE: write(tmp_path / "t.json", text)}):
        with pytest.raises(InputError) as caught:
            token_set(environ)
        assert told in caught.value.message


def test_an_actor_in_two_sources_is_refused(tmp_path):
    path = write(tmp_path / "tokens.json", {"default": "t-other"})
    with pytest.raises(InputError, match="'default' has tokens in"):
        token_set({SINGLE: "t-single", FILE: path})
    with pytest.raises(InputError, match="cannot read"):
        token_set({FILE: str(tmp_path / "none.json")})


def test_a_file_that_changes_is_taken_over_and_a_broken_one_is_not(tmp_path):
    path = tmp_path / "tokens.json"
    write(path, {"ada": "t-1"})
    found = token_set({FILE: str(path)})
    before = found.stamp
    write(path, {"ada": "t-2", "bob": "t-3"})
    os.utime(path, ns=(1, 1))
    assert found.stamp != before
    assert found.reload() is None
    assert [found.actor(t) for t in ("t-1", "t-2", "t-3")] == [None, "ada", "bob"]
    for broken in ("{", "{}", '{"a": ""}', '{"a": "\\ud800"}', '{"\\ud800": "x"}', "[" * 99_999):
        write(path, broken)
        assert found.reload() is not None
        assert found.actor("t-2") == "ada"
    path.unlink()
    assert "cannot read" in found.reload()
    assert found.actor("t-2") == "ada"


def test_a_file_that_others_can_read_is_warned_about(tmp_path, caplog):
    token_set({FILE: write(tmp_path / "t.json", {"a": "t-secret-9"}, mode=0o644)})
    assert "can be read by others" in caplog.text
    assert "t-secret-9" not in caplog.text


def test_no_token_stays_in_memory_or_in_the_environment(tmp_path):
    # Put together here, so that this file's own constants do not hold them.
    secrets = ["-".join(("tok", name, "4711")) for name in ("one", "two", "three")]
    path = tmp_path / "tokens.json"
    write(path, {"bob": secrets[1]})
    environ = {SINGLE: secrets[0], FILE: str(path)}
    found = token_set(environ)
    other = {JSON: json.dumps({"eve": secrets[2]})}
    more = token_set(other)
    assert [found.actor(secrets[0]), found.actor(secrets[1])] == ["default", "bob"]
    assert more.actor(secrets[2]) == "eve"
    needles = [one[4:] for one in secrets]
    del secrets
    gc.collect()
    held = [
        value
        for thing in gc.get_objects()
        for value in _texts(thing)
        if any(needle in value for needle in needles) and value not in needles
    ]
    assert held == []
    # Workers inherit the environment, and know the tokens all the same.
    assert token_set(dict(environ)).actor("-".join(("tok", "one", "4711"))) == "default"
    assert token_set(dict(other)).actor("-".join(("tok", "three", "4711"))) == "eve"


def _texts(thing):
    if isinstance(thing, dict):
        return [one for one in thing.values() if isinstance(one, str)]
    if isinstance(thing, list | tuple | set):
        return [one for one in thing if isinstance(one, str)]
    return []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="what Linux shows")
def test_no_token_stays_where_a_process_had_it_from_the_beginning():
    code = (
        "import os; from wsgiref.handlers import BaseHandler\n"
        "from omnigraph.server import main, tokens\n"
        "tokens.token_set(os.environ)\n"
        "print(open('/proc/self/environ').read(), BaseHandler.os_environ)"
    )
    given = {SINGLE: "tok-one-4711", JSON: '{"bob": "tok-two-4711"}', "LEFT": "as-it-was"}
    words = [sys.executable, "-c", code]
    found = subprocess.run(words, env={**os.environ, **given}, capture_output=True, check=True)
    assert b"LEFT=as-it-was" in found.stdout
    assert b"4711" not in found.stdout
