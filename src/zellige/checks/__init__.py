"""Looking after stored data: `validate`, `repair`, `vacuum` and `diff`."""

from zellige.checks.comparing import Differences, diff
from zellige.checks.repairing import Repaired, repair, vacuum
from zellige.checks.validating import Finding, Report, validate

__all__ = ["Differences", "Finding", "Repaired", "Report", "diff", "repair", "vacuum", "validate"]
