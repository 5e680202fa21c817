"""The searches of a trace as the agent received them, and checks of what it was given."""
