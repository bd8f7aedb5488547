"""Which cache a user gets for what was said: argument, environment, default."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.null import NullStore
from lumenfarm.cache.opening import open_cache, open_store
from lumenfarm.errors import InputError

KEY = "42" + "a" * 62


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LUMENFARM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def folder_of(url: str | None) -> Path:
    store = open_cache(url).store
    assert isinstance(store, DirectoryStore)
    return store.root


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="XDG_CACHE_HOME is a convention of Linux")
def test_the_default_is_the_users_cache_folder_and_is_not_created(tmp_path: Path) -> None:
    assert folder_of(None) == tmp_path / "user" / "lumenfarm"
    assert open_cache().load(KEY) is None
    assert list(tmp_path.iterdir()) == []


def test_the_environment_overrides_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMENFARM_CACHE", str(tmp_path / "environment"))
    assert folder_of(None) == tmp_path / "environment"


def test_an_argument_overrides_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMENFARM_CACHE", str(tmp_path / "environment"))
    assert folder_of(str(tmp_path / "argument")) == tmp_path / "argument"
    assert isinstance(open_cache("none").store, NullStore)


def test_none_in_the_environment_switches_the_cache_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMENFARM_CACHE", "none")
    assert open_cache().url == "none"


def test_an_empty_environment_variable_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMENFARM_CACHE", "")
    assert tmp_path in folder_of(None).parents


def test_memory_is_one_store_a_process() -> None:
    assert isinstance(open_store("memory:"), MemoryStore)
    assert open_store("memory:") is open_store("memory:")


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_of("results") == tmp_path / "results"
    assert open_cache("results").url == (tmp_path / "results").as_uri()


def test_the_home_folder_is_expanded(tmp_path: Path) -> None:
    assert folder_of("~/results") == tmp_path / "home" / "results"


@pytest.mark.parametrize("url", ["file:///srv/a%20b", "file:/srv/a b", "file://localhost/srv/a b", "FILE:///srv/a b"])
def test_file_urls(url: str) -> None:
    assert folder_of(url) == Path("/srv/a b")


@pytest.mark.parametrize("name", ["a b", "50%", "#1?x=y", "ä", os.fsdecode(b"\xff"), "a:b", "none"])
def test_the_url_of_any_folder_opens_it_again(tmp_path: Path, name: str) -> None:
    url = DirectoryStore(tmp_path / name).url
    url.encode("ascii")
    assert folder_of(url) == tmp_path / name


def test_a_folder_may_be_called_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_of("./none") == tmp_path / "none"


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket", "az://container", "S3://bucket"])
def test_object_storage_is_refused_for_now(url: str) -> None:
    with pytest.raises(InputError, match=r"cache: expected a folder, file:///folder, memory: or none; object storage"):
        open_cache(url)


@pytest.mark.parametrize(("url", "close"), [("flie:///srv", "file"), ("mem:", "memory"), ("nnone:", "none")])
def test_an_unknown_scheme_is_refused_with_the_nearest(url: str, close: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{close}'"):
        open_cache(url)


@pytest.mark.parametrize(
    "url", ["", "a\0b", "file:", "file:relative", "file://host/srv", "file:///a%00b", "memory:x", "none:x", "redis://h"]
)
def test_what_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="cache: expected"):
        open_cache(url)


def test_a_bad_environment_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUMENFARM_CACHE", "s3://bucket")
    with pytest.raises(InputError, match="s3://bucket"):
        open_cache()
