"""What a person sees: the Streamlit dashboard over `analysis`.

The rooms, from the script to the numbers:

    app           the router: the list of pages, the sidebar
    views/        one script a page: read controls, call, draw
    sidebar       the model and the language
    inputs        the sentence boxes, and how tokens are shown
    panels        the grid of heads and the row of words, as pages draw them
    pictures      the pictures of the Attention page
    tables        the numbers behind them
    downloads     results -> files
    figures       numbers -> Plotly figures, pure functions
    tiles         many heads as small maps in one figure
    colours       the scales, and ink that can be read on them
    components/   the grid of heads and the words of a sentence, in the browser
    reading       what the page is reading: a source, a text, the units shown
    cache         the only place that caches: models, maps, tables
    state         session keys, each named once, and what a link carries
    examples      the sentences to start from
    text          _(): the language of the page
"""
