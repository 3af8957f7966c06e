"""Read tables of any kind in batches of floats and codes.

A reader accepts every cell. A cell that cannot be parsed, is missing or has the wrong
type takes the public default of its column. The result for a row depends on the cells
of that row alone, and no error, warning or type depends on a cell. Public mistakes (a
missing column, an unknown file type) raise an error before the first row is read.

See Also
--------
skdp.tables.cells : the meaning of a cell as a number and as a category.
skdp.tables.csv : the definition of a record of a CSV file.
"""

from skdp.tables.batches import batches
from skdp.tables.csv import CSV

__all__ = ["CSV", "batches"]
