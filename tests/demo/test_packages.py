"""Where the demo takes its packages from, and what it makes of them."""

from __future__ import annotations

import gzip
import json

import pytest

from omnigraph.demo.packages import (
    DataSet,
    Package,
    debian_packages,
    python_modules,
    records,
    reduced,
)

RELEASE = """\
Package: editor
Version: 1.0
Installed-Size: 120
Section: non-free/text
Depends: libtext (>= 2), mail-server, missing
Pre-Depends: base:any
Recommends: spell | speller, libtext
Description: writes texts
 A long story
Package-Type: odd

Package: libtext
Version: 2.0
Section: libs
Depends: base, editor [amd64] <!nocheck>
Description: größe

Package: base
Version: 1

Package: postman
Provides: mail-server (= 1), other
Installed-Size: none

Package: speller
"""
SECURITY = """\
Package: base
Version: 1+fixed
"""


def by_name(data: DataSet) -> dict[str, Package]:
    return {one.name: one for one in data.packages}


@pytest.fixture
def lists(tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "host_dists_stable-security_main_binary_Packages").write_text(SECURITY)
    packed = folder / "host_dists_stable_main_binary_Packages.gz"
    packed.write_bytes(gzip.compress(RELEASE.encode()))
    (folder / "host_dists_stable_InRelease").write_text("Package: not-a-list\n")
    return folder


def test_package_lists_become_packages_whose_needs_are_packages(lists, tmp_path):
    data = debian_packages(lists, tmp_path / "no-status")
    found = by_name(reduced(data, None))
    assert set(found) == {"editor", "libtext", "base", "postman", "speller"}
    editor = found["editor"]
    assert editor == Package(
        name="editor",
        version="1.0",
        summary="writes texts",
        section="text",
        size_kib=120,
        needs=("base", "libtext", "postman"),
        likes=("speller",),
    )
    assert found["libtext"].needs == ("base", "editor")
    assert found["libtext"].summary == "größe"
    assert found["postman"].size_kib is None


def test_security_fixes_replace_the_release(lists, tmp_path):
    data = debian_packages(lists, tmp_path / "no-status")
    assert by_name(data)["base"].version == "1+fixed"


def test_what_is_installed_stands_in_for_missing_lists(tmp_path):
    status = tmp_path / "status"
    status.write_text(RELEASE)
    data = debian_packages(tmp_path / "nowhere", status)
    assert len(data.packages) == 5
    assert debian_packages(tmp_path / "nowhere", tmp_path / "nothing") is None


def test_the_packages_that_most_others_need_are_kept(lists, tmp_path):
    data = reduced(debian_packages(lists, tmp_path / "no-status"), 2)
    assert [one.name for one in data.packages] == ["base", "editor"]
    assert by_name(data)["editor"].needs == ("base",)


def test_every_record_refers_to_what_is_there(lists, tmp_path):
    lines = [json.loads(line) for line in records(reduced(debian_packages(lists, tmp_path), None))]
    nodes = {(one["type"], one["data"]["name"]) for one in lines if "type" in one}
    ends = {
        "DependsOn": ("Package", "Package"),
        "Recommends": ("Package", "Package"),
        "InSection": ("Package", "Section"),
    }
    for one in lines:
        if "edge" in one:
            source, target = ends[one["edge"]]
            assert {(source, one["from"]), (target, one["to"])} <= nodes


def test_modules_need_what_they_import_at_once_and_like_what_they_import_late(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "foreign.py").write_text("")
    (tmp_path / "shop" / "__init__.py").write_text(
        '"""Sells things.\n\nMore."""\nfrom . import till'
    )
    (tmp_path / "shop" / "till.py").write_text(
        "import money, shop.till\ntry:\n    from .. import nothing\nexcept ImportError:\n"
        "    from shop import goods\ndef pay():\n    from .goods import price\n"
    )
    (tmp_path / "shop" / "goods.py").write_text("class A:\n    import money")
    (tmp_path / "money.py").write_text("")
    (tmp_path / "broken.py").write_text("def")
    found = by_name(reduced(python_modules(tmp_path), None))
    assert set(found) == {"shop", "shop.till", "shop.goods", "money"}
    assert found["shop"].summary == "Sells things."
    assert found["shop"].needs == ("shop.till",)
    assert found["shop.till"].needs == ("money", "shop", "shop.goods")
    assert found["shop.goods"].needs == ("money",)
    assert found["money"].section == "modules"


def test_a_function_body_is_late(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    if 1:\n        import b\n")
    (tmp_path / "b.py").write_text("")
    found = by_name(reduced(python_modules(tmp_path), None))
    assert (found["a"].needs, found["a"].likes) == ((), ("b",))
