"""What a person sees: the Streamlit dashboard over `analysis`.

The rooms, from the script to the numbers:

    app            the router: the list of pages, the sidebar, the progress of long work
    views/         one script a page: read controls, call, draw
    sidebar        the model, what it is compared with, and the language
    inputs         the sentence boxes, and how tokens are shown
    corpus         the texts that heads are measured on
    panels         the grid of heads and the row of words, as pages draw them
    pictures       the pictures of the Attention page
    lenses         what stands beside the raw weights there: lines, norms, rollout, why
    head_panels    the panels of the Heads page
    head_pictures  its pictures of many heads
    head_view      what it looks at: statistics, texts, roles
    head_tables    its lists, tables, files and rules
    compare_texts  Compare: word laid over word
    compare_heads  Compare: over many texts
    live_panels    the panels of Ablate live: switches, what is off, tables
    live_pictures  its pictures: what the model says, where attention moved
    ablation_controls  what the Ablation page is asked: task, data, protocol
    ablation_panels    its answer in a sentence and its grids
    ablation_pictures  all changes ranked, the layers, the pairs
    ablation_views     importance, a measure, the positive control; tables and files
    ablation_figures   changes in one figure
    pruning_panels     orders, limits, the curves, the slider along one
    pruning_model      the smaller model: checked, timed, saved, opened
    pruning_figures    curves in one figure
    pruning_jobs   curves and smaller models as jobs
    ablating       experiments as jobs, each with its folder
    tables         the numbers behind the pictures
    downloads      results -> files
    figures        maps -> Plotly figures, pure functions
    head_figures   many heads in one figure
    lens_figures   two vectors and their products
    tiles          many heads as small maps in one figure
    colours        the scales, and ink that can be read on them
    components/    the grid of heads, the words of a sentence and the lines, in the browser
    naming         what measures and roles are called, and how numbers are written
    reading        what the page is reading: a source, a text, the units shown
    measuring      what is measured of the heads over many texts, as jobs
    jobs           long work in a thread: progress, cancel, result
    cache          the only place that caches: models, maps, tables
    state          how a session's choices change, into its link and from it
    switched       which heads a session has switched off
    thresholds     the rules of the roles, as a session moved them
    keys           session keys, each named once, and what a link carries
    examples       the sentences to start from
    text           _(): the language of the page
"""
