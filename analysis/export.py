"""Attention maps as files: NPZ, and the long form as CSV or JSON (one row a weight)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.maps import AttentionMaps
from analysis.messages import OptionError
from analysis.tokens import Tokens

LONG_COLUMNS = ["layer", "head", "query", "query_token", "key", "key_token", "weight"]


def long_form(maps: AttentionMaps, layer: int) -> pd.DataFrame:
    """Return one layer in long form, a row a weight: layer, head, query, query_token, key, key_token, weight.

    ``query`` and ``key`` are positions, so that repeated tokens stay apart. Heads that were removed have no weight (NaN;
    in files nothing, or null).
    """
    heads, n, m = maps.weights.shape[1:]
    head, query, key = (axis.ravel() for axis in np.indices((heads, n, m)))
    return pd.DataFrame(
        {
            "layer": layer + maps.first.layer,
            "head": head + maps.first.index,
            "query": query,
            "query_token": np.array(maps.queries.labels, dtype=object)[query],
            "key": key,
            "key_token": np.array(maps.keys.labels, dtype=object)[key],
            "weight": maps.weights[layer].ravel(),
        },
        columns=LONG_COLUMNS,
    )


def layer_frames(maps: AttentionMaps) -> Iterator[pd.DataFrame]:
    """Yield the long form of the maps a layer at a time, so that it never stands in memory whole."""
    return (long_form(maps, layer) for layer in range(maps.layers))


def write_npz(maps: AttentionMaps, file: io.BufferedIOBase) -> None:
    """Write the maps as NPZ: ``weights`` [layer, head, query, key], ``tokens``, and what identifies them.

    For maps from one sequence to another ``tokens`` are the queries and ``key_tokens`` the keys; for all
    others both are the same. Nothing in the file is pickled.
    """
    attendable = {} if maps.attendable is None else {"attendable": maps.attendable}
    np.savez_compressed(
        file,
        allow_pickle=False,
        weights=maps.weights,
        tokens=np.array(maps.queries.labels, dtype=str),
        key_tokens=np.array(maps.keys.labels, dtype=str),
        model=np.array(maps.source),
        first_head=np.array([maps.first.layer, maps.first.index]),
        texts=np.array(maps.queries.texts, dtype=str),
        ids=maps.queries.ids,
        spans=maps.queries.spans,
        special=maps.queries.special,
        segment=maps.queries.segment,
        word=maps.queries.word,
        **attendable,
    )


def write_csv(maps: AttentionMaps, file: io.BufferedIOBase) -> None:
    """Write the long form as CSV in UTF-8."""
    for i, frame in enumerate(layer_frames(maps)):
        file.write(frame.to_csv(index=False, header=i == 0, float_format="%.9g").encode("utf-8"))


def write_json(maps: AttentionMaps, file: io.BufferedIOBase) -> None:
    """Write one JSON object: the model, the texts, the tokens, and ``rows``, the long form."""
    head = {
        "model": maps.source,
        "texts": list(maps.queries.texts),
        "tokens": _token_rows(maps.queries),
        "key_tokens": _token_rows(maps.keys),
    }
    file.write(json.dumps(head, ensure_ascii=False)[:-1].encode("utf-8") + b', "rows": [\n')
    for i, frame in enumerate(layer_frames(maps)):
        rows = frame.to_json(orient="records", lines=True, double_precision=9, force_ascii=False).strip()
        file.write((",\n" if i and rows else "").encode() + rows.replace("\n", ",\n").encode("utf-8"))
    file.write(b"\n]}\n")


def _token_rows(tokens: Tokens) -> list[dict[str, object]]:
    columns = zip(
        tokens.labels, tokens.ids.tolist(), tokens.special.tolist(), tokens.segment.tolist(), strict=True
    )
    return [{"token": t, "id": i, "special": s, "segment": g} for t, i, s, g in columns]


WRITERS: dict[str, Callable[[AttentionMaps, io.BufferedIOBase], None]] = {
    ".npz": write_npz,
    ".json": write_json,
    ".csv": write_csv,
}


def check_suffix(path: Path) -> None:
    """Raise OptionError unless ``path`` ends in a form that `save` writes."""
    if path.suffix.lower() not in WRITERS:
        raise OptionError(
            "{path} ends in none of the forms that can be written: {forms}.",
            path=path,
            forms=", ".join(sorted(WRITERS)),
        )


def save(maps: AttentionMaps, path: Path) -> None:
    """Write the maps to ``path`` in the form of its ending: .npz, .json or .csv.

    Raises OptionError for another ending, or a path that cannot be written.
    """
    check_suffix(path)
    try:
        with open(path, "wb") as file:
            WRITERS[path.suffix.lower()](maps, file)
    except OSError as error:
        raise OptionError(
            "{path} cannot be written: {reason}. Choose another place.", path=path, reason=error.strerror
        ) from error


def to_bytes(maps: AttentionMaps, suffix: str) -> bytes:
    """Return what `save` would write for the ending ``suffix``."""
    buffer = io.BytesIO()
    WRITERS[suffix](maps, buffer)
    return buffer.getvalue()


def check_table(path: Path) -> None:
    """Raise OptionError unless ``path`` ends in a form that `save_table` writes."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise OptionError(
            "{path} ends in none of the forms that a table can be written in: .csv, .parquet.", path=path
        )


def save_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table to ``path`` as CSV or Parquet, by its ending.

    Raises OptionError for another ending, or a path that cannot be written.
    """
    check_table(path)
    try:
        if path.suffix.lower() == ".csv":
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False)
    except OSError as error:
        raise OptionError(
            "{path} cannot be written: {reason}. Choose another place.",
            path=path,
            reason=error.strerror or str(error),
        ) from error
