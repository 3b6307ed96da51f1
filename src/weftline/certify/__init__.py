"""Does a plan hold what it says? Checked without any solver, simulator or array library.

In: a plan or schedule file. Out: value and proved bound, re-computed, or a `Refusal` with a code and a sentence.
Simplified: bounds without a witness stay claims; of baselines and provenance only the problem's hash is re-computed.
"""

from weftline.certify.check import Refusal, Unreadable, Verdict, bound_of, check_plan, read_plan
from weftline.certify.check_fit import FitVerdict
from weftline.certify.check_fleet import FleetVerdict
from weftline.certify.check_layers import LayersVerdict
from weftline.certify.check_schedule import ScheduleVerdict
from weftline.certify.run import verify_file

__all__ = [
    "FitVerdict",
    "FleetVerdict",
    "LayersVerdict",
    "Refusal",
    "ScheduleVerdict",
    "Unreadable",
    "Verdict",
    "bound_of",
    "check_plan",
    "read_plan",
    "verify_file",
]
