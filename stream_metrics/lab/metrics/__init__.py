"""Metrics that only recordings need: of answers, of ontologies, and of given rankings."""
