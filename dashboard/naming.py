"""What measures and roles are called on the page, and how numbers are written."""

from __future__ import annotations

import math

from analysis.findings import MEASURES
from analysis.messages import Message
from analysis.roles import GONE, NO_ROLE, Rule
from dashboard.text import _, say, written

INDUCTION = {
    "induction": "weight on the token after the earlier copy, in repeated random tokens",
    "induction_back": "weight on the token before the later copy, in repeated random tokens",
}
BITS = ("entropy", "entropy_cls")
TOKENS = ("distance",)
# Shares of queries and of a maximum; all other measures without a unit are weights, coloured by their root.
SHARES = ("entropy_normalised", "confidence", "argmax_previous", "argmax_self", "argmax_next")


def measure_name(name: str) -> str:
    """Return what a measure is called."""
    names = {
        "entropy": _("entropy (bits)"),
        "entropy_normalised": _("entropy, share of maximum"),
        "entropy_cls": _("entropy of [CLS] (bits)"),
        "confidence": _("confidence"),
        "self": _("weight on itself"),
        "previous": _("weight on previous token"),
        "next": _("weight on next token"),
        "cls": _("weight on [CLS]"),
        "sep": _("weight on [SEP]"),
        "other_special": _("weight on other specials"),
        "punctuation": _("weight on punctuation"),
        "same_word": _("weight on same token elsewhere"),
        "distance": _("distance (tokens)"),
        "argmax_previous": _("looks most at previous token"),
        "argmax_self": _("looks most at itself"),
        "argmax_next": _("looks most at next token"),
        "block_aa": _("first sentence on itself"),
        "block_ab": _("first sentence on second"),
        "block_ba": _("second sentence on first"),
        "block_bb": _("second sentence on itself"),
        "induction": _("induction"),
        "induction_back": _("induction, mirrored"),
    }
    return names[name]


def measure_definition(name: str) -> str:
    """Return what a measure is, in one sentence."""
    return say(Message({**MEASURES, **INDUCTION}[name]))


def role_name(role: str) -> str:
    """Return what a role is called."""
    names = {
        "previous": _("previous token"),
        "next": _("next token"),
        "self": _("itself"),
        "same word": _("same word"),
        "positional": _("positional"),
        "sink": _("sink"),
        "block": _("own sentence"),
        "broad": _("broad"),
        NO_ROLE: _("no clear role"),
        GONE: _("removed"),
    }
    return names[role]


def task_name(name: str) -> str:
    """Return what a task is called."""
    names = {
        "similarity": _("similarity"),
        "classification": _("classification"),
        "masked": _("masked words"),
        "fidelity": _("fidelity"),
    }
    return names[name]


def protocol_name(name: str) -> str:
    """Return what a protocol of ablation is called."""
    names = {
        "single": _("each head alone"),
        "all-but-one": _("all but one"),
        "set": _("a set of heads"),
        "pairs": _("pairs of heads"),
    }
    return names[name]


def replacement_name(name: str) -> str:
    """Return what stands in for a head that is off."""
    return {"zero": _("zero"), "mean": _("its mean"), "uniform": _("uniform attention")}[name]


def metric_name(name: str) -> str:
    """Return what a score is called."""
    names = {
        "spearman": _("Spearman"),
        "pearson": _("Pearson"),
        "accuracy": _("accuracy"),
        "macro_f1": _("macro F1"),
        "matthews": _("Matthews"),
        "pseudo_log_likelihood": _("log-likelihood of a word (nats)"),
        "top_1": _("share of words guessed first"),
        "cosine": _("cosine with the whole model"),
        "minus_divergence": _("minus divergence from the whole model (bits)"),
    }
    return names[name]


def order_name(name: str) -> str:
    """Return what an order of removal is called."""
    names = {
        "importance": _("importance, each step"),
        "importance-once": _("importance, once"),
        "signed": _("signed importance"),
        "ablation": _("ablation, once"),
        "greedy": _("ablation, each step"),
        "fisher": _("Fisher"),
        "entropy": _("entropy"),
        "random": _("random"),
    }
    return names[name]


def gradient_name(name: str) -> str:
    """Return what a gradient score is called."""
    names = {
        "importance": _("importance, mean |∂L/∂ξ|"),
        "importance_normalised": _("importance by layer"),
        "signed": _("signed mean ∂L/∂ξ"),
    }
    return names[name]


def rule_measures(rule: Rule) -> str:
    """Return of which measures a rule's score is made."""
    parts = [measure_name(name) for name in rule.measures]
    if len(parts) == 1:
        return parts[0]
    joined = ", ".join(parts)
    words = {
        "sum": _("sum of {parts}"),
        "mean": _("mean of {parts}"),
        "max": _("largest of {parts}"),
    }
    return words[rule.combine].format(parts=joined)


def number(value: float) -> str:
    """Return a number with three significant digits, or a dash for none; never an exponent."""
    if math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(digits, 4)}f}"
    text = text.replace("-", "−") if any(digit in text for digit in "123456789") else text.removeprefix("-")
    return written(text)


def interval(value: float, low: float, high: float) -> str:
    """Return a number and the interval it lies in: ``0.931 [0.925, 0.938]``."""
    if math.isnan(value):
        return "–"
    return f"{number(value)} [{number(low)}, {number(high)}]"
