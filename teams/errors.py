"""Errors of teams that say who can't speak, and what to change."""

from __future__ import annotations


class SpeakerError(ValueError):
    """The next speaker can't be determined; the message says what to change."""


class HandoffTargetError(SpeakerError):
    """Somebody handed over to a name that no participant has."""

    def __init__(self, source: str, target: str, participants: list[str]) -> None:
        self.source, self.target, self.participants = source, target, participants
        super().__init__(
            f"{source!r} handed over to {target!r}, but the participants are {', '.join(participants)}. Correct the target, add "
            f"a participant of that name, or end the run there with HandoffTermination({target!r}) and give a HandoffMessage "
            "to a participant as the next task."
        )


class SelectionError(SpeakerError):
    """The model of a selector named no participant that may speak, as often as it was asked."""

    def __init__(self, answers: list[str], candidates: list[str]) -> None:
        self.answers, self.candidates = answers, candidates
        last = answers[-1] if len(answers[-1]) <= 200 else f"{answers[-1][:200]}..."
        super().__init__(
            f"The model named none of {', '.join(candidates)} in {len(answers)} answers; the last was {last!r}. Use a model that "
            "follows the prompt, change prompt=, or give the participants clearer names and descriptions."
        )


class GraphError(SpeakerError):
    """A graph does not fit its team, or can't end."""
