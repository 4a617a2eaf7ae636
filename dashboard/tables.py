"""The numbers behind the pictures, as tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from analysis.maps import AttentionMaps, Head, strongest
from dashboard import lenses
from dashboard.reading import Reading
from dashboard.text import _


def attention_tables(
    reading: Reading,
    shown: Sequence[AttentionMaps],
    lens: str = "weights",
    products: pd.DataFrame | None = None,
) -> None:
    """Draw a closed box with the maps that are shown, one head each, and the list of all heads as tables.

    products: what the picture of why a query looks at a key shows, a row a dimension
    """
    box = st.expander(_("Numbers as a table"), key="attention.table", on_change="rerun")
    if not box.open:
        return
    with box:
        if products is not None:
            st.markdown(_("Query, key and their products by dimension"))
            st.dataframe(products, hide_index=True, width="stretch")
        for one in shown:
            said = (
                _("**{head}**: weight from each query (row) to each key (column)")
                if lens == "weights"
                else _("**{head}**: {meaning}, from each query (row) to each key (column)")
            )
            st.markdown(said.format(head=lenses.title(lens, one.first), meaning=lenses.colour_name(lens)))
            st.dataframe(map_table(one), width="stretch")
        st.markdown(_("All heads of the model on this text"))
        st.dataframe(heads_table(reading), hide_index=True, width="stretch")


def map_table(one: AttentionMaps) -> pd.DataFrame:
    """Return one map as a table, its rows and columns named by place and token, so that repeats stay apart."""
    return pd.DataFrame(
        one.weights[0, 0],
        index=[f"{i} {label}" for i, label in enumerate(one.queries.labels)],
        columns=[f"{i} {label}" for i, label in enumerate(one.keys.labels)],
    ).round(4)


def heads_table(reading: Reading) -> pd.DataFrame:
    """Return a row a head: entropy in bits and normalised, and the strongest link with its weight."""
    bits, share = reading.entropies()
    rows = []
    for layer in range(reading.maps.layers):
        for index in range(reading.maps.heads):
            one = reading.view(Head(layer, index))
            weights = one.weights[0, 0]
            query, key = strongest(weights)
            link = f"{one.queries.labels[query]} → {one.keys.labels[key]}"
            rows.append(
                {
                    _("layer"): layer,
                    _("head"): index,
                    _("entropy (bits)"): round(float(bits[layer, index]), 3),
                    _("entropy (share of maximum)"): round(float(share[layer, index]), 3),
                    _("strongest link"): _("removed") if one.gone.any() else link,
                    _("its weight"): round(float(weights[query, key]), 3),
                }
            )
    return pd.DataFrame(rows)
