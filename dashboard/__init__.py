"""What a person sees: the Streamlit dashboard over `analysis`.

app           the router: the list of pages, the sidebar
views/        one script a page: read controls, call, draw
sidebar       the model and the language
state         session keys, each named once, and what a link carries
examples      the sentences to start from
cache         the only place that caches: models, maps, tables
figures       numbers -> Plotly figures, pure functions
colours       the scales, and ink that can be read on them
downloads     results -> files
text          _(): the language of the page
components/   the grid of heads, the words of a sentence
"""
