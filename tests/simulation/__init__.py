"""A live system without servers: the worker's own loop over scripted brokers and a store in memory.

Everything happens in the order that a test says, and nothing else happens: there is no clock, no
network, no other task. ``brokers`` are the logs, the consumer group and a client of Kafka's,
``sources`` is what the loop reads in place of Kafka, ``troubled`` is a store that fails, dies or is
interrupted at a call, ``system`` is the workers with what must always hold, and ``schedule`` draws
what happens by a seed.
"""
