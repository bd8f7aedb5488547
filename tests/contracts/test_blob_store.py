"""What every store of blobs must do. A new store is one more subclass."""

from __future__ import annotations

from pathlib import Path

import pytest

from lumenfarm.cache.blobs import MAX_BLOB_BYTES, BlobStore
from lumenfarm.cache.directory import DirectoryStore
from lumenfarm.cache.memory import MemoryStore
from lumenfarm.cache.null import NullStore
from lumenfarm.cache.opening import SCHEMES, open_store
from lumenfarm.errors import InputError

NAME = "42" + "a" * 62
# Shares the first digits of NAME, and so its folder in a store that has folders.
NEIGHBOUR = "42" + "a" * 61 + "b"
DISTANT = "0123456789abcdef" * 4
NO_NAMES = ["", "a" * 63, "a" * 65, "A" * 64, "a" * 64 + "\n", "../" + "a" * 61, "/" * 64, "g" * 64]


class BlobStoreContract:
    """For all stores, those that forget included."""

    scheme: str

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        raise NotImplementedError

    def test_what_was_never_put_is_a_miss(self, store: BlobStore) -> None:
        assert store.get(NAME) is None
        assert list(store.names()) == []
        assert list(store.quarantined()) == []

    @pytest.mark.parametrize("text", NO_NAMES)
    def test_what_is_no_name_is_refused(self, store: BlobStore, text: str) -> None:
        with pytest.raises(InputError, match="64 lower-case hexadecimal digits"):
            store.get(text)
        with pytest.raises(InputError, match="64 lower-case hexadecimal digits"):
            store.put(text, b"blob")
        with pytest.raises(InputError, match="64 lower-case hexadecimal digits"):
            store.quarantine(text)

    def test_quarantine_of_nothing_does_nothing(self, store: BlobStore) -> None:
        store.quarantine(NAME)
        assert list(store.quarantined()) == []

    def test_probe_publishes_nothing(self, store: BlobStore) -> None:
        store.probe()
        assert list(store.names()) == []

    def test_the_url_opens_such_a_store_again(self, store: BlobStore) -> None:
        again = open_store(store.url)
        assert type(again) is type(store)
        assert again.url == store.url

    def test_the_url_has_the_scheme(self, store: BlobStore) -> None:
        assert store.url.partition(":")[0] == self.scheme


class KeepingStoreContract(BlobStoreContract):
    """For stores that keep what they are given."""

    @pytest.mark.parametrize("blob", [b"", b"\0\xff\r\n", bytes(range(256)) * 4096], ids=["empty", "binary", "large"])
    def test_a_blob_comes_back_as_it_was(self, store: BlobStore, blob: bytes) -> None:
        store.put(NAME, blob)
        assert store.get(NAME) == blob
        assert store.get(NEIGHBOUR) is None

    def test_put_is_idempotent(self, store: BlobStore) -> None:
        for _ in range(3):
            store.put(NAME, b"blob")
        assert store.get(NAME) == b"blob"
        assert list(store.names()) == [NAME]

    def test_a_later_blob_replaces_an_earlier_one(self, store: BlobStore) -> None:
        store.put(NAME, b"earlier and longer")
        store.put(NAME, b"later")
        assert store.get(NAME) == b"later"

    def test_names_lists_each_blob_once(self, store: BlobStore) -> None:
        for name in (NAME, NEIGHBOUR, DISTANT):
            store.put(name, name.encode())
        assert sorted(store.names()) == sorted([NAME, NEIGHBOUR, DISTANT])

    def test_blobs_may_come_and_go_while_names_are_listed(self, store: BlobStore) -> None:
        names = [f"{number:064x}" for number in range(20)]
        for name in names:
            store.put(name, b"blob")
        for position, name in enumerate(store.names()):
            store.quarantine(name)
            store.put(f"{'f' * 60}{position:04x}", b"new") if position < 5 else None
        assert set(store.quarantined()) >= set(names)

    def test_a_quarantined_blob_is_out_of_service_but_known(self, store: BlobStore) -> None:
        store.put(NAME, b"damaged")
        store.put(NEIGHBOUR, b"sound")
        store.quarantine(NAME)
        assert store.get(NAME) is None
        assert store.get(NEIGHBOUR) == b"sound"
        assert list(store.names()) == [NEIGHBOUR]
        assert list(store.quarantined()) == [NAME]

    def test_a_quarantined_name_can_be_put_and_quarantined_again(self, store: BlobStore) -> None:
        for blob in (b"first", b"second"):
            store.put(NAME, blob)
            assert store.get(NAME) == blob
            store.quarantine(NAME)
        assert list(store.quarantined()) == [NAME]

    def test_a_blob_above_the_limit_never_passes_for_a_smaller_one(self, store: BlobStore) -> None:
        store.put(NAME, bytes(MAX_BLOB_BYTES + 10))
        blob = store.get(NAME)
        assert blob is not None
        assert len(blob) > MAX_BLOB_BYTES


class TestDirectoryStore(KeepingStoreContract):
    scheme = "file"

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return DirectoryStore(tmp_path / "results")


class TestMemoryStore(KeepingStoreContract):
    scheme = "memory"

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:  # noqa: ARG002 - the contract's signature
        return MemoryStore()


class TestNullStore(BlobStoreContract):
    scheme = "none"

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:  # noqa: ARG002 - the contract's signature
        return NullStore()

    def test_forgets(self, store: BlobStore) -> None:
        store.put(NAME, b"blob")
        assert store.get(NAME) is None
        assert list(store.names()) == []


def test_every_scheme_has_a_contract() -> None:
    contracts = (*BlobStoreContract.__subclasses__(), *KeepingStoreContract.__subclasses__())
    assert {contract.scheme for contract in contracts if contract is not KeepingStoreContract} == set(SCHEMES)
