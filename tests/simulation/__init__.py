"""A live system without servers: the worker's own loop over scripted brokers and a store in memory.

The test determines the order of all actions, and nothing else happens: there is no clock, no
network, no other task. ``brokers`` has the logs, the consumer group and a client of Kafka,
``sources`` what the loop reads in place of Kafka, ``faults`` a store that fails, dies or is
interrupted at a call, ``system`` the workers and their invariants, and ``schedule`` draws the
actions from a seed. ``building`` and the modules named after it do the same for builds, where
``internal_topic`` is read by some, and ``bridges`` for bridges.
"""
