"""The colour scales, and the ink that can be read on each of their colours.

Viridis for shares and RdBu for differences, as Plotly has them; both are even to the eye and hold for the
common kinds of colour blindness. Attention is coloured by its square root: nine in ten weights of a
sentence are below 0.1 and would otherwise all be one dark blue. The range stays 0 to 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

from plotly.colors import find_intermediate_color, get_colorscale, unconvert_from_RGB_255, unlabel_rgb

Stop = tuple[float, str]
STEPS = 32  # stops of a bent scale: between them Plotly mixes in a straight line


def _labels(name: str) -> list[Stop]:
    return [(float(at), colour) for at, colour in get_colorscale(name)]


@lru_cache(maxsize=4096)
def colour(name: str, share: float) -> str:
    """Return the colour of the scale ``name`` at ``share`` 0 to 1, as ``rgb(r, g, b)``."""
    share = min(max(share, 0.0), 1.0)
    stops = _scale(name)
    for (low, first), (high, second) in itertools.pairwise(stops):
        if share <= high:
            return find_intermediate_color(first, second, (share - low) / (high - low), colortype="rgb")
    return stops[-1][1]


@lru_cache
def _scale(name: str) -> tuple[Stop, ...]:
    from plotly.colors import hex_to_rgb, label_rgb

    return tuple(
        (at, label_rgb(hex_to_rgb(shade)) if shade.startswith("#") else shade) for at, shade in _labels(name)
    )


def ink(fill: str) -> str:
    """Return black or white, whichever has the higher contrast on ``fill`` (at least 4.58:1)."""
    return "#000000" if luminance(fill) > 0.179 else "#ffffff"


def luminance(fill: str) -> float:
    """Return the relative luminance, 0 to 1, of a colour ``rgb(r, g, b)`` (WCAG 2.2)."""
    parts = unconvert_from_RGB_255(unlabel_rgb(fill))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def attention_scale() -> list[Stop]:
    """Return Viridis bent by the square root, for weights 0 to 1 as they are."""
    return [((i / STEPS) ** 2, colour("Viridis", i / STEPS)) for i in range(STEPS + 1)]


def difference_scale() -> list[Stop]:
    """Return RdBu bent by the root of the size, for differences -1 to 1: red is less, blue is more."""
    shares = [i / STEPS for i in range(-STEPS, STEPS + 1)]
    return [((math.copysign(s * s, s) + 1) / 2, colour("RdBu", (s + 1) / 2)) for s in shares]


def attention_stops() -> list[Stop]:
    """Return the colour bar of `attention_scale`: even steps of the root."""
    return [(i / 16, colour("Viridis", i / 16)) for i in range(17)]


def difference_stops() -> list[Stop]:
    """Return the colour bar of `difference_scale`: even steps of the signed root."""
    return [(i / 16, colour("RdBu", i / 16)) for i in range(17)]


def root_ticks(values: Sequence[float]) -> list[float]:
    """Return where on a scale by the root of the size the ``values`` stand."""
    return [math.copysign(math.sqrt(abs(v)), v) for v in values]
