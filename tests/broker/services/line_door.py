"""A door of its own over the services: commands as lines of text, an answer line for each."""

import asyncio

from pqbroker.broker.ground.access import AclOperation, DirectCaller, Principal
from pqbroker.broker.services.tables.callers import TablesNode
from pqbroker.broker.services.tables.finding import find_table
from pqbroker.broker.services.tables.making import NewTable, create
from pqbroker.broker.services.tables.mounting import MountChange, change_state
from pqbroker.broker.services.tables.resharding import ReshardChange, reshard
from pqbroker.protocol.errors import KafkaError
from pqbroker.tables.mount import MountCommand
from pqbroker.tables.refusals import TableError


class LineDoor:
    """`create //PATH COLUMN:TYPE…`, `reshard NAME COUNT`, `states NAME`; the commands of mount states with a name."""

    def __init__(self, node: TablesNode) -> None:
        self._caller = DirectCaller(node, Principal("User", "line"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            try:
                answer = await self._answer(*line.decode().split())
            except KafkaError as refusal:
                answer = f"refused {refusal.code.name}"
            except TableError as refusal:
                answer = f"refused {refusal.code}"
            writer.write(answer.encode() + b"\n")
        writer.close()

    async def _answer(self, verb: str, name: str, *rest: str) -> str:
        caller = self._caller
        if verb == "create":
            columns = [dict(zip(("name", "type"), column.split(":"), strict=True)) for column in rest]
            return (await create(caller, NewTable(name, columns))).record.name
        if verb == "reshard":
            topic = await reshard(caller, name, ReshardChange(int(rest[0])))
        elif verb == "states":
            topic, _ = find_table(caller, AclOperation.DESCRIBE, name)
        else:
            topic = await change_state(caller, name, MountChange(MountCommand(verb)))
        return " ".join(topic.states)
