"""Graph + cluster -> CostTable: how long each op takes on each device, how long each tensor takes between two devices.

In: a Graph and a Cluster (analytic roofline), a `Profile` measured on both, or the costs that a problem file brings.
Out: a `CostTable` of integers.
Simplified: an op's time depends on its device alone, not on what runs beside it; a transfer is latency + size / rate.
"""

from weftline.cost.analytic import analytic_costs
from weftline.cost.profile_file import Profile, load_profile, read_profile, save_profile
from weftline.cost.profiled import profiled_costs
from weftline.cost.table import NO_TIME, CostTable, devices_of_file, expand_file_costs

__all__ = [
    "NO_TIME",
    "CostTable",
    "Profile",
    "analytic_costs",
    "devices_of_file",
    "expand_file_costs",
    "load_profile",
    "profiled_costs",
    "read_profile",
    "save_profile",
]
