"""Read test collections (TREC, BEIR and test cases) for ``evaluation.collection``.

``sources`` detects the kind of a path and chooses the reader. Every problem with a file is an
``InputError`` that names the file, the line, and what to do.
"""
