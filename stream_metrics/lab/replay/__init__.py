"""Replay input of any size in bounded memory and on all cores, with identical output.

``run`` has the stages. The records are read once and distributed to ``spool`` files by
conversation. ``pieces`` runs the engine over one piece after another, in the processes of ``pool``.
``merge_pieces`` and ``report_files`` combine their results into one report. ``manifest`` stores the
progress, from which a killed replay resumes. ``batches`` runs the pieces of a replay on Spark.
"""
