"""A live system without servers: the worker's own loop over scripted brokers and a store in memory.

Everything happens in the order that a test says, and nothing else happens: there is no clock, no
network, no other task. ``brokers`` are the logs and the consumer group, ``troubled`` is a store
that fails, dies or is interrupted at a call, ``system`` is the workers with what must always hold,
and ``schedule`` draws what happens by a seed.
"""
