"""That a smaller network says what the masked one says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool

from analysis.capture import encode, pad
from analysis.messages import HeadroomError
from analysis.models import Model
from analysis.probe import Probe, run
from analysis.problems import embed

TEXTS = ("The cat sat on the mat.", "A man plays a guitar while it rains outside.", "It is.")
CLOSE = 1e-5  # of the largest output; embeddings have length 1 and are held to 1e-6
CLOSE_EMBEDDING = 1e-6


def apart(
    whole: Model, heads: Bool[np.ndarray, "layer head"], small: Model, texts: Sequence[str] = TEXTS
) -> float:
    """Return the largest difference between the masked and the smaller network: of embeddings, or of logits as a share.

    Raises HeadroomError where they do not say the same, or where the mask changes nothing at all: then it was not used.
    """
    batch = pad(whole, [encode(whole, text).inputs for text in texts])
    gates = torch.from_numpy(~heads)[None].float().to(whole.network.device)
    with torch.no_grad():
        sides = [
            run(whole.network, batch, Probe(gates=gates)),
            run(small.network, batch, Probe()),
            run(whole.network, batch, Probe()),
        ]
        if whole.readout.kind == "embedding":
            masked, smaller, before = (embed(side, batch, ()) for side in sides)
            scale, limit = 1.0, CLOSE_EMBEDDING
        else:
            real = batch["attention_mask"].bool() if whole.readout.kind == "masked" else slice(None)
            masked, smaller, before = (side.logits[real] for side in sides)
            scale, limit = float(masked.abs().max()), CLOSE
    found = float((masked - smaller).abs().max()) / scale
    if not found <= limit:  # NaN too
        raise HeadroomError(
            "The smaller model differs from the masked one by {found:.1e}, more than {limit:.0e}: it is not kept.",
            found=found,
            limit=limit,
        )
    if (heads & ~whole.gone).any() and torch.equal(masked, before):
        raise HeadroomError(
            "Removing these heads changes nothing at all: the mask was not used. Nothing is kept."
        )
    return found
