"""What a session remembers, each key named once, and which of it a link carries.

A link carries the model, the head and the choices, and shipped texts by their number; never a sentence of
one's own.
"""

from __future__ import annotations

from analysis.findings import MEASURES
from analysis.maps import Head
from dashboard.choice import Choice
from dashboard.learn import keys as learn

LAYER, HEAD = "layer", "head"
LAYER_B, HEAD_B = "layer2", "head2"
SEEDS, KEEP, ALONG = (
    "seeds",
    "keep",
    "along",
)  # random orders; heads that each layer keeps; heads gone on the slider
NUMBERS = (LAYER, HEAD, LAYER_B, HEAD_B, SEEDS, KEEP, ALONG, *learn.NUMBERS)  # None until chosen
TEXT, PAIR, EXAMPLE = "text", "pair", "example"
LINES = "lines"  # places of the queries whose lines are drawn, [] for all, None for the one query
WITH = "with"  # further heads whose lines are drawn: layer.head, a comma between
SIDES, MINIMAL = "sides", "minimal"  # two sentences to compare, and the number of a shipped pair or None
QUERY, KEY = "query", "key"  # places in the model's input, None until a text has been read
OFF = "off"  # the heads that are switched off, as a link says them, or None
OFF_BEFORE = "off.before"  # what was off earlier, the latest last
SET = "heads"  # the heads of a set or of pairs, as layer.head with commas between
WATCH = "watch"  # the head whose attention is watched: layer.head, or None for the one that moves most
RULES = "rules"  # thresholds that differ from the written rules, by the letter of the role
MODEL_B = "model2"  # what the chosen model is compared with
MODEL, MODEL_ASKED, MODEL_ERROR, MODEL_READY = "model", "model.asked", "model.error", "model.ready"

FIRST_LINK = "link.first"  # the places of query and key that a text starts with, which a link need not say
PAGE, WRITTEN, ACTED = "page", "link.written", "acted"

MOST_STRANDS = 7  # heads whose lines are drawn together: as many colours can be told apart
ARRIVAL = Head(3, 1)  # what the first example's link leads to, on the bundled model


COLOUR = Choice("colour", ("link", "entropy"))
VIEW = Choice("view", ("map", "lines", "heads", "beside", "why"))
LENS = Choice("lens", ("weights", "norms", "rollout"))
SCOPE = Choice("scope", ("layer", "model"))
SPECIALS = Choice("specials", ("keep", "hide", "renormalise"))
UNITS = Choice("units", ("words", "pieces"))
BLOCK = Choice("block", ("all", "AA", "AB", "BA", "BB"))
OWN_TEXTS = "own"
TEXTS = Choice("texts", ("english", "indonesian", OWN_TEXTS))
WEIGHTING = Choice("weighting", ("queries", "texts"))
MEASURE = Choice(
    "measure",
    (
        "entropy_normalised",
        *(m for m in MEASURES if m != "entropy_normalised"),
        "induction",
        "induction_back",
    ),
)
CELLS = Choice("cells", ("letters", "numbers"))
PANEL = Choice("panel", ("head", "map", "matrix", "layers"))
COMPARE = Choice("compare", ("sentences", "sources", "heads", "models"))
PICTURE = Choice("picture", ("difference", "first", "second"))
GRID = Choice("shown", ("difference", "first", "second"))
PICK = Choice("pick", ("first", "second"))
TASK = Choice("task", ("similarity", "classification", "masked", "fidelity"))
OWN_DATA = "own"
DATA = Choice("data", ("en", "id", OWN_DATA))
PROTOCOL = Choice("protocol", ("single", "all-but-one", "set", "pairs"))
REPLACEMENT = Choice("replace", ("zero", "mean", "uniform"))
PRECISION = Choice("precision", ("full", "draft"))
METRIC = Choice(
    "metric",
    (
        "spearman",
        "pearson",
        "accuracy",
        "macro_f1",
        "matthews",
        "pseudo_log_likelihood",
        "top_1",
        "cosine",
        "minus_divergence",
    ),
)
AGAINST = Choice("against", ("ranked", "importance", "measure", "control"))
GRADIENT = Choice("gradient", ("importance", "importance_normalised", "signed"))
ORDERS = "orders"  # the orders of removal that are drawn, with commas between, or None for the first ones
FIRST_ORDERS = ("fisher", "random")
FIRST_SEEDS = 5
STEP = Choice("step", ("0.1", "0.05", "0.25", "0"))  # share of the heads that goes at a step; 0 for one head
PROTECT = "protect"  # heads that never go, as layer.head with commas between
LOSS = Choice("loss", ("0.02", "0.01", "0.005", "0.05", "0"))  # of score, that is allowed
ORDER = "order"  # the order that the slider goes along, or None for the best
SIDE = Choice("side", ("first", "second"))  # of two sentences that are read apart
CHOICES = (
    TASK,
    DATA,
    PROTOCOL,
    REPLACEMENT,
    PRECISION,
    METRIC,
    AGAINST,
    GRADIENT,
    STEP,
    LOSS,
    SIDE,
    COMPARE,
    PICTURE,
    GRID,
    PICK,
    COLOUR,
    VIEW,
    LENS,
    SCOPE,
    SPECIALS,
    UNITS,
    BLOCK,
    TEXTS,
    WEIGHTING,
    MEASURE,
    CELLS,
    PANEL,
    *learn.CHOICES,
)
WRITTEN_OUT = (WITH, OFF, WATCH, SET, ORDERS, ORDER, PROTECT, *learn.WRITTEN)  # lists in words, or None
LINK_NAMES = (
    *(choice.key for choice in CHOICES),
    *NUMBERS,
    *WRITTEN_OUT,
    RULES,
    EXAMPLE,
    MINIMAL,
    QUERY,
    KEY,
    MODEL,
    MODEL_B,
)
# What the link of each page carries, beside the model and what the page adds itself.
PAGE_LINKS: dict[str, tuple[str, ...]] = {
    "": (),
    **learn.LINKS,
    "attention": (
        *(choice.key for choice in (COLOUR, VIEW, LENS, SCOPE, SPECIALS, UNITS, BLOCK)),
        *NUMBERS,
        WITH,
    ),
    "heads": (
        *(choice.key for choice in (TEXTS, SPECIALS, WEIGHTING, MEASURE, CELLS, PANEL)),
        LAYER,
        HEAD,
        RULES,
    ),
    "live": (*(choice.key for choice in (PICTURE, SIDE, SPECIALS, UNITS)), LAYER, HEAD, OFF, WATCH),
    "ablation": (
        *(
            choice.key
            for choice in (
                TASK,
                DATA,
                PROTOCOL,
                REPLACEMENT,
                PRECISION,
                METRIC,
                AGAINST,
                GRADIENT,
                MEASURE,
            )
        ),
        LAYER,
        HEAD,
        SET,
    ),
    "pruning": (
        *(choice.key for choice in (TASK, DATA, STEP, LOSS)),
        LAYER,
        HEAD,
        ORDERS,
        ORDER,
        PROTECT,
        SEEDS,
        KEEP,
        ALONG,
    ),
    "compare": (
        *(
            choice.key
            for choice in (COMPARE, PICTURE, GRID, PICK, UNITS, TEXTS, SPECIALS, WEIGHTING, MEASURE)
        ),
        *NUMBERS,
    ),
}
