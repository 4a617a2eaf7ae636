"""What the Learn pages remember. Sentences of one's own stay in the session; all else a link may say."""

from __future__ import annotations

from dashboard.choice import Choice

STEPS: dict[str, tuple[str, ...]] = {
    "by_hand": ("two-heads", "module"),
    "shapes": ("shapes",),
    "six_steps": ("one", "many", "patterns", "concat", "mix", "together", "two-layers"),
    "variations": ("causal", "cross", "scale", "order", "cost", "context"),
    "questions": ("questions",),
}
PART = Choice("part", tuple(step for steps in STEPS.values() for step in steps))
TENSORS = ("x", "Q", "K", "V", "view", "transpose", "scores", "softmax", "context", "concat", "output")
MASKING = Choice("masking", ("none", "causal", "boolean", "additive"))
TENSOR = Choice("tensor", TENSORS)
SPLIT = Choice("split", ("1", "2", "4", "8"), first="8")
CONCAT = Choice("blocks", ("1", "2", "4", "8"), first="8")
SOURCE = Choice("source", ("toy", "bert"))
AHEAD = Choice("ahead", ("masked", "open"))
PLACES = Choice("positions", ("without", "with"))
ORDERED = Choice("second", ("same", "moved"))
SENSE = Choice("sense", ("apart", "alike"))

WIDTH, HEADS, LENGTH, OTHER, BATCH, SEED = "width", "heads_by_hand", "length", "other", "batch", "seed"
WORD, TOY_HEAD, REAL_LAYER = "word", "toy_head", "real_layer"
DIMENSIONS, LONGEST, DEPTH, NARROW = "dimensions", "longest", "depth", "narrow"
STATES = "states"  # the numbers of the example, rows with semicolons between
OUT = "out"  # heads that are off in the sum, with commas between
GATES = "gates"  # heads that are off in the trained network, as layer.head with commas between

CHOICES = (PART, MASKING, TENSOR, SPLIT, CONCAT, SOURCE, AHEAD, PLACES, ORDERED, SENSE)
NUMBERS = (
    WIDTH,
    HEADS,
    LENGTH,
    OTHER,
    BATCH,
    SEED,
    WORD,
    TOY_HEAD,
    REAL_LAYER,
    DIMENSIONS,
    LONGEST,
    DEPTH,
    NARROW,
)
WRITTEN = (STATES, OUT, GATES)
LINKS: dict[str, tuple[str, ...]] = {
    "by_hand": (PART.key, MASKING.key, WIDTH, HEADS, LENGTH, OTHER, SEED, STATES),
    "shapes": (TENSOR.key, BATCH, LENGTH, WIDTH, HEADS, SEED),
    "six_steps": (PART.key, SPLIT.key, CONCAT.key, SOURCE.key, WORD, TOY_HEAD, REAL_LAYER, SEED, OUT, GATES),
    "variations": (
        PART.key,
        AHEAD.key,
        PLACES.key,
        ORDERED.key,
        SENSE.key,
        WORD,
        TOY_HEAD,
        DIMENSIONS,
        LONGEST,
        DEPTH,
    ),
    "questions": (NARROW,),
}

CROSSED = "learn.crossed"  # the two sentences that are crossed, of the reader's own
DONE = "learn.done"  # the tasks that were solved in this session: page.step.task
