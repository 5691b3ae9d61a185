"""The history checker: reads the database and reports broken invariants."""

from headway.verify.check import check
from headway.verify.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
