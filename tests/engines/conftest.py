"""One cluster for all tests that leave it as it was."""

import logging

import pytest
from distributed import LocalCluster


def _start_cluster(n_workers, **options):
    """Start workers with one thread each, in this process."""
    return LocalCluster(
        processes=False,
        n_workers=n_workers,
        threads_per_worker=1,
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        **options,
    )


@pytest.fixture(scope="session")
def start_cluster():
    """A function that starts a cluster which a test may disturb."""
    return _start_cluster


@pytest.fixture(scope="session")
def cluster():
    """Two workers in this process, behind a port of this machine."""
    with _start_cluster(2, protocol="tcp") as made:
        yield made
