"""Who owns which state: assigned and taken-over partitions, and generations with their builds."""
