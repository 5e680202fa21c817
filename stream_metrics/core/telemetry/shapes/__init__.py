"""How tools return results: the table of shapes and texts, and how a value is read by it.

``table`` has a row for each product, ``texts`` one for each form of prose, and ``users`` the rows
of the settings, which come first. ``reading`` applies them.
"""
