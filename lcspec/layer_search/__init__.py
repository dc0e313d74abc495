"""Which of a target's blocks its draft can do without: searched for by the target's own words."""

from lcspec.layer_search.branches import MOST_BRANCHES, BranchedText
from lcspec.layer_search.calibration import LONGEST_SAMPLE, Sample, Texts, text_digest
from lcspec.layer_search.frontier import CutCosts, Frontier, Point, cut_costs, frontier_of
from lcspec.layer_search.likeness import check_likeness
from lcspec.layer_search.scores import KeptScores, Score, Scorer, agreed_tokens
from lcspec.layer_search.search import Budget, Found, search
from lcspec.layer_search.searching import DEPTHS, Searched, search_layers
from lcspec.layer_search.switched import SwitchedBlocks

__all__ = [
    "DEPTHS",
    "LONGEST_SAMPLE",
    "MOST_BRANCHES",
    "BranchedText",
    "Budget",
    "CutCosts",
    "Found",
    "Frontier",
    "KeptScores",
    "Point",
    "Sample",
    "Score",
    "Scorer",
    "Searched",
    "SwitchedBlocks",
    "Texts",
    "agreed_tokens",
    "check_likeness",
    "cut_costs",
    "frontier_of",
    "search",
    "search_layers",
    "text_digest",
]
