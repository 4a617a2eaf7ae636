"""The trained toy without some of its heads: one, a role, or one after the other by their scores.

Roles are shared: what one of several heads does is missed little while another does the same (as the backup heads of
Wang et al. 2022, arXiv 2211.00593), and sorely without all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from analysis.maps import Floats
from analysis.tokens import Bools, Ints
from analysis.trained_toy import (
    D_MODEL,
    EVALUATED,
    HEADS,
    AttentionOnly,
    Said,
    loss_of,
    predictable,
    role_scores,
    say,
)

ROLE = 0.5  # of the best score of its layer, from which on a head has the layer's role
# All sets of a layer's heads, [set, head]: the number of a set has a binary digit for each head.
BITS = 2 ** np.arange(HEADS)
SETS = (np.arange(2**HEADS)[:, None] & BITS) > 0


@dataclass(frozen=True, eq=False)
class Removed:
    """Losses in nats without 0, 1, ... and all heads of a layer, each [removed].

    highest, lowest: those of the highest or of the lowest scores go first
    average: the mean over all sets of as many heads
    """

    highest: Floats
    lowest: Floats
    average: Floats


@dataclass(frozen=True, eq=False)
class Pruned:
    """The loss in nats of a trained network without some of its heads.

    whole: with all of them
    scores: [layer, head] of each in its layer's role
    alone: [layer, head] without this one
    roles: [layer, head] which have their layer's role: half the best score of the layer or more
    without_role: [layer] without all heads of a layer's role; only_roles: with those of both roles alone
    layers: of each layer, without some of its heads
    both: without as many heads of each layer
    """

    whole: float
    scores: Floats
    alone: Floats
    roles: Bools
    without_role: Floats
    only_roles: float
    layers: tuple[Removed, ...]
    both: Removed


@torch.no_grad()
def loss_without(network: AttentionOnly, off: Bools, *, seed: int = 0) -> float:
    """Return the loss in nats with the heads ``off`` [layer, head] switched off, on sequences drawn from ``seed``."""
    said = say(EVALUATED, torch.Generator().manual_seed(seed))
    return float(loss_of(network(said.letters[:, :-1], torch.from_numpy(~off).float())[0], said))


@torch.no_grad()
def prune(network: AttentionOnly, *, seed: int = 0) -> Pruned:
    """Remove heads by their scores, one, a role, or one after the other, and return what that costs."""
    said = say(EVALUATED, torch.Generator().manual_seed(seed))
    scores = role_scores(network(said.letters[:, :-1])[1], said)
    losses = _all_losses(network, said)
    of_layer = (losses[:, :1], losses[:1])  # the other layer whole
    whole, every = np.zeros(HEADS + 1, dtype=int), len(SETS) - 1
    roles = scores >= ROLE * scores.max(axis=1, keepdims=True)
    first, second = roles @ BITS
    rising = scores.argsort(axis=1, kind="stable")
    lowest, highest = _on_the_way(rising), _on_the_way(rising[:, ::-1])
    return Pruned(
        whole=float(losses[0, 0]),
        scores=scores,
        alone=np.stack([one.ravel()[BITS] for one in of_layer]),
        roles=roles,
        without_role=np.array([losses[first, 0], losses[0, second]]),
        only_roles=float(losses[every - first, every - second]),
        layers=(
            _removed(losses[:, :1], (highest[0], whole), (lowest[0], whole)),
            _removed(losses[:1], (whole, highest[1]), (whole, lowest[1])),
        ),
        both=_removed(losses, (highest[0], highest[1]), (lowest[0], lowest[1])),
    )


def _on_the_way(order: Ints) -> Ints:
    """Return [layer, removed] the sets of the first heads of an order [layer, head]: none, one, ... all."""
    return np.pad(BITS[order].cumsum(axis=1), ((0, 0), (1, 0)))


def _removed(losses: Floats, highest: tuple[Ints, Ints], lowest: tuple[Ints, Ints]) -> Removed:
    """Return what is lost along two ways, given as sets of both layers, and on average over sets of these sizes."""
    sizes = SETS.sum(axis=1)
    average = []
    for removed in range(HEADS + 1):
        rows, columns = (sizes == removed if n > 1 else np.array([True]) for n in losses.shape)
        average.append(losses[np.ix_(rows, columns)].mean())
    return Removed(losses[highest], losses[lowest], np.array(average))


def _all_losses(network: AttentionOnly, said: Said) -> Floats:
    """Return [set, set] the loss without each set of heads of layer 0 and each of layer 1, numbered as in `SETS`.

    What the heads of the last layer add to the logits is a sum, so all its sets take one pass.
    """
    letters, known = said.letters[:, :-1], predictable(said)
    first, second = network.first, network.second
    start = network.embed(letters)
    rows = second.output.weight.T.view(HEADS, -1, D_MODEL)  # [head, head_dim, model]
    kept = torch.from_numpy(~SETS).float()  # [set, head]
    losses = []
    for gates in kept:
        state = start + first(start, causal=True, gates=gates[None])[0]
        context = second.trace(state, causal=True).context  # [batch, head, query, head_dim]
        context = context.transpose(0, 1)[:, known]  # [head, known, head_dim]
        parts = network.readout(context @ rows)  # [head, known, letter]
        logits = network.readout(state[known] + second.output.bias)  # [known, letter]
        every = logits + torch.einsum("sh,hkl->skl", kept, parts)  # [set, known, letter]
        target = said.letters[:, 1:][known].expand(len(kept), -1)
        losses.append(cross_entropy(every.transpose(1, 2), target, reduction="none").mean(dim=1))
    return torch.stack(losses).double().numpy()
