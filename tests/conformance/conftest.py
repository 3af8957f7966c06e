"""Two workers in this process are the cluster of the engine that needs one."""

from collections.abc import Iterator

import pytest
from distributed import Client, LocalCluster


@pytest.fixture(autouse=True, scope="session")
def cluster() -> Iterator[None]:
    """Make a cluster of threads, which opens no port, and its client the current."""
    with (
        LocalCluster(
            processes=False, n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as made,
        Client(made),
    ):
        yield
