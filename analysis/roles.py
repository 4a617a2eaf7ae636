"""What a head is for, by rules that are written down and can be adjusted; "no clear role" is an answer.

A rule is a score between 0 and 1 made of the measures of `analysis.measures`, and the threshold from which
on the head has that role. The 90% rule for positional heads is that of Voita et al. 2019 (arXiv 1905.09418),
section 5.1; the kinds of heads are those of Clark et al. 2019 and Kovaleva et al. 2019 (arXiv 1908.08593).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.findings import HeadStatistics
from analysis.maps import Floats

NO_ROLE = "mixed"
GONE = "removed"
COMBINE: dict[str, Callable[[Floats], Floats]] = {
    "sum": lambda parts: parts.sum(axis=0),
    "mean": lambda parts: parts.mean(axis=0),
    "max": lambda parts: parts.max(axis=0),
}


@dataclass(frozen=True)
class Rule:
    """A role: its letter in the grid, the measures whose sum or maximum is its score, and its threshold."""

    role: str
    letter: str
    measures: tuple[str, ...]
    threshold: float
    combine: str = "sum"


# Of the roles whose threshold a head reaches, it has the one it exceeds most, as a ratio; of equals the first.
RULES = (
    Rule("previous", "P", ("previous",), 0.5),
    Rule("next", "N", ("next",), 0.5),
    Rule("self", "S", ("self",), 0.5),
    Rule("same word", "W", ("same_word",), 0.3),
    Rule("positional", "O", ("argmax_previous", "argmax_self", "argmax_next"), 0.9, "max"),
    Rule("sink", "C", ("cls", "sep"), 0.6),
    Rule("block", "B", ("block_aa", "block_bb"), 0.9, "mean"),
    Rule("broad", "D", ("entropy_normalised",), 0.9),
)


def scores(found: HeadStatistics, rules: Sequence[Rule] = RULES) -> Floats:
    """Return [rule, layer, head] the score of every role; 0 where its measures are not defined, NaN for removed heads."""
    tables = []
    for rule in rules:
        parts = np.nan_to_num(np.stack([found.table(name) for name in rule.measures]))
        tables.append(COMBINE[rule.combine](parts))
    return np.where(found.gone, np.nan, np.stack(tables))


def roles(found: HeadStatistics, rules: Sequence[Rule] = RULES) -> np.ndarray:
    """Return [layer, head] the role of every head, ``"mixed"`` where it has no clear one, ``"removed"`` where it is gone."""
    excess = scores(found, rules) / np.array([rule.threshold for rule in rules])[:, None, None]
    names = np.array([rule.role for rule in rules], dtype=object)[excess.argmax(axis=0)]
    return np.where(found.gone, GONE, np.where(excess.max(axis=0) >= 1, names, NO_ROLE))
