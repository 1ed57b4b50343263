from __future__ import annotations

import pytest
from store_suite import StoreSuite

from zellige.stores.objects import ObjectStore

obstore = pytest.importorskip("obstore", reason="needs obstore: pip install 'zellige[cloud]'")


class TestObstoreMemory(StoreSuite):
    control_keys = False

    @pytest.fixture
    def store(self) -> ObjectStore:
        return ObjectStore(obstore.store.MemoryStore())


class TestS3(StoreSuite):
    control_keys = False
    turns = 8

    @pytest.fixture
    def store(self, s3) -> ObjectStore:
        return ObjectStore.from_url(s3.url(), s3.options)
