"""The passes of an evaluation: whole ones, and stacked ones from the attention of one layer on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import PreTrainedModel

from analysis.capture import pad
from analysis.models import Model
from analysis.probe import Probe, Replacement, run
from analysis.suffix import States, states

Inputs = dict[str, list[int]]
Reader = Callable[[Any, dict[str, Tensor], list[int]], Tensor]


@dataclass(frozen=True, eq=False)
class Start:
    """A batch of inputs, by their places, and what a whole pass over them left behind."""

    batch: list[int]
    padded: dict[str, Tensor]
    states: States


@dataclass(frozen=True, eq=False)
class Passes:
    """What all passes of one evaluation have in common.

    network: that of ``model``, or its draft (`drafted`) where ``dtype`` is not float32
    read: see `analysis.ablation.evaluate`
    """

    model: Model
    network: PreTrainedModel
    inputs: Sequence[Inputs]
    read: Reader
    replacement: Replacement
    means: Float[np.ndarray, "layer head head_dim"] | None
    dtype: torch.dtype

    @torch.no_grad()
    def start(self, batch: list[int], mask: Bool[np.ndarray, "layer head"], layers: Collection[int]) -> Start:
        """Run a whole pass, keeping what ``layers`` read."""
        padded = pad(self.model, [self.inputs[i] for i in batch])
        with self._precision():
            return Start(batch, padded, states(self.network, padded, self._probe(mask[None], 1), layers))

    @torch.no_grad()
    def value_of(self, start: Start) -> Float[Tensor, "input width"]:
        """Return what is read of a whole pass."""
        return self.read(start.states.outputs, start.padded, start.batch).float()

    @torch.no_grad()
    def stack(
        self,
        suffix: PreTrainedModel,
        first: int,
        start: Start,
        masks: Bool[np.ndarray, "variant layer head"],
    ) -> Float[Tensor, "variant input width"]:
        """Run variants as one batch from the attention of layer ``first`` on: all inputs of one, then of the next."""
        high, rows = len(masks), len(start.batch)
        context, instead = start.states.contexts[first]
        if instead is not None and len(instead) > 1:
            instead = _repeat(instead, high)
        probe = replace(self._probe(masks, rows), first=first, kept=(_repeat(context, high), instead))
        padded = {name: _repeat(given, high) for name, given in start.padded.items()}
        state = _repeat(start.states.inputs[first], high)
        with self._precision():
            inputs = {"inputs_embeds": state, "attention_mask": padded["attention_mask"]}
            outputs = run(suffix, inputs, probe)
        return self.read(outputs, padded, start.batch * high).float().reshape(high, rows, -1)

    def _probe(self, masks: Bool[np.ndarray, "variant layer head"], rows: int) -> Probe:
        device = self.network.device
        gates = torch.from_numpy(~masks).float().to(device).repeat_interleave(rows, dim=0)
        means = None if self.means is None else torch.from_numpy(self.means).float().to(device)
        return Probe(gates=gates, replacement=self.replacement, means=means)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.network.device.type, self.dtype, enabled=self.dtype != torch.float32)


def drafted(network: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Return a copy whose linear layers are in ``dtype`` once and for all; it shares the other parameters.

    Under autocast, states and norms stay in float32: twice as close to it as a copy all in ``dtype``.
    """
    draft = copy.deepcopy(network, {id(parameter): parameter for parameter in network.parameters()})
    for module in draft.modules():
        if isinstance(module, torch.nn.Linear):
            for name, parameter in list(module.named_parameters(recurse=False)):
                setattr(module, name, torch.nn.Parameter(parameter.to(dtype), requires_grad=False))
    return draft


def _repeat(rows: Tensor, times: int) -> Tensor:
    return rows.repeat(times, *(1 for _ in rows.shape[1:]))
