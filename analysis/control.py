"""A positive control for ablation: a small BERT network set by hand, so that what each of its heads is for is known.

Networks whose parts are known show whether a method finds them (Lindner et al. 2023, arXiv 2301.05062). This one
says of a short text whether its opinion is negative, neutral or positive, and reads "not good" rightly. It needs a
circuit of two heads in two layers, where the keys of the second are made of what the first wrote (Elhage et al. 2021,
"A Mathematical Framework for Transformer Circuits"), and either one of two heads that do the same work (as the backup
heads of Wang et al. 2022, arXiv 2211.00593). The others look as busy and do nothing.

The states are slots. Each token has a one for its word, one for its position and, from layer 0 on, one for whether
it follows a "not". All states have as many ones, so the gain and bias of each LayerNorm undo it; the feed-forward
writes nothing. Layer 1 writes the opinion into [CLS] as plus and minus the same amount, which leaves the mean as it
is; LayerNorm scales it by some positive number then, which leaves the sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import LayerNorm
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer
from transformers.models.bert.modeling_bert import BertLayer

from analysis.datasets import Data
from analysis.maps import Head
from analysis.messages import Message, message
from analysis.models import Model, Readout, measure
from analysis.probe import ATTENTION

Truth = Literal["useful", "idle", "twin"]

NAME = "control"
LABELS = ("negative", "neutral", "positive")
TRUTH: tuple[tuple[Truth, ...], ...] = (
    ("useful", "idle", "idle", "idle"),
    ("useful", "twin", "twin", "idle"),
)
DOES = (
    (
        message(
            "Looks at the word before and marks what follows “not” or “never”: {reader} finds a denied opinion by it.",
            reader=Head(1, 0),
        ),
        message("Looks at “not” or “never”, but its columns of W_O are zero: nothing it reads is written."),
        message("Looks at the next word, but its columns of W_O are zero: nothing it reads is written."),
        message(
            "Looks at the opinion, but adds the same number to all coordinates, which the LayerNorm subtracts again."
        ),
    ),
    (
        message(
            "Looks at an opinion that {marker} marked as denied and writes its opposite, three times as strong as a twin.",
            marker=Head(0, 0),
        ),
        *(
            message(
                "Looks at the opinion and writes whether it is good or bad; {twin} does the same, and one is enough.",
                twin=Head(1, twin),
            )
            for twin in (2, 1)
        ),
        message(
            "Looks at the opinion and writes it into every token but [CLS], the only one that the classifier reads."
        ),
    ),
)

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NEGATORS = ("not", "never")
GOOD = ("good", "great", "funny", "lovely", "clever", "fine")
BAD = ("bad", "dull", "poor", "awful", "silly", "weak")
PLAIN = ("new", "old", "long", "short", "local", "foreign")  # no opinion
PEOPLE = ("i", "we", "they")
VERBS = ("seen", "watched", "missed")
EVENTS = ("film", "play", "show", "match", "race", "dance", "concert", "opera", "series", "game")
LINKS = (", and", ", but", ";")
PIECES = (*SPECIALS, *NEGATORS, *GOOD, *BAD, *PLAIN, *PEOPLE, *VERBS, *EVENTS,
          "have", "the", "was", "and", "but", ",", ";", ".")  # fmt: skip
EXAMPLES = 300
KINDS = ("stated", "denied", "stated", "denied", "none")  # of opinions: in turn

LAYERS, HEADS, HEAD_DIM = 2, 4, 32
WIDTH = HEADS * HEAD_DIM
POSITIONS = HEAD_DIM  # so that a head can compare all positions
TOKEN = slice(0, len(PIECES))
POSITION = slice(TOKEN.stop, TOKEN.stop + POSITIONS)
DENIED, NOT_DENIED, PRO, CONTRA = range(POSITION.stop, POSITION.stop + 4)
ONES = 3  # in a state: its word, its position, whether it is denied
SHARP = 12.0  # score of what a head looks for: a softmax that is surer of it would pass no gradient
TWIN = 0.5  # what a twin writes: both are 1, and with the reader -0.5
READER = -3 * TWIN  # turns the sign whether one twin is there or both
THRESHOLD = 0.35  # of the pooler's tanh, which is 0 without an opinion and 0.7 or more with one


@dataclass(frozen=True, eq=False)
class Control:
    """A model whose heads are known, and data that it solves.

    model: a classifier of 2 layers x 4 heads, in memory only: its folder does not exist
    data: texts with their labels, see `sentences`
    truth: [layer, head] "useful" (the score falls without it), "idle" (no logit changes without it) or "twin" (the
        score stays without it, and falls without both)
    does: [layer][head] what the head does, and why it is needed or not
    """

    model: Model
    data: Data
    truth: np.ndarray
    does: tuple[tuple[Message, ...], ...]


class Parts(NamedTuple):
    """The matrices of one head, as views: rows of W_Q, W_K, W_V [head_dim, model], columns of W_O [model, head_dim]."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


def control(seed: int = 0) -> Control:
    """Return the control: the network is always the same, ``seed`` draws the texts."""
    network = hand_set_network()
    model = Model(
        source=NAME,
        name=NAME,
        folder=Path(NAME),
        network=network,
        tokenizer=BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)}),
        geometry=measure(network),
        readout=Readout("classification", LABELS),
    )
    return Control(model=model, data=sentences(seed), truth=np.array(TRUTH), does=DOES)


def sentences(seed: int = 0, count: int = EXAMPLES) -> Data:
    """Return ``count`` different texts: of five, two state an opinion, two deny one, one has none.

    Every text has two clauses in either order, and one "not" or "never": in the clause with the opinion where it is
    denied, in the other where it is stated. So the same words in another order have another label.
    """
    random = np.random.default_rng(seed)
    labels: dict[str, int] = {}
    while len(labels) < count:
        text, label = _sentence(KINDS[len(labels) % len(KINDS)], random)
        labels.setdefault(text, label)
    return Data(NAME, tuple(labels), np.array(list(labels.values()), dtype=np.int64), LABELS)


def _sentence(kind: str, random: np.random.Generator) -> tuple[str, int]:
    """Return a text and its label."""
    opinion, negator, event, person, verb, adjective, seen, link = (
        words[int(random.integers(len(words)))]
        for words in (PLAIN if kind == "none" else GOOD + BAD, NEGATORS, EVENTS, PEOPLE, VERBS, (*PLAIN, ""),
                      EVENTS, LINKS)
    )  # fmt: skip
    sides = [negator, ""]  # of the clause with the opinion and of the other
    if kind == "stated" or (kind == "none" and random.random() < 0.5):
        sides.reverse()
    clauses = [
        f"the {event} was {sides[0]} {opinion}",
        f"{person} have {sides[1]} {verb} the {adjective} {seen}",
    ]
    if random.random() < 0.5:
        clauses.reverse()
    text = " ".join(f"{clauses[0]}{link} {clauses[1]}.".split())
    if kind == "none":
        return text, LABELS.index("neutral")
    return text, LABELS.index("positive" if (opinion in GOOD) == (kind == "stated") else "negative")


@torch.no_grad()
def hand_set_network() -> BertForSequenceClassification:
    """Return the network, every parameter set; it runs as any other, in evaluation mode and float32."""
    config = BertConfig(
        vocab_size=len(PIECES),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=1,
        max_position_embeddings=POSITIONS,
        type_vocab_size=1,
        pad_token_id=PIECES.index("[PAD]"),
        id2label=dict(enumerate(LABELS)),
        label2id={name: number for number, name in enumerate(LABELS)},
        attn_implementation=ATTENTION,
    )
    network = BertForSequenceClassification(config).eval().requires_grad_(False)
    for parameter in network.parameters():
        parameter.zero_()
    embeddings = network.bert.embeddings
    embeddings.word_embeddings.weight[:, TOKEN] = torch.eye(len(PIECES))
    embeddings.position_embeddings.weight[:, POSITION] = torch.eye(POSITIONS)
    _undo(embeddings.LayerNorm, ONES - 1)
    first, second = network.bert.encoder.layer
    for layer in (first, second):
        _undo(layer.attention.output.LayerNorm, ONES)
        _undo(layer.output.LayerNorm, ONES)
    _set_first([_parts(first, head) for head in range(HEADS)])
    _set_second([_parts(second, head) for head in range(HEADS)])
    network.bert.pooler.dense.weight[0, PRO] = 1
    network.bert.pooler.dense.weight[0, CONTRA] = -1
    network.classifier.weight[:, 0] = torch.tensor([-1.0, 0.0, 1.0])  # in the order of LABELS
    network.classifier.bias[LABELS.index("neutral")] = THRESHOLD
    return network


def _set_first(heads: list[Parts]) -> None:
    """Set layer 0: the word before, and three that leave nothing behind."""
    marker, negation, following, constant = heads
    others = [piece for piece in PIECES if piece not in NEGATORS]
    _look_by_position(marker, -1)
    _carry(marker, 0, dict.fromkeys(_places(NEGATORS), 1.0), {DENIED: 1.0})
    _carry(marker, 1, dict.fromkeys(_places(others), 1.0), {NOT_DENIED: 1.0})
    _look_for(negation, _places(NEGATORS))
    _carry(negation, 0, dict.fromkeys(_places(NEGATORS), 1.0), {})
    _look_by_position(following, 1)
    _carry(following, 0, _opinions(), {})
    _look_for(constant, _places(GOOD + BAD))
    _carry(constant, 0, _opinions(), dict.fromkeys(range(WIDTH), 1.0))


def _set_second(heads: list[Parts]) -> None:
    """Set layer 1: the opinion that is denied, the opinion twice, and the opinion where nobody reads it."""
    reader, twin, other, unread = heads
    _look_for(reader, [*_places(GOOD + BAD), DENIED], together=2)
    _carry(reader, 0, _opinions(), {PRO: READER, CONTRA: -READER})
    for head in (twin, other, unread):
        _look_for(head, _places(GOOD + BAD))
        _carry(head, 0, _opinions(), {PRO: TWIN, CONTRA: -TWIN})
    start = POSITION.start  # of [CLS]
    unread.query[0, start] = 0
    unread.query[1, start] = HEAD_DIM**0.5
    unread.key[1, start] = 3 * SHARP  # [CLS] at itself, so sharply that float32 holds nothing of an opinion


def _look_for(parts: Parts, places: Iterable[int], *, together: int = 1) -> None:
    """Let every token look at a key with ``together`` ones at these coordinates, or at [CLS] where there is none."""
    parts.query[0, POSITION] = HEAD_DIM**0.5  # every state has one position, so all queries are alike
    parts.key[0, list(places)] = SHARP
    parts.key[0, PIECES.index("[CLS]")] = SHARP * (together - 0.5)


def _look_by_position(parts: Parts, step: int) -> None:
    """Let every token look at the one ``step`` after it, or at itself where there is none."""
    positions = torch.eye(POSITIONS)
    # [position of the key, position of the query]
    looked = torch.diag(torch.ones(POSITIONS - abs(step)), diagonal=-step) + positions / 2
    parts.query[:, POSITION] = HEAD_DIM**0.5 * looked
    parts.key[:, POSITION] = SHARP * positions


def _carry(parts: Parts, dimension: int, read: dict[int, float], written: dict[int, float]) -> None:
    """Let one dimension of a head carry what it reads at some coordinates of a key to some of the query's state."""
    for place, factor in read.items():
        parts.value[dimension, place] = factor
    for place, factor in written.items():
        parts.output[place, dimension] = factor


def _opinions() -> dict[int, float]:
    """Return by its coordinate what each opinion counts: 1 where it is good, -1 where it is bad."""
    return dict.fromkeys(_places(GOOD), 1.0) | dict.fromkeys(_places(BAD), -1.0)


def _places(words: Iterable[str]) -> list[int]:
    return [PIECES.index(word) for word in words]


def _parts(layer: BertLayer, head: int) -> Parts:
    rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
    own = layer.attention.self
    return Parts(
        own.query.weight[rows],
        own.key.weight[rows],
        own.value.weight[rows],
        layer.attention.output.dense.weight[:, rows],
    )


def _undo(norm: LayerNorm, ones: int) -> None:
    """Let ``norm`` return what it is given, for states of so many ones and otherwise zeros."""
    mean = ones / WIDTH
    norm.bias.fill_(mean)
    norm.weight.fill_((mean - mean**2 + norm.eps) ** 0.5)
