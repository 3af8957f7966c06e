"""Readers: turn a table of any kind into batches of floats and codes.

A reader accepts every cell. A cell that does not parse, is missing or has the wrong
type takes the public default of its column. A row's result depends on its own cells
alone, and no error, warning or type depends on a cell. Public mistakes (a missing
column, an unknown file type) raise an error before the first row is read.

See Also
--------
skdp.tables.cells : the meaning of a cell as a number and as a category.
skdp.tables.csv : the definition of a record of a CSV file.
"""

from skdp.tables.batches import batches
from skdp.tables.csv import CSV

__all__ = ["CSV", "batches"]
