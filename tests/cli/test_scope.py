"""Which graph is meant, and what is refused."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from omnigraph.cli.credentials import read_credentials, token_for
from omnigraph.cli.main import entry
from omnigraph.cli.scope import (
    Capability,
    OperatorConfig,
    ScopeFlags,
    Served,
    load_config,
    parse_config,
    resolve,
)
from omnigraph.errors import InputError, NotFoundError

CONFIG = parse_config(
    """
operator: { actor: act-me }
defaults: { store: "file:///data/default.omni" }
profiles:
  dev: { store: "s3://bucket/dev.omni" }
  prod: { server: prod }
  brain: { cluster: brain, default_graph: kb }
  broken: { server: a, store: b }
  empty: {}
""",
    path=Path("config.yaml"),
)
NO_CONFIG = OperatorConfig(path=Path("config.yaml"))


def target(capability=Capability.ANY, config=CONFIG, environ=None, **flags):
    return resolve(
        "snapshot",
        capability=capability,
        flags=ScopeFlags(**flags),
        config=config,
        environ=environ or {},
    )


@pytest.mark.parametrize(
    ("flags", "environ", "uri", "local"),
    [
        ({"uri": "graph.omni"}, {}, "graph.omni", True),
        ({"store": "file:///g"}, {}, "file:///g", True),
        ({"store": "s3://b/g"}, {"OMNIGRAPH_PROFILE": "prod"}, "s3://b/g", False),
        ({"profile": "dev"}, {}, "s3://bucket/dev.omni", False),
        ({}, {"OMNIGRAPH_PROFILE": "dev"}, "s3://bucket/dev.omni", False),
        ({}, {"OMNIGRAPH_STORE": "e.omni"}, "e.omni", True),
        ({}, {"OMNIGRAPH_STORE": "e.omni", "OMNIGRAPH_PROFILE": "dev"}, "e.omni", True),
        ({"profile": "dev"}, {"OMNIGRAPH_STORE": "e.omni"}, "s3://bucket/dev.omni", False),
        ({"uri": "g"}, {"OMNIGRAPH_STORE": "e.omni"}, "g", True),
        ({}, {"OMNIGRAPH_STORE": ""}, "file:///data/default.omni", True),
        ({}, {}, "file:///data/default.omni", True),
    ],
)
def test_an_address_wins_over_a_profile_and_a_profile_over_the_defaults(flags, environ, uri, local):
    found = target(environ=environ, **flags)
    assert (found.uri, found.local) == (uri, local)


@pytest.mark.parametrize(
    ("flags", "config", "text"),
    [
        ({}, NO_CONFIG, "no graph addressed"),
        ({"uri": " "}, CONFIG, "URI is empty"),
        ({"uri": "https://host/g"}, CONFIG, "is a remote server"),
        ({"store": "g", "graph": "x"}, CONFIG, "already a single graph"),
        ({"profile": "brain"}, CONFIG, "knows no clusters"),
        ({"profile": "broken"}, CONFIG, "profile 'broken' must bind exactly one"),
        ({"profile": "empty"}, CONFIG, "it has none of them"),
        ({"cluster": "root"}, CONFIG, "knows no clusters"),
    ],
)
def test_what_cannot_be_opened_is_refused_with_the_reason(flags, config, text):
    with pytest.raises(InputError, match=text):
        target(config=config, **flags)


@pytest.mark.parametrize(
    ("flags", "server", "graph"),
    [
        ({"server": "prod"}, "prod", None),
        ({"server": "http://h", "graph": "a"}, "http://h", "a"),
        ({"profile": "prod"}, "prod", None),
        ({"profile": "prod", "graph": "b"}, "prod", "b"),
    ],
)
def test_a_server_is_addressed_by_flag_or_profile(flags, server, graph):
    assert target(**flags) == Served(server=server, graph_id=graph)


SERVERS = parse_config(
    "servers: {a: {url: 'https://h/x'}, b: {url: 'https://h/x/y'}, my-c: {url: 'http://c'}}",
    path=Path("config.yaml"),
)


@pytest.mark.parametrize(
    ("url", "environ", "token"),
    [
        ("https://h/x", {"OMNIGRAPH_TOKEN_A": "ta"}, "ta"),
        ("https://h/x/z", {"OMNIGRAPH_TOKEN_A": "ta", "OMNIGRAPH_TOKEN_B": "tb"}, "ta"),
        ("https://h/x/y/z", {"OMNIGRAPH_TOKEN_A": "ta", "OMNIGRAPH_TOKEN_B": "tb"}, "tb"),
        ("https://h/xx", {"OMNIGRAPH_TOKEN_A": "ta"}, None),
        ("http://h/x", {"OMNIGRAPH_TOKEN_A": "ta"}, None),
        ("http://c", {"OMNIGRAPH_TOKEN_MY_C": "tc", "OMNIGRAPH_BEARER_TOKEN": "all"}, "tc"),
        ("http://elsewhere", {"OMNIGRAPH_TOKEN_A": "ta", "OMNIGRAPH_BEARER_TOKEN": "all"}, "all"),
    ],
)
def test_a_token_goes_to_addresses_at_or_below_its_servers_own(url, environ, token, tmp_path):
    environ = {"OMNIGRAPH_HOME": str(tmp_path), **environ}
    assert token_for(SERVERS, url, environ) == token


def test_tokens_are_kept_for_their_owner_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path))
    assert entry(["login", "prod", "--token", "secret-prod", "--json"]) == 0
    assert entry(["login", "dev", "--token", "secret-dev"]) == 0
    path = tmp_path / "credentials"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_credentials({"OMNIGRAPH_HOME": str(tmp_path)}) == {
        "prod": "secret-prod",
        "dev": "secret-dev",
    }
    assert entry(["logout", "prod"]) == 0
    assert entry(["logout", "prod"]) == 1
    assert entry(["login", "prod", "--token", " "]) == 1
    assert "secret-prod" not in capsys.readouterr().out
    path.chmod(0o644)
    with pytest.raises(InputError, match="can be read by others"):
        read_credentials({"OMNIGRAPH_HOME": str(tmp_path)})


def test_an_unknown_profile_is_not_found_and_the_known_ones_are_named():
    with pytest.raises(NotFoundError) as caught:
        target(profile="nope")
    assert caught.value.hint == "known profiles: brain, broken, dev, empty, prod"


@pytest.mark.parametrize(
    "flags",
    [
        {"uri": "a", "store": "b"},
        {"store": "a", "profile": "dev"},
        {"uri": "a", "server": "s"},
        {"server": "s", "cluster": "c"},
    ],
)
def test_two_addresses_at_once_are_a_usage_error(flags):
    with pytest.raises(click.UsageError, match="cannot be used with"):
        target(**flags)


def test_a_direct_command_refuses_a_server_however_it_is_named():
    for flags in ({"server": "prod"}, {"profile": "prod"}):
        with pytest.raises(InputError, match=r"direct \(storage-native\) command"):
            target(Capability.DIRECT, **flags)


# --- the file itself ---


def test_a_missing_file_is_an_empty_configuration(tmp_path):
    config = load_config({"OMNIGRAPH_HOME": str(tmp_path)})
    assert config == OperatorConfig(path=tmp_path / "config.yaml")


def test_the_folder_follows_home_unless_told_otherwise(tmp_path):
    assert load_config({"HOME": str(tmp_path)}).path == tmp_path / ".omnigraph/config.yaml"


def test_unknown_sections_are_remembered_not_refused():
    config = parse_config("operator: {}\nfuture: 1\n", path=Path("c.yaml"))
    assert config.unknown_keys == ("future",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        ("a: 2026-13-45", "not valid YAML"),  # no such day
        ("- 1\n- 2\n", "must be a mapping"),
        ("profiles: 7\n", "'profiles' must be a mapping"),
        ("defaults: { server: a, store: b }\n", "exclude each other"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_config(text, path=Path("c.yaml"))
    assert "'c.yaml'" in caught.value.message
