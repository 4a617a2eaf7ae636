"""One word in two texts: how far its vectors have grown apart after each layer of a model.

A word's embedding is the same in every text; what surrounds it enters by attention only (Ethayarajh 2019,
arXiv 1909.00512, measures it over a corpus).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from analysis.capture import Encoded, encode, pad
from analysis.maps import Floats
from analysis.messages import TextError
from analysis.models import Model
from analysis.probe import Probe
from analysis.suffix import states
from analysis.tokens import Ints, clip

WORD = "bank"
# In all of these the word has the same position, so its vectors are equal until the first layer.
TEXTS = ("He sat on the bank of the river.", "She asked at the bank about an account.")
ALIKE = (TEXTS[0], "We walked along the bank of the stream.")  # the same sense, to compare with


@dataclass(frozen=True, eq=False)
class Senses:
    """Cosines between the vectors of one word in two texts; 1 for vectors of one direction.

    places: where its first piece stands among the model's tokens, in each text
    embedding: of the word embeddings alone: 1
    positioned: of what the first layer reads, positions added: 1 where the places are the same
    layers: [layer] of what each layer gives
    vectors: [2, layers + 2, model] the vectors, in this order
    """

    word: str
    texts: tuple[str, str]
    places: tuple[int, int]
    embedding: float
    positioned: float
    layers: Floats
    vectors: Floats


@torch.no_grad()
def senses(model: Model, word: str = WORD, texts: tuple[str, str] = TEXTS) -> Senses:
    """Return how alike the vectors of ``word`` are in two texts, its first occurrence in each, whatever its case.

    The vectors of a word of several pieces are averaged. Raises TextError for a text without the word.
    """
    examples = [encode(model, text) for text in texts]
    places = [_places(example, word) for example in examples]
    inputs = pad(model, [example.inputs for example in examples])
    layers = model.geometry.layers
    found = states(model.network, inputs, Probe(), range(layers + 1)).inputs
    words = model.network.get_input_embeddings()(inputs["input_ids"])
    one, other = (
        [_mean(state[row], where) for state in [words, *(found[i] for i in range(layers + 1))]]
        for row, where in enumerate(places)
    )
    cosines = [
        float(torch.cosine_similarity(a, b, dim=0).clamp(-1, 1)) for a, b in zip(one, other, strict=True)
    ]
    width = max(len(vector) for vector in one)  # word embeddings can be narrower, as in ALBERT
    return Senses(
        word=word,
        texts=texts,
        places=(int(places[0][0]), int(places[1][0])),
        embedding=cosines[0],
        positioned=cosines[1],
        layers=np.array(cosines[2:]),
        vectors=np.stack([[_wide(vector, width) for vector in side] for side in (one, other)]),
    )


def _places(example: Encoded, word: str) -> Ints:
    """Return where the pieces of the first occurrence of ``word`` stand."""
    tokens = example.tokens
    labels = tokens.as_words().labels
    for number, label in enumerate(labels):
        if label.casefold() == word.strip().casefold():
            return np.flatnonzero(tokens.word == number)
    raise TextError(
        "There is no word {word} in “{text}”. Choose one that both texts have.",
        word=clip(word) or "“”",
        text=clip(tokens.texts[0]),
    )


def _mean(state: Tensor, places: Ints) -> Tensor:
    """Return the mean vector [model] of some rows of a state [token, model], in float64."""
    return state[torch.from_numpy(places).to(state.device)].double().mean(dim=0).cpu()


def _wide(vector: Tensor, width: int) -> Floats:
    return np.pad(vector.numpy(), (0, width - len(vector)), constant_values=np.nan)
