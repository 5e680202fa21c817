"""Self-contained HTML pages of reports and comparisons: ``report.html``, ``compare.html``.

They need neither network nor scripts. Jinja escapes all values (``markup.py``).
"""
