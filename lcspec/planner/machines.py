"""Cost curves of other machines than this one, to say what would pay there."""

from lcspec.planner.cost import CostCurve

MACHINES: dict[str, tuple[dict[int, float], float]] = {
    "2-cores-135m": ({1: 1, 2: 1.8, 3: 2.7, 4: 3, 6: 4.2, 8: 5.2, 12: 7.2, 16: 9.3, 32: 18, 64: 33, 128: 66}, 0.5),
    "2-cores": ({1: 1, 2: 1.6, 3: 2.1, 4: 2.8, 7: 4.5, 8: 7.3, 16: 9, 32: 16, 64: 27, 128: 50}, 0.5),
    "2-cores-avx512": ({1: 1, 2: 1.5, 3: 2, 4: 2.6, 7: 4.2, 8: 5.5, 16: 6.8, 32: 12, 64: 24, 128: 45}, 0.55),
    "2-cores-vnni": ({1: 1, 2: 1.5, 3: 1.8, 4: 1.8, 8: 3.1, 16: 3.9, 32: 6.4, 64: 11.2, 128: 20.8}, 0.58),
    "2-cores-bf16": ({1: 1, 2: 1.4, 3: 1.5, 4: 1.8, 7: 2.3, 8: 2.5, 16: 3.4, 32: 5.6, 64: 11, 128: 22}, 0.28),
    "2-cores-q8": ({1: 1, 2: 1.5, 3: 1.7, 4: 1.9, 7: 3.2, 8: 3, 16: 4.8, 32: 8.2, 64: 16, 128: 32}, 0.32),
    "4-cores": ({1: 1, 2: 1.2, 4: 1.6, 8: 2.6, 16: 4.2, 32: 7.5, 64: 14, 128: 27}, 0.45),
    "8-cores": ({1: 1, 2: 1.1, 4: 1.3, 8: 1.7, 16: 2.5, 32: 4.2, 64: 7.7, 128: 14.5}, 0.4),
    "16-cores": ({1: 1, 2: 1.05, 4: 1.15, 8: 1.35, 16: 1.75, 32: 2.6, 64: 4.3, 128: 7.9}, 0.38),
    "gpu": ({1: 1, 2: 1.02, 4: 1.05, 8: 1.1, 16: 1.2, 32: 1.4, 64: 1.8, 128: 2.6}, 0.35),
}
"""By name, passes of the target over n tokens and a draft token, in passes over one. The first six are rounded
measurements (the first two with AVX2, the others with AVX-512), the others are assumed: more cores pay for more
tokens at once."""

FLATTER = ("4-cores", "8-cores", "16-cores", "gpu")
"""Assumed ones, where a pass over several tokens costs little more than over one."""

_SECONDS = 0.05  # of a pass over one token


def curve_of(ratios: dict[int, float]) -> CostCurve:
    """Return a curve from passes over n tokens in passes over one."""
    return CostCurve({width: _SECONDS * ratio for width, ratio in ratios.items()})
