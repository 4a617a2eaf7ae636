"""Which heads to remove by their Fisher information: Kwon et al. 2022 (arXiv 2204.09656), sections 4.1 and 4.2.

To second order the loss rises by half the sum over the removed heads of E (dL/dm)^2, the gradient of each example by
the gate of each head. Taken as a diagonal, the heads with the smallest sums go (the search). Heads of one layer act
together, so within a layer they are then exchanged one for one while that lowers 1/2 E (sum of dL/dm over the removed)^2,
with how many go from each layer unchanged (the rearrangement).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.maps import Floats, Head
from analysis.tokens import Bools


def fisher_masks(
    each: Floats, counts: Sequence[int], gone: Bools, keep: int = 0, protected: Sequence[Head] = ()
) -> np.ndarray:
    """Return [step, layer, head] which heads are removed at each of ``counts``.

    each: [example, layer, head] the gradient of each example's loss by the gates
    gone: heads that are not there any more
    keep: how many heads each layer keeps at least
    """
    diagonal = (each**2).mean(axis=0)
    fixed = gone.copy()
    for head in protected:
        if head.layer < len(fixed) and head.index < fixed.shape[1]:
            fixed[head.layer, head.index] = True
    masks = []
    for count in counts:
        mask = _search(diagonal, count, fixed, gone, keep)
        for layer, gradients in enumerate(np.moveaxis(each, 1, 0)):
            mask[layer] = rearrange(gradients.T @ gradients / len(gradients), mask[layer], fixed[layer])
        masks.append(mask)
    return np.stack(masks)


def _search(diagonal: Floats, count: int, fixed: Bools, gone: Bools, keep: int) -> Bools:
    """Return the mask of the ``count`` heads of the smallest information that may go."""
    mask = np.zeros_like(fixed)
    for place in np.argsort(diagonal, axis=None, kind="stable"):
        if int(mask.sum()) == count:
            break
        layer, head = divmod(int(place), diagonal.shape[1])
        left = int((~gone[layer] & ~mask[layer]).sum())
        if not fixed[layer, head] and left > keep:
            mask[layer, head] = True
    return mask


def rearrange(information: Floats, mask: Bools, fixed: Bools) -> Bools:
    """Return the mask [head] of one layer after exchanges that lower the loss, as many heads removed as before.

    information: [head, head] E of the products of gradients; the loss of a mask m is m' I m / 2
    """
    best = mask.copy()
    loss = _loss(information, best)
    while True:
        found = None
        for out in np.flatnonzero(best):
            for into in np.flatnonzero(~best & ~fixed):
                tried = best.copy()
                tried[out], tried[into] = False, True
                less = _loss(information, tried)
                if less < loss - 1e-15 * abs(loss):
                    found, loss = tried, less
        if found is None:
            return best
        best = found


def _loss(information: Floats, mask: Bools) -> float:
    return float(information[np.ix_(mask, mask)].sum())
