"""Hospital: readmissions, made up, so that a run needs no file."""

import pandas as pd

from skdp.datasets import make_hospital
from tables import Table

NAME = "hospital"


def load() -> Table:
    """Draw the table, always the same one."""
    data = make_hospital(n_rows=10_000)
    columns = dict(data.columns)
    target = columns.pop("readmitted")
    return Table(pd.DataFrame(columns), target, data.schema)
