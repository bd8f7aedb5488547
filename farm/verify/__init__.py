"""The independent check of a schedule: every number is computed again from the demands and the circuits.

Nothing of the search is used or believed, and circuits given by orbits are written out here. Not proved: that no other
schedule is better. Of the lower bound only the part is proved again that follows from counting the bytes at the busiest
GPU of each step; the report says how much that is. Of the envelope only the piece of this schedule is compared with its
costs; of the other pieces, that they fit together.
"""

from lumenfarm.verify.checks import Finding, VerifyReport, verify

__all__ = ["Finding", "VerifyReport", "verify"]
