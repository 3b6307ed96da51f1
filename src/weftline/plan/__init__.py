"""Plan: what was decided, for which inputs, how good it is, and by whom.

In: a Problem and the name of a solver. Out: a `Plan` with value, bound, gap, proof and baselines, which embeds its
problem and can be saved, loaded, explained and compared. Simplified: baselines use the same simulator, without a search
of their own.
"""

from weftline.plan.compare import Difference, diff_plans
from weftline.plan.explain import explain_op, explain_plan
from weftline.plan.files import load_plan, save_plan
from weftline.plan.make import make_plan
from weftline.plan.model import Plan
from weftline.plan.result import plan_result

__all__ = [
    "Difference",
    "Plan",
    "diff_plans",
    "explain_op",
    "explain_plan",
    "load_plan",
    "make_plan",
    "plan_result",
    "save_plan",
]
