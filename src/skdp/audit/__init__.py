"""Audits: test a privacy claim by attacking it with everything that was released.

`mechanism` audits one kind of release, `fit` whole fits of an estimator, and `one_run`
a single fit with many canaries. All tables are synthetic. An audit can refute a claim,
but it cannot prove one; the theorems do that.
"""

from skdp.audit.fits import fit
from skdp.audit.games import Audit
from skdp.audit.mechanisms import MECHANISMS, mechanism
from skdp.audit.one_run import OneRun, one_run

__all__ = ["MECHANISMS", "Audit", "OneRun", "fit", "mechanism", "one_run"]
