"""The history checker: reads the database alone and says which promise was broken."""

from headway.verify.check import check
from headway.verify.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
