"""Self-contained pages of reports and comparisons: ``report.html``, ``compare.html``.

They need no network and no script. ``markup.py`` escapes whatever it is given.
"""
