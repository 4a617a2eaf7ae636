"""What the Heads page looks at: the statistics, their texts, and the roles by the rules of the session."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from analysis.findings import HeadStatistics
from analysis.maps import Head, largest
from analysis.roles import GONE, NO_ROLE, RULES, Rule, roles, scores
from dashboard import keys, state, thresholds
from dashboard.corpus import Corpus


@dataclass(frozen=True, eq=False)
class View:
    """What the page looks at: the statistics, the texts they come from, and the roles by the rules chosen."""

    found: HeadStatistics
    corpus: Corpus
    model: str
    rules: tuple[Rule, ...]
    roles: np.ndarray  # [layer, head] names
    head: Head

    @classmethod
    def of(cls, found: HeadStatistics, corpus: Corpus, model: str) -> View:
        """Return the view of a session."""
        moved = thresholds.of_session()
        rules = tuple(replace(rule, threshold=moved[rule.letter]) for rule in RULES)
        layers, heads = found.mean.shape[1:]
        head = state.chosen_head(layers, heads, found.gone)
        if st.session_state[keys.LAYER] is None:  # start with the head whose role is the clearest
            clear = scores(found, rules) / np.array([rule.threshold for rule in rules])[:, None, None]
            head = largest(clear.max(axis=0)) or head
        return cls(found, corpus, model, rules, roles(found, rules), head)

    @property
    def shape(self) -> tuple[int, int]:
        """Layers and heads a layer."""
        layers, heads = self.found.mean.shape[1:]
        return layers, heads

    @property
    def count(self) -> int:
        """How many heads the model has; those that were removed are none."""
        return int((~self.found.gone).sum())

    def is_gone(self) -> bool:
        """Whether the head that is chosen was removed from the model."""
        return bool(self.found.gone[self.head.layer, self.head.index])

    def letters(self) -> np.ndarray:
        """Return [layer, head] the letter of each head's role, a dot for none, nothing for a head that was removed."""
        by_role = {rule.role: rule.letter for rule in self.rules} | {NO_ROLE: "·", GONE: ""}
        return np.vectorize(by_role.__getitem__, otypes=[object])(self.roles)
