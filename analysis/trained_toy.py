"""A network of two layers of attention and nothing else, trained while one looks: an induction circuit appears.

It reads letters: a random passage, said again and again, each time another passage of another length. What comes
next can be known from the second time on only, and by no fixed distance: by a head that looks from a letter to what
followed it before, which needs a head below it that has marked each letter with the one before (Olsson et al. 2022,
arXiv 2209.11895; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). It is so small that its
training takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from analysis.capture import toy_tokens
from analysis.maps import AttentionMaps, Floats
from analysis.messages import OptionError
from analysis.toy import MultiHeadAttention

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
LENGTH = 32  # letters of a sequence
PERIODS = (4, 16)  # letters of a passage, from and to: it is said twice at least
D_MODEL, HEADS, LAYERS = 32, 4, 2
STEPS, EVERY = 600, 20
BATCH = 32
RATE, SETTLE = 6e-3, 0.6  # the step width, and the share of the steps from which on it falls to a tenth
GAIN = 0.3  # of W_V and W_O at the start: heads that begin quietly come to differ
EVALUATED = 64  # sequences that losses and scores are taken from, never trained on
CHANCE = math.log(len(LETTERS))  # loss in nats of guessing


class Said(NamedTuple):
    """Sequences and the lengths of their passages."""

    letters: Int[Tensor, "batch token"]
    periods: Int[Tensor, "batch 1"]


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a training stands, measured on sequences that it does not see.

    loss: mean cross-entropy in nats of the next letter, where it can be known; `CHANCE` for a guess
    previous: [head of layer 0] mean weight from a letter to the one before, while a passage is said the first time
    induction: [head of layer 1] mean weight from a letter to those that followed it before
    network: the trained network, in the last one only
    """

    step: int
    loss: float
    previous: Floats
    induction: Floats
    network: AttentionOnly | None = None

    @property
    def scores(self) -> Floats:
        """The score of each head in its layer's role, [layer, head], 0 to 1."""
        return np.stack([self.previous, self.induction])


class AttentionOnly(nn.Module):
    """Embeddings of letters and positions, two layers of causal attention added to the state, a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), D_MODEL)
        self.places = nn.Embedding(LENGTH, D_MODEL)
        self.first = MultiHeadAttention(D_MODEL, HEADS)
        self.second = MultiHeadAttention(D_MODEL, HEADS)
        self.readout = nn.Linear(D_MODEL, len(LETTERS), bias=False)

    def forward(
        self, letters: Int[Tensor, "batch token"], gates: Float[Tensor, "layer head"] | None = None
    ) -> tuple[Float[Tensor, "batch token letter"], Float[Tensor, "layer batch head query key"]]:
        """Return the logits of the next letter after each, and the weights of every head.

        gates: the factor of each head's context, 1 where None
        """
        state = self.embed(letters)
        maps = []
        for number, layer in enumerate((self.first, self.second)):
            added, weights = layer(state, causal=True, gates=None if gates is None else gates[number][None])
            state = state + added
            maps.append(weights)
        return self.readout(state), torch.stack(maps)

    def embed(self, letters: Int[Tensor, "batch token"]) -> Float[Tensor, "batch token model"]:
        """Return the states before the first layer: what each letter is, and where it stands."""
        return self.letters(letters) + self.places.weight[: letters.shape[1]]


def train(seed: int = 0, *, steps: int = STEPS, every: int = EVERY) -> Iterator[Progress]:
    """Train a network from ``seed`` and tell how it stands before the first step, every so many, and after the last.

    The same seed gives the same course on the same machine. Raises OptionError for less than one step.
    """
    if steps < 1 or every < 1:
        raise OptionError("A training takes 1 step at least, not {given}.", given=min(steps, every))
    generator = torch.Generator().manual_seed(seed)
    network = _start(generator)
    seen = say(EVALUATED, generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE, betas=(0.9, 0.98))
    for step in range(steps):
        if step % every == 0:
            yield _measure(network, seen, step)
        for group in optimizer.param_groups:
            group["lr"] = _rate(step / steps)
        with torch.enable_grad():
            said = say(BATCH, generator)
            loss = loss_of(network(said.letters[:, :-1])[0], said)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    done = _measure(network, seen, steps)
    network.eval().requires_grad_(False)
    yield Progress(done.step, done.loss, done.previous, done.induction, network)


def say(count: int, generator: torch.Generator) -> Said:
    """Draw sequences: a passage of different letters, 4 to 16 of them, said again until the sequence is full."""
    periods = torch.randint(PERIODS[0], PERIODS[1] + 1, (count, 1), generator=generator)
    passages = torch.rand(count, len(LETTERS), generator=generator).argsort(dim=1)
    return Said(passages.gather(1, torch.arange(LENGTH) % periods), periods)


@torch.no_grad()
def trained_maps(network: AttentionOnly, letters: str) -> AttentionMaps:
    """Return the maps of both layers over up to 32 capital letters, [layer, head, query, key].

    Raises OptionError for anything else.
    """
    if not 1 <= len(letters) <= LENGTH or not set(letters) <= set(LETTERS):
        raise OptionError(
            "This network reads 1 to {most} capital letters from A to Z, not “{given}”. Type some.",
            most=LENGTH,
            given=letters[: LENGTH + 1],
        )
    tokens = toy_tokens(" ".join(letters))
    _, weights = network(torch.tensor([[LETTERS.index(letter) for letter in letters]]))
    n = len(letters)
    allowed = np.broadcast_to(np.tri(n, dtype=bool), (LAYERS, n, n))
    return AttentionMaps(tokens, tokens, weights[:, 0].numpy(), "trained toy", attendable=allowed)


def _start(generator: torch.Generator) -> AttentionOnly:
    """Return an untrained network drawn from ``generator``."""
    network = AttentionOnly()
    for table in (network.letters, network.places):
        nn.init.normal_(table.weight, generator=generator)
    for layer in (network.first, network.second):
        for name, gain in (("query", 1.0), ("key", 1.0), ("value", GAIN), ("output", GAIN)):
            part = layer.get_submodule(name)
            nn.init.xavier_uniform_(part.get_parameter("weight"), gain=gain, generator=generator)
            nn.init.zeros_(part.get_parameter("bias"))
    nn.init.xavier_uniform_(network.readout.weight, generator=generator)
    return network


def _rate(done: float) -> float:
    """Return the step width after this share of the training: level, then half a cosine down."""
    fall = max(done - SETTLE, 0) / (1 - SETTLE)
    return RATE * (0.1 + 0.45 * (1 + math.cos(math.pi * fall)))


@torch.no_grad()
def _measure(network: AttentionOnly, said: Said, step: int) -> Progress:
    logits, maps = network(said.letters[:, :-1])
    previous, induction = role_scores(maps, said)
    return Progress(step, float(loss_of(logits, said)), previous, induction)


def loss_of(logits: Float[Tensor, "batch token letter"], said: Said) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the next letter where it can be known: from the passage's second time on."""
    known = predictable(said)
    return cross_entropy(logits[known], said.letters[:, 1:][known])


def predictable(said: Said) -> Bool[Tensor, "batch query"]:
    """Return after which letters the next one can be known: from the first one said the second time on."""
    return torch.arange(LENGTH - 1) >= said.periods


def role_scores(maps: Float[Tensor, "layer batch head query key"], said: Said) -> Floats:
    """Return [layer, head] the previous-token scores of layer 0 and the induction scores of layer 1."""
    place = torch.arange(LENGTH - 1)
    back = place[:, None] - place  # [query, key] how far a key lies back
    first = ((place > 0) & (place < said.periods))[:, :, None] & (back == 1)
    # the letter after an earlier copy of the query: a whole number of passages back, less one; the first is after none
    after = (back >= 0) & (place > 0) & ((back + 1) % said.periods[:, :, None] == 0)
    after = after & predictable(said)[:, :, None]
    found = []
    for weights, pairs in zip(maps, (first, after), strict=True):
        queries = pairs.any(dim=-1).sum()
        found.append((weights * pairs[:, None]).sum(dim=(0, 2, 3)) / queries)
    return torch.stack(found).numpy()
