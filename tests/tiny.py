"""Tiny models with random weights, and small real tokenizers, made in memory: nothing is downloaded.

Initial weights are large (0.3), so that attention is far from uniform and every head matters enough for
a test to see it.
"""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertTokenizerFast,
    DistilBertTokenizerFast,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaTokenizerFast,
)

VOCABULARY = 64
LAYERS, HEADS, WIDTH = 3, 4, 32
CLASSES = {  # of each family: the prefix of its classes
    "bert": "Bert",
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "electra": "Electra",
    "distilbert": "DistilBert",
    "albert": "Albert",
    "modernbert": "ModernBert",
}
FAMILIES = list(CLASSES)
HEAD_CLASSES = {
    "headless": "Model",
    "classification": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "masked": "ForMaskedLM",
    "questions": "ForQuestionAnswering",
}
KINDS = list(HEAD_CLASSES)


def tiny_config(family: str, **changes: object) -> transformers.PretrainedConfig:
    """Return the configuration of a tiny network of ``family``; dropout 0 and large initial weights."""
    values: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
        "pad_token_id": 0,
    }
    if family in ("roberta", "xlm-roberta", "camembert"):
        values.update(pad_token_id=1, max_position_embeddings=66, type_vocab_size=1)
    if family == "electra":
        values.update(embedding_size=20)
    if family == "albert":
        values.update(embedding_size=20, num_hidden_layers=4)
    if family == "modernbert":
        values.update(
            local_attention=8, global_attn_every_n_layers=2, bos_token_id=2, eos_token_id=3, cls_token_id=2,
            sep_token_id=3, initializer_cutoff_factor=10.0,
        )  # fmt: skip
    if family == "distilbert":
        width = values.pop("hidden_size"), values.pop("num_hidden_layers"), values.pop("num_attention_heads")
        values.update(
            dim=width[0], n_layers=width[1], n_heads=width[2], hidden_dim=values.pop("intermediate_size")
        )
        names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
        changes = {names.get(key, key): value for key, value in changes.items()}
    values.update(changes)
    return getattr(transformers, CLASSES[family] + "Config")(**values)


def tiny_network(
    family: str, kind: str = "headless", *, attention: str | None = None, seed: int = 0, **changes: object
) -> PreTrainedModel:
    """Return a tiny network of ``family`` with the head ``kind``, its weights from ``seed``."""
    from analysis.probe import ATTENTION

    torch.manual_seed(seed)
    config = tiny_config(family, **changes)
    config._attn_implementation = attention or ATTENTION
    network = getattr(transformers, CLASSES[family] + HEAD_CLASSES[kind])(config)
    spread(network, seed)
    return network.eval().requires_grad_(False)


def spread(network: PreTrainedModel, seed: int) -> None:
    """Give every bias a random value too: at 0, as they start, a test of them would see nothing."""
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)


def twin(network: PreTrainedModel, attention: str) -> PreTrainedModel:
    """Return a copy of ``network`` with the same weights and transformers' own ``attention``."""
    config = type(network.config).from_dict(network.config.to_dict())
    config._attn_implementation = attention
    copy = type(network)(config)
    copy.load_state_dict(network.state_dict())
    return copy.eval().requires_grad_(False)


def batch_of(network: PreTrainedModel, lengths: list[int], *, seed: int = 0) -> dict[str, torch.Tensor]:
    """Return random inputs of the given lengths, padded on the right to the longest."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.full((len(lengths), max(lengths)), network.config.pad_token_id)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(5, VOCABULARY, (length,), generator=generator)
    real = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    return {"input_ids": ids, "attention_mask": real.long()}


WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "dog",
    "bird",
    "street",
    "it",
    "was",
    "too",
    "tired",
    "because",
    "didn",
    "t",
    "cross",
    "animal",
    "is",
    "good",
    "bad",
    "film",
    "un",
    "##bel",
    "##ievable",
    "##iev",
    "##able",
    "##s",
    "##ing",
    "run",
    "walk",
    "café",
    "naïve",
    "i",
    "you",
    "love",
    "this",
]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARACTERS = [
    *".,!?'\"()<>/&;:-$@#",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"),
]
PIECES = list(dict.fromkeys([*SPECIALS, *CHARACTERS, *WORDS, "你", "ا", "##ل"]))


def word_pieces(cls: type = BertTokenizerFast, **options: object) -> PreTrainedTokenizerBase:
    """Return a WordPiece tokenizer as BERT has it, with a handful of words and pieces."""
    ids = {piece: i for i, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=50))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIALS, strict=True))
    return cls(
        tokenizer_object=tokenizer, **{f"{key}_token": value for key, value in names.items()}, **options
    )


def distil_pieces(**options: object) -> PreTrainedTokenizerBase:
    """Return the same pieces as DistilBERT's tokenizer: without token types."""
    tokenizer = word_pieces(DistilBertTokenizerFast, **options)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer


def byte_pieces(**options: object) -> PreTrainedTokenizerBase:
    """Return a byte-level BPE tokenizer as RoBERTa has it: every byte, and a few merges."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    merges = [
        ("Ġ", "t"),
        ("h", "e"),
        ("Ġt", "he"),
        ("c", "a"),
        ("ca", "t"),
        ("Ġ", "cat"),
        ("t", "he"),
        ("d", "o"),
    ]
    names = specials + sorted(pre_tokenizers.ByteLevel.alphabet()) + [a + b for a, b in merges] + ["<mask>"]
    ids = {name: i for i, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.BPE(ids, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in [*specials, "<mask>"]])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids["</s>"]), ("<s>", ids["<s>"]), trim_offsets=True, add_prefix_space=False
    )
    return RobertaTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>",
        unk_token="<unk>", pad_token="<pad>", mask_token="<mask>", **options,
    )  # fmt: skip


TOKENIZERS = {
    "roberta": byte_pieces,
    "xlm-roberta": byte_pieces,
    "camembert": byte_pieces,
    "distilbert": distil_pieces,
}


def save_tiny(
    folder: Path, family: str = "bert", kind: str = "headless", *, seed: int = 0, **changes: object
) -> Path:
    """Save a tiny network and a tokenizer that fits it, as save_pretrained does; return the folder."""
    tokenizer = TOKENIZERS.get(family, word_pieces)()
    changes.setdefault("vocab_size", len(tokenizer))
    network = tiny_network(family, kind, seed=seed, **changes)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)
