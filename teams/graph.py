"""Edges of a graph determine who speaks next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from autogen_agentchat.base import ChatAgent
from autogen_agentchat.base import Team as BaseTeam
from autogen_agentchat.messages import BaseChatMessage
from autogen_agentchat.teams import DiGraph
from autogen_core import Component
from pydantic import BaseModel, ConfigDict, Field

from autogen_codeact.teams.run import Message
from autogen_codeact.teams.speakers import Conversation, GraphError, Position, Speakers

COMPLETE = "Digraph execution is complete"
"""The stop reason of AutoGen's `GraphFlow`."""


class GraphPosition(Position):
    """How far the graph is; the fields that AutoGen's `GraphFlow` saves, and `triggered`."""

    type: str = "GraphManagerState"
    ready: list[str] = Field(default_factory=list)
    # By node and activation group: edges of a join of all that are still to be taken, and whether a join of any was taken.
    remaining: dict[str, dict[str, int]] = Field(default_factory=dict)
    enqueued_any: dict[str, dict[str, bool]] = Field(default_factory=dict)
    triggered: dict[str, list[str]] = Field(default_factory=dict)  # by node in `ready`: the groups that made it ready


class GraphConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")

    graph: DiGraph


class Graph(Speakers[GraphPosition], Component[GraphConfig]):
    """Whoever has spoken is followed by the nodes that its edges lead to, at once if there are several.

    Conditions of edges look at the last message of whoever has spoken. A node with several incoming edges waits for all of them,
    or speaks after any, as its edges say. The run ends when no participant is left to speak, and a new task begins at the start.

    Args:
        graph: AutoGen's `DiGraph`; a `DiGraphBuilder` makes one. Its nodes are participants, agents or teams.

    Raises:
        GraphError: The graph has no nodes, no start, no end, a cycle that nothing can leave, or an edge to nowhere.
    """

    component_config_schema = GraphConfig
    component_provider_override: ClassVar[str | None] = "autogen_codeact.teams.Graph"
    position = GraphPosition
    manager_name = "GraphManager"

    def __init__(self, graph: DiGraph) -> None:
        for node in graph.nodes.values():
            if lost := [edge.target for edge in node.edges if edge.target not in graph.nodes]:
                raise GraphError(
                    f"The edge {node.name} -> {lost[0]} leads to no node: add the node, or remove the edge."
                )
        if graph.default_start_node and graph.default_start_node not in graph.nodes:
            raise GraphError(
                f"default_start_node {graph.default_start_node!r} is not a node: add it, or name another one."
            )
        try:
            graph.graph_validate()
        except ValueError as error:
            raise GraphError(f"The graph can't be used: {error}") from None
        self._graph = graph
        self._activation = {
            (edge.target, edge.activation_group): edge.activation_condition
            for node in graph.nodes.values()
            for edge in node.edges
        }
        self._edges_to = graph.get_remaining_map()

    def check(self, participants: Sequence[ChatAgent | BaseTeam], *, bounded: bool) -> None:
        """Refuse a team without a participant for each node, and one that could run for ever."""
        names = {participant.name for participant in participants}
        if missing := [name for name in self._graph.nodes if name not in names]:
            raise GraphError(f"No participant is called {missing[0]!r}, as a node is: add it to the participants.")
        if self._graph.get_has_cycles() and not bounded:
            raise GraphError(
                "The graph has a cycle, in which the team could stay for ever: give it a termination_condition, max_turns or "
                "a budget."
            )

    def check_position(self, position: GraphPosition, names: Sequence[str]) -> None:
        groups = {target: set(counts) for target, counts in self._edges_to.items()}
        same = {target: set(counts) for target, counts in position.remaining.items()} == groups
        same = same and {target: set(flags) for target, flags in position.enqueued_any.items()} == groups
        triggered = all(set(found) <= groups.get(name, set()) for name, found in position.triggered.items())
        if not same or not triggered or not set(position.ready) <= set(self._graph.nodes):
            raise ValueError("it is the position of another graph.")

    def start(self, names: Sequence[str]) -> GraphPosition:
        begin = self._graph.get_start_nodes()
        return GraphPosition(
            ready=[name for name in self._graph.nodes if name in begin],
            remaining={target: dict(counts) for target, counts in self._edges_to.items()},
            enqueued_any={target: dict.fromkeys(counts, False) for target, counts in self._edges_to.items()},
        )

    async def next(self, position: GraphPosition, conversation: Conversation) -> list[str]:
        """Return all participants that are ready; one that is ready twice speaks again afterwards."""
        speakers = list(dict.fromkeys(position.ready))
        for name in speakers:
            position.ready.remove(name)
            for group in position.triggered.pop(name, []):
                position.enqueued_any[name][group] = False
                position.remaining[name][group] = self._edges_to[name][group]
        return speakers

    def turn_ended(self, position: GraphPosition, speaker: str, messages: Sequence[Message]) -> None:
        chat_messages = [message for message in messages if isinstance(message, BaseChatMessage)]
        if speaker not in self._graph.nodes or not chat_messages:
            return
        for edge in self._graph.nodes[speaker].edges:
            target, group = edge.target, edge.activation_group
            if not edge.check_condition(chat_messages[-1]):
                continue
            if self._activation[target, group] == "all":
                position.remaining[target][group] -= 1
                is_ready = position.remaining[target][group] == 0
            else:
                is_ready = not position.enqueued_any[target][group]
                position.enqueued_any[target][group] = True
            if is_ready:
                position.ready.append(target)
                position.triggered.setdefault(target, []).append(group)

    def complete(self, position: GraphPosition, names: Sequence[str]) -> str | None:
        """Return whether no participant is left to speak, and then go back to the start."""
        if position.ready:
            return None
        begin = self.start(names)
        position.ready, position.remaining = begin.ready, begin.remaining
        position.enqueued_any, position.triggered = begin.enqueued_any, {}
        return COMPLETE

    def _to_config(self) -> GraphConfig:
        for node in self._graph.nodes.values():
            for edge in node.edges:
                if edge.condition_function is not None:
                    raise ValueError(
                        f"The condition of the edge {node.name} -> {edge.target} can't be dumped: a config holds no function. "
                        "Use a text that the message has to contain."
                    )
        return GraphConfig(graph=self._graph)

    @classmethod
    def _from_config(cls, config: GraphConfig) -> Self:
        return cls(config.graph)
