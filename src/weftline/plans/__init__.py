"""Plans and schedules as files: what was decided, for which inputs, how good it is, and by whom.

In: decisions with their value and bounds. Out: a `Plan` or `Schedule`, which embeds its problem and can be saved,
loaded, summed up, explained and compared. Simplified: explanations change one thing at a time.
"""

from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.plans.compare import Difference, diff_plans
    from weftline.plans.explain import SlowestStage, explain_plan, explain_stage
    from weftline.plans.fleet import FleetPlan, load_fleet
    from weftline.plans.limits import Binding, binding_limits
    from weftline.plans.moves import Move, OpStory, explain_op
    from weftline.plans.plan import Plan, load_plan, save_plan
    from weftline.plans.result import PlacedOp, placed_ops, plan_result

__all__ = [
    "Binding",
    "Difference",
    "FleetPlan",
    "Move",
    "OpStory",
    "PlacedOp",
    "Plan",
    "SlowestStage",
    "binding_limits",
    "diff_plans",
    "explain_op",
    "explain_plan",
    "explain_stage",
    "load_fleet",
    "load_plan",
    "placed_ops",
    "plan_result",
    "save_plan",
]

_HOMES = {
    "compare": ("Difference", "diff_plans"),
    "explain": ("SlowestStage", "explain_plan", "explain_stage"),
    "fleet": ("FleetPlan", "load_fleet"),
    "limits": ("Binding", "binding_limits"),
    "moves": ("Move", "OpStory", "explain_op"),
    "plan": ("Plan", "load_plan", "save_plan"),
    "result": ("PlacedOp", "placed_ops", "plan_result"),
}
__getattr__ = lazy_names(
    __name__, {name: f"weftline.plans.{module}" for module, names in _HOMES.items() for name in names}
)
