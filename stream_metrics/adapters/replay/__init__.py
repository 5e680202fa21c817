"""Replay of any amount of input in bounded memory, on all cores, to the same bytes.

``run`` has the stages: the records are read once and dealt out to ``spool`` files by conversation,
``pieces`` runs the engine over one file after the other, in processes of ``pool``, and ``merge``
makes one report of what they found. ``manifest`` says what of it a killed replay has done already.
"""
