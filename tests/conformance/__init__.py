"""Real agent frameworks under real instrumentations: events compared with what the agents did."""
