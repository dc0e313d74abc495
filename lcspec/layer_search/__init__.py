"""Which of a target's blocks its draft can do without: searched for by the target's own words."""

from lcspec.layer_search.calibration import Sample, own_prompts, prompts_of_text, text_digest, written_samples
from lcspec.layer_search.frontier import CutCosts, Frontier, Point, cut_costs, frontier_of
from lcspec.layer_search.scores import KeptScores, Score, Scorer, agreed_tokens, score_of
from lcspec.layer_search.search import Budget, Found, search
from lcspec.layer_search.switched import SwitchedBlocks

__all__ = [
    "Budget",
    "CutCosts",
    "Found",
    "Frontier",
    "KeptScores",
    "Point",
    "Sample",
    "Score",
    "Scorer",
    "SwitchedBlocks",
    "agreed_tokens",
    "cut_costs",
    "frontier_of",
    "own_prompts",
    "prompts_of_text",
    "score_of",
    "search",
    "text_digest",
    "written_samples",
]
