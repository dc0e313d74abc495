"""How often draft tokens of each kind are accepted, as recordings of real models have it."""

import json
from functools import cache
from importlib import resources
from typing import TypeAlias

Priors: TypeAlias = dict[str, dict[str, float]]
"""By drafter and kind of token, the chance that it is accepted when those before it were."""


@cache
def shipped_priors() -> Priors:
    """Return what `python -m bench.calibration --write` fitted."""
    text = resources.files("lcspec.planner").joinpath("priors.json").read_text(encoding="utf-8")
    priors: Priors = json.loads(text)["priors"]
    return priors
