"""Files of test collections: TREC, BEIR and test cases, as ``evaluation.collection`` takes them.

``sources`` looks at what a path holds and chooses the reader. Whatever is wrong with a file is an
``InputError`` that names the file, the place in it, and what to do.
"""
