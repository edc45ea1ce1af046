"""The guard's verdict on samples without labels, in one word: healthy, watch or stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ctta.report.results import Results

HEALTHY, WATCHED, HARMFUL, FROZEN = range(4)  # as records number the guard's verdict on a batch


@dataclass(frozen=True)
class Verdict:
    """What to think of an adaptation, and what to do."""

    state: Literal["healthy", "watch", "stop", "unknown"]
    headline: str
    advice: str


def of(results: Results) -> Verdict | None:
    """From what the guard told, or as long as the run goes on from its records; none unless it is a single run."""
    if len(results.method_runs) != 1:
        return None
    (one,) = results.method_runs
    levels = [int(record.info["guard"]) for record in one.records if "guard" in record.info]
    if not one.cell.guard or not levels:
        return Verdict("unknown", "Whether adapting did harm is not known.", "No guard watched. Run it with one.")
    first = {event.kind: event.batch for event in reversed(results.run.events)}
    harmful = [record.step for record in one.records if record.info.get("guard") == HARMFUL]
    if FROZEN in levels:
        frozen = next(record.step for record in one.records if record.info.get("guard") == FROZEN)
        return Verdict(
            "stop",
            "Stop: adapting made the model worse, again and again.",
            f"Since batch {frozen} the guard lets it learn no more, and predictions come from the unadapted weights. "
            "Look at the data; larger batches, a smaller learning rate or another method may help.",
        )
    if "lost" in first:
        return Verdict(
            "stop",
            "Stop: the model itself looks lost on these samples.",
            f"The unadapted model's confidence is low since batch {first['lost']}, and adapting cannot repair that. "
            "Look at the data.",
        )
    if harmful:
        times = "once" if len(harmful) == 1 else f"{len(harmful)} times"
        return Verdict(
            "watch",
            f"Watch: adapting did harm {times}, and it was taken back.",
            f"First at batch {harmful[0]}. Around an alarm the predictions come from the unadapted weights. If "
            "this goes on, look at the data, or use larger batches or a smaller learning rate.",
        )
    if levels[-1] == WATCHED:
        return Verdict(
            "watch",
            "Watch: there is some evidence of harm.",
            "It is not enough for an alarm. The latest predictions come from the unadapted weights, to be safe.",
        )
    if "blank" in first:
        return Verdict(
            "watch",
            "Watch: some samples show nothing.",
            "They are of one value per channel, or noise alone, as from a dead sensor; the unadapted model answered "
            "for them. Look at the sensor.",
        )
    return Verdict(
        "healthy", "Healthy: no sign of harm.", "A guard compared the model with the unadapted one all along."
    )
