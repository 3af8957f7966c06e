"""What a fit spends: charged to a ledger beforehand, told if the fit stops half-way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from numbers import Real
from typing import Any

from skdp.estimators.stored_model import plan_digest
from skdp.estimators.stored_record import model_digest
from skdp.ledger import Ledger, refuse_unpaid
from skdp.privacy.budget import PrivacyRecord
from skdp.schema import check

#: Tells the ledger, at the end of a fit, which model is handed out.
Tell = Callable[[Any], None]


def refuse_no_budget(epsilon: Any, delta: Any) -> None:
    """Refuse what is no number, and an ε that is not positive."""
    for name, value, usual in (("epsilon", epsilon, "1"), ("delta", delta, "1e-6")):
        check(
            isinstance(value, Real) or (value is None and name == "delta"),
            f"{name} must be a number. Got {value!r}: take, say, {usual}.",
        )
    check(epsilon > 0, f"epsilon must be positive. Got {epsilon}: take 1.")


def payer(ledger: Any, epsilon: float, random_state: Any) -> Ledger | None:
    """Return the ledger that a fit charges, if any, before anything is read.

    A path must be absolute: processes that fit at once may be in different folders.
    """
    if ledger is None:
        return None
    refuse_unpaid(epsilon, random_state is not None)
    if isinstance(ledger, Ledger):
        return ledger
    check(
        isinstance(ledger, (str, os.PathLike)) and os.path.isabs(ledger),
        "ledger must be a Ledger or the absolute path of one. Got "
        f"{ledger!r}: pass skdp.Ledger(path), which resolves it now.",
    )
    return Ledger(ledger)


@contextmanager
def spending(
    record: PrivacyRecord, ledger: Ledger | None, *, query: str, described: Any
) -> Iterator[Tell]:
    """Reserve a fit's budget, settle it after, and say what was spent if it stops.

    Releases are charged before anything is drawn, so that neither the ledger nor the
    note ever says less than what was spent; both hold public and released facts only.
    """
    with ExitStack() as stack:
        reservation = None
        if ledger is not None:
            paid = ledger.spend(record, query=query, schema=described)
            reservation = stack.enter_context(paid)

        def tell(model: Any) -> None:
            if reservation is not None:
                reservation.plan = plan_digest(model.plan_)
                reservation.schema = model.schema_
                reservation.released = model_digest(model, record)

        try:
            yield tell
        except BaseException as stop:
            if record.events:
                stop.add_note(f"Spent before the fit stopped:\n{record}")
            raise
