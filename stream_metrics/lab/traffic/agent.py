"""A simulated agent: its corpus, its behaviour and its incidents."""

from __future__ import annotations

from dataclasses import dataclass

from stream_metrics.lab.traffic import words
from stream_metrics.lab.traffic.corpus import Corpus, corpus_for
from stream_metrics.lab.traffic.profile import Incident, IncidentKind, TrafficProfile
from stream_metrics.lab.traffic.retrieval import calibrate

_SECOND = 1_000_000
_NEXT_AGENT = 0.7


@dataclass(frozen=True, slots=True)
class Agent:
    """The data that all conversations of an agent share."""

    name: str
    kind: words.AgentKind
    corpus: Corpus
    profile: TrafficProfile
    repeat_base: float
    incidents: tuple[Incident, ...]

    def incident_strength(self, kind: IncidentKind, at_us: int) -> float:
        """The strength of an incident of ``kind`` at ``at_us``; 0 if there is none.

        Time is taken modulo the profile's duration, so that endless traffic repeats its incidents.
        """
        if not self.incidents:
            return 0.0
        since = (at_us - self.profile.start * _SECOND) / _SECOND % self.profile.duration_seconds
        return max(
            (
                incident.strength
                for incident in self.incidents
                if incident.kind == kind and incident.from_seconds <= since < incident.to_seconds
            ),
            default=0.0,
        )


def agents_of(profile: TrafficProfile) -> tuple[Agent, ...]:
    """The agents of a profile, with their corpora."""
    base = calibrate(profile.duplicates, profile.iterations, profile.searches_per_iteration)
    made = []
    for index, name in enumerate(profile.agents):
        kind = words.agent_kind(name, index)
        corpus = corpus_for(name, kind, profile.seed, profile.documents, profile.result_bytes)
        troubles = tuple(incident for incident in profile.incidents if incident.agent == name)
        made.append(Agent(name, kind, corpus, profile, base, troubles))
    return tuple(made)


def choose_agent(agents: tuple[Agent, ...], chance: float) -> Agent:
    """Choose an agent; each is 0.7 times as likely as the one before."""
    left = chance * sum(_NEXT_AGENT**step for step in range(len(agents)))
    for step, agent in enumerate(agents):
        left -= _NEXT_AGENT**step
        if left < 0:
            return agent
    return agents[-1]
