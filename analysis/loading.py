"""The network and the tokenizer of a checkpoint, with the head it has and without those of its heads that are gone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from analysis.checkpoint import Checkpoint
from analysis.messages import Message, ModelError, first_line, message
from analysis.probe import ATTENTION, removed
from analysis.surgery import pruned_class

ReadoutKind = Literal["embedding", "classification", "regression", "masked"]


@dataclass(frozen=True)
class Readout:
    """What the network says at its end, and the names of its classes where it has some."""

    kind: ReadoutKind
    labels: tuple[str, ...] = ()


def load(checkpoint: Checkpoint) -> tuple[PreTrainedModel, Readout, tuple[Message, ...]]:
    """Load the network with the head that the checkpoint has; what is missing is told, never invented."""
    notes: list[Message] = []
    loader = {"classification": AutoModelForSequenceClassification, "masked": AutoModelForMaskedLM}.get(
        checkpoint.head, AutoModel
    )
    network, missing, surplus = _from_pretrained(checkpoint, loader)
    if missing and loader is not AutoModel:
        base = network.base_model_prefix + "."
        inside = [key for key in missing if key.startswith(base) and "pooler" not in key]
        if not inside:
            notes.append(
                message(
                    "The checkpoint names the head {head} but has no weights for it: opened without a head.",
                    head=checkpoint.architecture,
                )
            )
            network, missing, surplus = _from_pretrained(checkpoint, AutoModel)
    elif checkpoint.head == "other":
        notes.append(
            message(
                "The head {head} is left out: Headroom reads classifiers, masked-word models and encoders.",
                head=checkpoint.architecture,
            )
        )
    if missing:
        raise ModelError(
            "The weights of {name} lack {count} of the network's parameters, such as {key}: they would be "
            "random. Save the whole model again.",
            name=checkpoint.name,
            count=len(missing),
            key=missing[0],
        )
    if surplus:
        notes.append(
            message(
                "The checkpoint holds {count} weights of layers that its config does not name, such as {key}: "
                "they are left out.",
                count=len(surplus),
                key=surplus[0],
            )
        )
    if checkpoint.pruned:
        notes.append(
            message(
                "{count} of {all} heads were removed from this model; the others keep their numbers.",
                count=int(removed(network).sum()),
                all=removed(network).size,
            )
        )
    network.eval()
    network.requires_grad_(False)
    return network, _readout(network), tuple(notes)


def _from_pretrained(checkpoint: Checkpoint, loader: Any) -> tuple[PreTrainedModel, list[str], list[str]]:
    """Return the network, the parameters that it lacks, and the weights of layers that it does not have.

    The pooler may be missing where it is not used: only classifiers use it.
    """
    try:
        opener = loader
        if checkpoint.pruned:
            config = AutoConfig.from_pretrained(checkpoint.folder, local_files_only=True)
            opener = pruned_class(loader._model_mapping[type(config)], checkpoint.pruned)
        network, info = opener.from_pretrained(
            checkpoint.folder,
            attn_implementation=ATTENTION,
            dtype=torch.float32,
            output_attentions=False,  # a config saved with True makes the line above raise
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:  # a broken file can raise anything, and none of it may reach the reader raw
        raise ModelError(
            "{name} cannot be read: {reason}. Check that its files are whole and belong together.",
            name=checkpoint.name,
            reason=first_line(error),
        ) from error
    pools = loader is AutoModelForSequenceClassification
    missing = sorted(key for key in info["missing_keys"] if pools or "pooler" not in key)
    surplus = sorted(key for key in info["unexpected_keys"] if re.search(r"\blayers?\.\d+\.", key))
    return network, missing, surplus


def _readout(network: PreTrainedModel) -> Readout:
    architecture = type(network).__name__
    if architecture.endswith("ForMaskedLM"):
        return Readout("masked")
    if not architecture.endswith("ForSequenceClassification"):
        return Readout("embedding")
    if network.config.num_labels == 1:
        return Readout("regression")
    names = network.config.id2label
    return Readout("classification", tuple(str(names.get(i, i)) for i in range(network.config.num_labels)))


def load_tokenizer(checkpoint: Checkpoint, network: PreTrainedModel) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a checkpoint. Raises ModelError for one that does not fit its network."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            checkpoint.folder, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        raise ModelError(
            "The tokenizer of {name} cannot be read: {reason}. Save it again beside the model.",
            name=checkpoint.name,
            reason=first_line(error),
        ) from error
    if not tokenizer.is_fast:
        raise ModelError(
            "The tokenizer of {name} does not tell where in the text a token stands. "
            "Save its fast form (tokenizer.json) beside the model.",
            name=checkpoint.name,
        )
    rows = network.config.vocab_size
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= rows:
        raise ModelError(
            "The tokenizer of {name} goes up to token {largest}, but the model has only {rows} word vectors: "
            "they do not belong together. Save the model's own tokenizer beside it.",
            name=checkpoint.name,
            largest=largest,
            rows=rows,
        )
    return tokenizer
