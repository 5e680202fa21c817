"""One conversation from its first iteration to its last label, made piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random

from stream_metrics.traffic.agent import Agent
from stream_metrics.traffic.faults import Arrival, Debt, Faults
from stream_metrics.traffic.iteration import Made, TurnMaker
from stream_metrics.traffic.labelling import Labeller
from stream_metrics.traffic.profile import Ledger, Stream
from stream_metrics.traffic.retrieval import draw_count, draw_iterations
from stream_metrics.traffic.writing import Speaker, write_completed, write_labels

_SECOND = 1_000_000
_MS = 1_000
_EARLY_US = 900 * _MS
_LOOPED_ITERATIONS = 4


class Conversation:
    """A conversation as a generator of pieces, so that an open one takes little memory."""

    def __init__(
        self, agent: Agent, serial: int, start_us: int, rng: Random, ledger: Ledger, debt: Debt
    ) -> None:
        self._agent = agent
        self._rng = rng
        self._ledger = ledger
        self._start_us = start_us
        self._faults = Faults(agent.profile, rng, ledger, debt)
        self._id = f"{agent.flavour.prefix}-{serial:06x}-{int(rng.random() * 65536):04x}"
        self._key = self._id.encode()
        self._lag_us = (15 + int(rng.random() * 60)) * _MS
        self._numbers = count(1)

    def pieces(self) -> Iterator[tuple[int, list[Arrival]]]:
        """Pairs of (when to go on, microseconds; what was sent until then or will arrive later).

        No arrival of a piece is earlier than the time at which the piece was asked for.
        """
        rng, profile = self._rng, self._agent.profile
        now = self._start_us
        topic = int(rng.random() ** 1.7 * len(self._agent.corpus.topics))
        for turn in range(1, draw_count(profile.turns, 0.4, rng.random()) + 1):
            flavour = self._agent.flavour
            speaker = Speaker(self._id, turn, self._agent.name, flavour.release, flavour.unix_times)
            maker = TurnMaker(self._agent, speaker, topic, rng, self._ledger, self._numbers)
            labeller = Labeller(rng, profile.label_delay_seconds, now)
            length = draw_iterations(profile.iterations, rng.random())
            looping = self._agent.trouble("rewriter_loops", now)
            if looping and rng.random() < looping:
                maker.loop()
                length += _LOOPED_ITERATIONS
            number, first = 0, True
            for _ in range(length):
                number += 1 if rng.random() < 0.98 else 2
                made = maker.iteration(number, now)
                early = first and profile.labels and rng.random() < profile.early_labels
                sent = self._arrivals(made, speaker, labeller, early)
                first = False
                now += int((2.5 + 6 * rng.random() ** 2) * _SECOND)
                yield now, self._faults.disturb(sent)
            ends = self._ending(maker, speaker, labeller, now)
            now += int((15 + 90 * rng.random()) * _SECOND)
            yield now, self._faults.disturb(ends)
        yield now, self._faults.finish(now)

    def _arrivals(
        self, made: Made, speaker: Speaker, labeller: Labeller, early: bool
    ) -> list[Arrival]:
        """The events of an iteration and its labels, on their way; ``early`` labels come first."""
        lag = self._lag_us
        labelled_us = made.at_us + _EARLY_US
        if early and labeller.at_once(labelled_us):
            self._ledger.early_labels += 1
            lag += _EARLY_US + 200 * _MS
        else:
            labelled_us = labeller.when(made.at_us, self._agent.trouble("labels_late", made.at_us))
        sent = [self._arrival("events", at_us + lag, value) for at_us, value in made.events]
        labels = labeller.judge(made.work) if self._agent.profile.labels else None
        if labels is not None:
            value = write_labels(speaker, self._event_id(), labelled_us, labels)
            sent.append(self._arrival("labels", labelled_us + self._lag_us, value))
        return sent

    def _ending(
        self, maker: TurnMaker, speaker: Speaker, labeller: Labeller, now: int
    ) -> list[Arrival]:
        """The end of a turn, and now and then second thoughts about its labels."""
        rng, profile = self._rng, self._agent.profile
        at_us = now + int(rng.random() * 2 * _SECOND)
        value = write_completed(speaker, self._event_id(), at_us, maker.summary())
        sent = [self._arrival("events", at_us + self._lag_us, value)]
        if profile.labels and rng.random() < profile.revisions:
            labels = labeller.revise()
            if labels is not None:
                later = labeller.when(at_us, 0.0) + int((60 + 600 * rng.random()) * _SECOND)
                value = write_labels(speaker, self._event_id(), later, labels)
                sent.append(self._arrival("labels", later + self._lag_us, value))
        return sent

    def _arrival(self, stream: Stream, at_us: int, value: bytes) -> Arrival:
        return Arrival(at_us, stream, self._key, value)

    def _event_id(self) -> str:
        return f"{self._id}.{next(self._numbers)}"
