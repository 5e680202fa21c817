"""All broken builds."""

from __future__ import annotations

from typing import Final

from tests.mutations.of_alerts import ALERTS
from tests.mutations.of_answers import ANSWERS
from tests.mutations.of_builds import BUILDS
from tests.mutations.of_comparisons import COMPARISONS
from tests.mutations.of_delivery import DELIVERY
from tests.mutations.of_estimates import ESTIMATES
from tests.mutations.of_figures import FIGURES
from tests.mutations.of_judges import JUDGES
from tests.mutations.of_labels import LABEL_MUTATIONS
from tests.mutations.of_local import LOCAL
from tests.mutations.of_recordings import RECORDINGS
from tests.mutations.of_searches import SEARCHES
from tests.mutations.of_strata import STRATA
from tests.mutations.of_tools import TOOL_RESULTS
from tests.mutations.of_traces import BRIDGES

MUTATIONS: Final = (
    *FIGURES, *DELIVERY, *LOCAL, *BUILDS, *RECORDINGS, *ANSWERS, *COMPARISONS, *SEARCHES, *STRATA,
    *BRIDGES, *TOOL_RESULTS, *ALERTS, *LABEL_MUTATIONS, *ESTIMATES, *JUDGES,
)  # fmt: skip
