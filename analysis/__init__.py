"""What each attention head of a BERT-like encoder does, and how many of them it can do without.

One legend of axes for the whole project, used in names, signatures and docstrings:

    batch     examples that run together
    layer     0-based, as in Hugging Face and BertViz; layer 0 is the one nearest the words
    head      0-based within its layer; shown as ``L5·H8``
    query     the token that looks
    key       the token that is looked at
    model     the width of the network's states
    head_dim  the width of one head, model / heads

One direction of data: a module imports only from those above it in this list, and nothing here knows
that a screen exists (``tests/test_house.py`` holds both).

    messages      what is said to a person: sentences with their values, errors
    tokens        the tokens of a text: spans, words, which are special
    maps          attention maps, and the views of a map that keep its meaning
    probe         the attention function given to transformers: sees every head, scales it, reports it
    anatomy       where each architecture keeps the matrices of its attention
    suffix        the network from one layer on, sharing its parameters; the states on the way there
    surgery       heads taken out for good: smaller networks
    checkpoint    what a model's folder says of itself: can it be opened rightly?
    hub           a model's files from the hub
    loading       the network and the tokenizer of a checkpoint
    models        open a model: bundled, hub id or local folder
    toy           multi-head attention by hand, every step in the open
    capture       text -> attention maps, from a model and from the toy alike
    lenses        beside the weights: their flow through the layers, what is carried, why a query looks
    statistics    entropy and what a head does, in numbers and in a sentence
    by_hand       the module laid beside torch's own; a width split into heads
    shapes        every tensor of multi-head attention with its shape
    planted       heads set by hand over one sentence
    six_words     that sentence: where each head looks, and the output as a sum over the heads
    variations    masked, crossed, without the scale, in another order
    cost          what maps of n x n cost, measured
    senses        one word in two texts: how far its vectors grow apart
    trained_toy   two layers of attention, trained while one looks: an induction circuit appears
    toy_pruning   that network without some of its heads: roles are shared
    compare       two texts, or one text under two sources: tokens aligned, how much each head changes
    answers       what a model says of a text, before and after heads were switched off
    texts         texts from files, and those that ship
    datasets      texts with what is to be found of them, from files and what ships; their split
    findings      what is found of every head over many texts: measures by name, tables, intervals
    measures      the measures, computed as the weights arrive
    stream        many texts as batches whose weights are handed on as they arrive
    passes        whole passes under gates, and stacked ones from the attention of one layer on
    ablation      heads switched off, for many sets of heads at once: exact, what they share computed once
    collection    the measures over many texts, with their uncertainty
    distance      how alike the heads are: the distance between every two of them, a map, an order, twins
    induction     who continues what came before: repeated random tokens, in both directions
    scores        how good predictions are: metrics of many variants in many bootstrap replicates at once
    significance  whether a change of a score is more than noise: paired bootstrap, corrected for many tests
    problems      a task set up on a model and its data
    tasks         similarity, classification, masked words, fidelity
    importance    gradient scores of every head
    runs          the record of an experiment: written as it goes, resumed
    experiment    an ablation experiment from its data to all predictions
    outcome       what an experiment found: changes, layers, pairs
    fisher        which heads go by their Fisher information, rearranged within a layer
    pruning       in which order heads go, and the curve of the score against heads left
    curves        the score along such an order, and how many heads can go
    trial         orders on one part of the data, their curves on the other
    checks        that a smaller network says what the masked one says
    latency       how long a whole and a smaller network take, in turn
    saving        a smaller model as a folder, with its card
    onnx_file     a network as an ONNX file, checked against torch
    live          what a model says of one text, with some heads off
    control       a network whose heads are known, as it was set by hand: what ablation should find
    roles         what a head is for, by written rules
    export        maps and tables -> files
    shell         what the verbs of the shell have in common
    shell_ablate  ablate, importance
    shell_prune   prune, shrink
    __main__      the same from a shell
"""
