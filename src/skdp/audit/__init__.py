"""Test privacy claims by attacking them with everything that was released.

`mechanism` audits one kind of release. `fit` audits whole fits of an estimator.
`one_run` audits a single fit with many canaries, which are records made to be detected.
All tables are synthetic. An audit can refute a claim, but only a theorem can prove it.
"""

from skdp.audit.fits import fit
from skdp.audit.games import Audit
from skdp.audit.mechanisms import MECHANISMS, mechanism
from skdp.audit.one_run import OneRun, one_run

__all__ = ["MECHANISMS", "Audit", "OneRun", "fit", "mechanism", "one_run"]
