"""How much to draft: what passes cost, how likely drafts are right, and the choice between them.

Numbers in, choices out: nothing here knows a model, a drafter or the loop.
"""

from lcspec.planner.acceptance import AcceptanceTable
from lcspec.planner.choice import Length, best_length, worth
from lcspec.planner.cost import WIDEST, CostCurve
from lcspec.planner.draft_model import break_even
from lcspec.planner.explanation import Explanation
from lcspec.planner.gain import Gain, expected_gain
from lcspec.planner.layout import BATCH, LayoutChoice
from lcspec.planner.machines import FLATTER, MACHINES, curve_of
from lcspec.planner.planner import PLAIN, Plan, Planner
from lcspec.planner.priors import Priors, shipped_priors

__all__ = [
    "BATCH",
    "FLATTER",
    "MACHINES",
    "PLAIN",
    "WIDEST",
    "AcceptanceTable",
    "CostCurve",
    "Explanation",
    "Gain",
    "LayoutChoice",
    "Length",
    "Plan",
    "Planner",
    "Priors",
    "best_length",
    "break_even",
    "curve_of",
    "expected_gain",
    "shipped_priors",
    "worth",
]
