"""SRR and SRE as users of other tools would compute them first; run with ``.venv/peers``.

Nothing here imports the project: only ``benchmarks.peer`` compares the two.
"""
