"""A server for every test of the API, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.service import Site, serving


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    with serving(database_url) as found:
        yield found
