"""Cases for ``promtool test rules``: series minute by minute, and what must fire when."""
