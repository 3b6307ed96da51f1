"""Plan: what was decided, for which inputs, how good it is, and by whom.

In: a Problem and the name of a solver. Out: a `Plan` with value, bound, gap, proof and baselines, which embeds its
problem and can be saved, loaded, explained and compared; or a `Sweep` over numbers of stages. Simplified: baselines use
the same simulator, without a search of their own.
"""

from weftline.plan.compare import Difference, diff_plans
from weftline.plan.explain import explain_plan
from weftline.plan.explain_limits import Binding, binding_limits
from weftline.plan.explain_moves import Move
from weftline.plan.explain_op import OpStory, explain_op
from weftline.plan.explain_stage import SlowestStage, explain_stage
from weftline.plan.files import load_plan, save_plan
from weftline.plan.make import make_plan
from weftline.plan.model import Plan
from weftline.plan.placed import PlacedOp, placed_ops
from weftline.plan.result import plan_result
from weftline.plan.stage_counts import StageProblems, stage_problems
from weftline.plan.sweep import Sweep, SweepRow, sweep_stages

__all__ = [
    "Binding",
    "Difference",
    "Move",
    "OpStory",
    "PlacedOp",
    "Plan",
    "SlowestStage",
    "StageProblems",
    "Sweep",
    "SweepRow",
    "binding_limits",
    "diff_plans",
    "explain_op",
    "explain_plan",
    "explain_stage",
    "load_plan",
    "make_plan",
    "placed_ops",
    "plan_result",
    "save_plan",
    "stage_problems",
    "sweep_stages",
]
