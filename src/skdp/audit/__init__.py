"""Audits: what an attacker who sees everything released can prove about a claim.

`mechanism` audits one kind of release, `fit` whole fits of an estimator, and `one_run`
a single fit with many canaries. All tables are made up; no record of anybody is read.
An audit can refute a claim. It cannot prove one: that is what the theorems are for.
"""

from skdp.audit.fits import fit
from skdp.audit.judge import Audit
from skdp.audit.mechanisms import MECHANISMS, mechanism
from skdp.audit.one_run import OneRun, one_run

__all__ = ["MECHANISMS", "Audit", "OneRun", "fit", "mechanism", "one_run"]
