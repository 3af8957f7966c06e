"""Readers: a table of any kind becomes batches of floats and codes.

A reader is total on cells. What does not parse, is missing or is of the wrong type
takes the public default of its column; a row's outcome depends on its own cells alone;
no error, warning or chosen type depends on a cell. What is public and wrong (a missing
column, an unknown file type) raises before the first row is read.

See Also
--------
skdp.tables.cells : what a cell means as a number and as a category.
skdp.tables.csv : what a record of a CSV file is.
"""

from skdp.tables.batches import batches
from skdp.tables.csv import CSV

__all__ = ["CSV", "batches"]
