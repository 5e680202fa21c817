"""A model that judges results: what it is asked, of which conversations, and what that may cost."""
