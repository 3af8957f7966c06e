"""Property tests have no deadline: machines that run them may be busy.

`pytest --fast` leaves out the folders in `SLOW`, which take most of the time.
`pytest --nightly` adds the tests marked `nightly`. They take long and rarely fail where
the others pass, which have an example of each. And it draws fresh noise: otherwise each
test has the same noise in every run (`bits.py`).
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from bits import BITS

# Each process of pytest has a core. A second thread of linear algebra would share it,
# and wait for the first in a busy loop: that was most of the time of these tests. The
# libraries read this once, when numpy is first imported, which is after this file.
for library in ("OPENBLAS", "MKL", "BLIS"):
    os.environ[f"{library}_NUM_THREADS"] = "1"


#: Files and folders that take more than a few seconds each.
SLOW = (
    *("hostile", "docs", "experiments", "audit", "attack", "solvers", "cli"),
    *("reporting", "evaluation", "inference", "verification"),
    "privacy/test_accountant.py",
    "privacy/test_discovery.py",
    "privacy/test_profiles.py",
    "privacy/test_randomness.py",
    "privacy/test_sensitivity.py",
    "privacy/test_visits.py",
    "ledger/test_together.py",
    "ledger/test_released.py",
    "ledger/test_fits.py",
    "conformance/test_engines.py",
    "descent/test_algorithm1.py",
    "descent/test_geometry.py",
    "engines/test_dask.py",
    "engines/test_dask_persons.py",
    "engines/test_sparse.py",
    "estimators/test_additive.py",
    "estimators/test_checks.py",
    "estimators/test_composition.py",
    "estimators/test_doubts.py",
    "estimators/test_one_record.py",
    "estimators/test_onnx_export.py",
    "estimators/test_summary.py",
    "estimators/test_sklearn_export.py",
    "planning/test_forecast.py",
    "theory/test_theory.py",
    "test_mutants.py",
    "test_project.py",
)
#: Folders and files with tests of what seeds give, or of the generator.
SHOWN = {"oracle", "docs", "cli", "experiments", "privacy", "test_summary.py"}


@pytest.fixture(scope="module", autouse=True)
def few_deviates(request):
    """Draw 512 normal deviates at a time, and not 4096: tiny fits use up to that many.

    Drawing ahead takes a third of the time of such fits, and changes no distribution.
    But it changes what a seed gives, which some tests know.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not SHOWN & set(request.path.parts):
            patch.setattr("skdp.privacy.randomness.POOL", 512)
        yield


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leave out slow tests")
    parser.addoption("--nightly", action="store_true", help="add the slowest tests")


def pytest_configure(config):
    nightly = config.getoption("--nightly")
    settings.register_profile("skdp", deadline=None, derandomize=not nightly)
    settings.load_profile("skdp")
    if not nightly:
        import skdp.privacy.randomness

        skdp.privacy.randomness.os = BITS


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    with BITS.named(collector.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with BITS.named(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    if fixturedef.scope == "function":
        return (yield)
    place = f"{fixturedef.baseid} {fixturedef.argname}"
    with BITS.named(f"{place} {getattr(request, 'param_index', 0)}"):
        return (yield)


def pytest_collection_modifyitems(config, items):
    tests = Path(__file__).parent
    slow = [tests / name for name in SLOW] if config.getoption("--fast") else []
    nightly = config.getoption("--nightly")
    left_out = [
        item
        for item in items
        if any(item.path == one or one in item.path.parents for one in slow)
        or (not nightly and item.get_closest_marker("nightly"))
    ]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]
