"""Problem = graph + devices + costs + limits + rules: everything a solver may know.

In: a Graph and a Cluster, or a file that holds costs. Out: a `Problem` that passed the early feasibility checks, and
its JSON form, which plans embed. Schedules ask another question: `Blocks`, what one micro-batch does on its devices.
Simplified: pins and forbids are folded into the times, as absent times.
"""

from weftline.problem.blocks import Block, Blocks, BlockTable, Lane, blocks_from_json, blocks_to_file, read_blocks
from weftline.problem.feasible import check_feasible
from weftline.problem.load import asked_rules, build_problem, load_problem, read_model
from weftline.problem.model import NO_LIMIT, Problem, Rules, problem_from_json, problem_hash, problem_to_json

__all__ = [
    "NO_LIMIT",
    "Block",
    "BlockTable",
    "Blocks",
    "Lane",
    "Problem",
    "Rules",
    "asked_rules",
    "blocks_from_json",
    "blocks_to_file",
    "build_problem",
    "check_feasible",
    "load_problem",
    "problem_from_json",
    "problem_hash",
    "problem_to_json",
    "read_blocks",
    "read_model",
]
