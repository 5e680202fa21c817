"""Generate a conversation step by step, from its first iteration to its last label."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from stream_metrics.lab.traffic.agent import Agent
from stream_metrics.lab.traffic.faults import Arrival, Faults, ReorderBacklog
from stream_metrics.lab.traffic.labelling import Labeller
from stream_metrics.lab.traffic.profile import Ledger, Stream
from stream_metrics.lab.traffic.retrieval import draw_count, draw_iterations
from stream_metrics.lab.traffic.turn_generator import IterationOutput, TurnGenerator
from stream_metrics.lab.traffic.writing import TurnContext, write_completed, write_labels

_SECOND = 1_000_000
_MS = 1_000
_EARLY_US = 900 * _MS
_LOOPED_ITERATIONS = 4


class Conversation:
    """A conversation that is generated step by step, so that an open one takes little memory."""

    def __init__(
        self,
        agent: Agent,
        serial: int,
        start_us: int,
        rng: Random,
        ledger: Ledger,
        backlog: ReorderBacklog,
    ) -> None:
        self._agent = agent
        self._rng = rng
        self._ledger = ledger
        self._start_us = start_us
        self._faults = Faults(agent.profile, rng, ledger, backlog)
        self._id = f"{agent.kind.prefix}-{serial:06x}-{int(rng.random() * 65536):04x}"
        self._key = self._id.encode()
        self._lag_us = (15 + int(rng.random() * 60)) * _MS
        self._numbers = count(1)

    def pieces(self) -> Iterator[tuple[int, list[Arrival]]]:
        """Yield pairs of the time to resume, in microseconds, and the arrivals generated so far.

        No arrival is earlier than the time at which its pair was requested.
        """
        rng, profile = self._rng, self._agent.profile
        now = self._start_us
        topic = int(rng.random() ** 1.7 * len(self._agent.corpus.topics))
        for turn in range(1, draw_count(profile.turns, 0.4, rng.random()) + 1):
            kind = self._agent.kind
            context = TurnContext(self._id, turn, self._agent.name, kind.release, kind.unix_times)
            maker = TurnGenerator(self._agent, context, topic, rng, self._ledger, self._numbers)
            labeller = Labeller(rng, profile.label_delay_seconds, now)
            length = draw_iterations(profile.iterations, rng.random())
            looping = self._agent.incident_strength("rewriter_loops", now)
            if looping and rng.random() < looping:
                maker.loop()
                length += _LOOPED_ITERATIONS
            asking = self._agent.incident_strength("asks_again", now)
            if asking and rng.random() < asking:
                maker.ask_again()
                length += _LOOPED_ITERATIONS
            number, first = 0, True
            for _ in range(length):
                number += 1 if rng.random() < 0.98 else 2
                made = maker.iteration(number, now)
                early = first and profile.labels and rng.random() < profile.early_labels
                sent = self._arrivals(made, context, labeller, early)
                first = False
                now += int((2.5 + 6 * rng.random() ** 2) * _SECOND)
                yield now, self._faults.apply(sent)
            ends = self._ending(maker, context, labeller, now)
            now += int((15 + 90 * rng.random()) * _SECOND)
            yield now, self._faults.apply(ends)
        yield now, self._faults.finish(now)

    def _arrivals(
        self, made: IterationOutput, context: TurnContext, labeller: Labeller, early: bool
    ) -> list[Arrival]:
        """The arrivals of an iteration's events and labels; ``early`` labels come first."""
        lag = self._lag_us
        labelled_us = made.at_us + _EARLY_US
        if early and labeller.claim(labelled_us):
            self._ledger.early_labels += 1
            lag += _EARLY_US + 200 * _MS
        else:
            labelled_us = labeller.when(
                made.at_us, self._agent.incident_strength("labels_late", made.at_us)
            )
        sent = [self._arrival("events", at_us + lag, value) for at_us, value in made.events]
        labels = labeller.judge(made.work) if self._agent.profile.labels else None
        if labels is not None:
            value = write_labels(context, self._event_id(), labelled_us, labels)
            sent.append(self._arrival("labels", labelled_us + self._lag_us, value))
        return sent

    def _ending(
        self, maker: TurnGenerator, context: TurnContext, labeller: Labeller, now: int
    ) -> list[Arrival]:
        """The end of a turn, and sometimes revisions of its labels."""
        rng, profile = self._rng, self._agent.profile
        at_us = now + int(rng.random() * 2 * _SECOND)
        value = write_completed(context, self._event_id(), at_us, maker.summary())
        sent = [self._arrival("events", at_us + self._lag_us, value)]
        if profile.labels and rng.random() < profile.revisions:
            labels = labeller.revise()
            if labels is not None:
                later = labeller.when(at_us, 0.0) + int((60 + 600 * rng.random()) * _SECOND)
                value = write_labels(context, self._event_id(), later, labels)
                sent.append(self._arrival("labels", later + self._lag_us, value))
        return sent

    def _arrival(self, stream: Stream, at_us: int, value: bytes) -> Arrival:
        return Arrival(at_us, stream, self._key, value)

    def _event_id(self) -> str:
        return f"{self._id}.{next(self._numbers)}"
