"""What is measured of every head in every attention row, reduced as soon as the weights arrive.

Each measure is a number for every query. Its definition stands in `analysis.findings.MEASURES`; a collection's
number is the mean over the queries for which it is defined (a first token has no previous one). Positions and tokens are the
model's own pieces.

Entropy and mass on kinds of tokens: Clark et al. 2019 (arXiv 1906.04341). Confidence: Voita et al. 2019
(arXiv 1905.09418), section 4.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from analysis.findings import MEASURES
from analysis.maps import Specials

KINDS = ("cls", "sep", "other_special", "punctuation", "a", "b")


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known of the tokens of a padded batch, the same for all layers.

    real: which tokens are no padding; special: which are special
    kinds: 1.0 where a token is of a kind of `KINDS`
    ids: vocabulary numbers, to tell equal tokens
    """

    real: Bool[Tensor, "batch token"]
    special: Bool[Tensor, "batch token"]
    kinds: Float[Tensor, "batch token kind"]
    ids: Int[Tensor, "batch token"]

    def without_specials(self) -> tuple[Rows, Int[Tensor, "batch kept"]]:
        """Return the rows of the other tokens moved together, and where each of them stood."""
        keep = self.real & ~self.special
        order = torch.argsort((~keep).int(), dim=1, stable=True)[:, : max(int(keep.sum(1).max()), 1)]
        return (
            replace(
                self,
                real=keep.gather(1, order),
                special=self.special.gather(1, order) & False,
                kinds=self.kinds.gather(1, order[..., None].expand(-1, -1, len(KINDS))),
                ids=self.ids.gather(1, order),
            ),
            order,
        )


# These are sums of weights over some pairs of tokens, so one matrix product gives them all.
LINEAR = (
    "self", "previous", "next", "cls", "sep", "other_special", "punctuation", "same_word", "distance",
    "block_aa", "block_ab", "block_ba", "block_bb",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Plan:
    """What the measures of a batch need beside its weights, prepared once for all layers.

    order: where each token kept stood, or None where all are; real: which tokens of a row are keys
    defined: for each measure the queries for which it is defined
    pairs: for each measure of `LINEAR` how much each pair of query and key counts
    """

    order: Int[Tensor, "batch kept"] | None
    real: Bool[Tensor, "batch token"]
    defined: Float[Tensor, "batch measure token"]
    pairs: Float[Tensor, "batch pair linear"]

    @property
    def counts(self) -> Float[Tensor, "batch measure"]:
        """For how many queries of each example each measure is defined."""
        return self.defined.sum(-1)


def plan(rows: Rows, specials: Specials) -> Plan:
    """Prepare the measures of a batch.

    With ``"hide"`` special tokens are no queries; with ``"renormalise"`` they are no keys either, and the
    tokens around them become neighbours.
    """
    order = None
    if specials == "renormalise":
        rows, order = rows.without_specials()
    queries = rows.real & ~rows.special if specials == "hide" else rows.real
    places = torch.arange(rows.real.shape[1], device=rows.real.device)
    steps = places[None, :] - places[:, None]  # [query, key]
    equal = (rows.ids[:, :, None] == rows.ids[:, None, :]) & rows.real[:, None, :] & ~rows.special[:, None, :]
    equal = equal & (steps != 0)
    defined = _defined(rows, queries, equal.any(-1)).to(rows.kinds.dtype)
    return Plan(order, rows.real, defined, _pairs(rows, steps, equal, defined))


def _pairs(rows: Rows, steps: Tensor, equal: Tensor, defined: Tensor) -> Tensor:
    """Return [batch, pair, linear] how much each pair counts, pairs running key by key within each query."""
    kind = {name: rows.kinds[:, None, :, i] for i, name in enumerate(KINDS)}  # [batch, 1, key]
    patterns = {
        "self": steps == 0,
        "previous": steps == -1,
        "next": steps == 1,
        **{name: kind[name] for name in KINDS[:4]},
        "same_word": equal,
        "distance": steps.abs(),
        "block_aa": kind["a"],
        "block_ab": kind["b"],
        "block_ba": kind["a"],
        "block_bb": kind["b"],
    }
    names = list(MEASURES)
    counted = [patterns[name] * defined[:, names.index(name), :, None] for name in LINEAR]
    return torch.stack(counted, dim=-1).flatten(1, 2)


def _defined(rows: Rows, queries: Tensor, has_equal: Tensor) -> Bool[Tensor, "batch measure token"]:
    in_a, in_b = (rows.kinds[..., KINDS.index(side)].bool() & queries for side in ("a", "b"))
    is_cls = rows.kinds[..., KINDS.index("cls")].bool()
    is_first = torch.arange(rows.real.shape[1], device=rows.real.device) == 0
    before, after = queries & _shifted(rows.real, -1), queries & _shifted(rows.real, 1)
    where = dict.fromkeys(MEASURES, queries) | {
        "entropy_cls": queries & is_cls & is_first,
        "confidence": queries & ~rows.special,
        "previous": before,
        "argmax_previous": before,
        "next": after,
        "argmax_next": after,
        **{name: queries & _any_of(rows, name) for name in ("cls", "sep", "other_special")},
        "same_word": queries & has_equal,
        "block_aa": in_a & in_b.any(1, keepdim=True),
        "block_ab": in_a & in_b.any(1, keepdim=True),
        "block_ba": in_b,
        "block_bb": in_b,
    }
    return torch.stack(list(where.values()), dim=1)


def _any_of(rows: Rows, kind: str) -> Bool[Tensor, "batch one"]:
    """Return whether a text has any token of a kind: without one, a weight on it means nothing."""
    return (rows.kinds[..., KINDS.index(kind)].bool() & rows.real).any(1, keepdim=True)


def measure(
    weights: Float[Tensor, "batch head query key"],
    mask: Bool[Tensor, "batch 1 query key"] | None,
    plan: Plan,
) -> Float[Tensor, "batch measure head"]:
    """Return, for each example, the sum of every measure over the queries for which it is defined.

    mask: True where a key may be attended; None: everywhere
    """
    if plan.order is not None:
        weights = _gathered(weights, plan.order) * plan.real[:, None, None, :]
        weights = weights / weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        mask = None if mask is None else _gathered(mask, plan.order)
    sums = dict(zip(LINEAR, (weights.flatten(2) @ plan.pairs).unbind(-1), strict=True))
    for name, value in _by_row(weights, mask, plan).items():  # [batch, head, query]
        where = plan.defined[:, list(MEASURES).index(name), :, None]
        sums[name] = (value @ where).squeeze(-1)
    return torch.stack([sums[name] for name in MEASURES], dim=1)


def _gathered(table: Tensor, order: Tensor) -> Tensor:
    """Return ``table`` [batch, head, query, key] at the tokens ``order`` [batch, kept] on both sides."""
    heads, n = table.shape[1], order.shape[1]
    table = table.gather(2, order[:, None, :, None].expand(-1, heads, -1, table.shape[3]))
    return table.gather(3, order[:, None, None, :].expand(-1, heads, n, -1))


def _by_row(weights: Tensor, mask: Tensor | None, plan: Plan) -> dict[str, Tensor]:
    """Return the measures that need a row as a whole, [batch, head, query]."""
    bits = torch.special.entr(weights).sum(-1) / math.log(2)
    allowed = plan.real[:, None, None, :] if mask is None else mask & plan.real[:, None, None, :]
    most = torch.log2(allowed.sum(-1).clamp_min(1).to(bits.dtype))  # [batch, 1, query]
    top, at = weights.max(-1)
    offset = at - torch.arange(weights.shape[-1], device=weights.device)
    none = torch.where(top.isnan(), top, 0)  # NaN for heads that were removed
    return {
        "entropy": bits,
        "entropy_normalised": (bits / most.clamp_min(1e-9) * (most > 0)).clamp_max(1),
        "entropy_cls": bits,
        "confidence": top,
        "argmax_previous": (offset == -1) + none,
        "argmax_self": (offset == 0) + none,
        "argmax_next": (offset == 1) + none,
    }


def _shifted(real: Tensor, step: int) -> Tensor:
    """Return [batch, query] whether the token at ``query + step`` is a real one."""
    if step < 0:
        return torch.nn.functional.pad(real[:, :-1], (1, 0))
    return torch.nn.functional.pad(real[:, 1:], (0, 1))
