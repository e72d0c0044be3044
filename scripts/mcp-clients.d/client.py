"""Lists and calls every tool with the official Python client, as calls.json says, over HTTP and over stdio.

Usage: client.py URL COMMAND ARGUMENT...
"""

import asyncio
import json
import os
import pathlib
import sys

import httpx2
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

CALLS = json.loads((pathlib.Path(__file__).parent / "calls.json").read_text())


def structured(answer):
    return answer.structured_content if hasattr(answer, "structured_content") else answer.structuredContent


def refused(answer):
    return bool(answer.is_error if hasattr(answer, "is_error") else answer.isError)


async def call(session, one, kept):
    def filled(value):
        return kept[value[1:]] if isinstance(value, str) and value.startswith("$") else value

    given = {key: filled(value) for key, value in one["arguments"].items()}
    answer = await session.call_tool(one["tool"], given)
    content = structured(answer)
    assert refused(answer) == one.get("refused", False) and content is not None, (one["tool"], answer)
    kept.update({name: content[field] for name, field in one.get("keep", {}).items()})
    return content


async def use(name, session):
    await session.initialize()
    tools = [tool.name for tool in (await session.list_tools()).tools]
    kept, called = {}, set()
    for one in (one for one in CALLS if one["tool"] in tools):
        content = await call(session, one, kept)
        if "until" in one:
            field, wanted = one["until"]
            for _ in range(200):
                if content[field] == wanted:
                    break
                await asyncio.sleep(0.1)
                content = await call(session, one, kept)
            assert content[field] == wanted, (one["tool"], content)
        called.add(one["tool"])
    assert called == set(tools), f"nobody called {set(tools) - called}"
    print(f"Python client, {name}: {len(called)} tools listed and called")


async def main(url, command, *arguments):
    headers = {"Authorization": f"Bearer {os.environ['REKINDLE_CLIENT_TOKEN']}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with ClientSession(streams[0], streams[1]) as session:
                await use("HTTP", session)
    parameters = StdioServerParameters(command=command, args=list(arguments))
    async with stdio_client(parameters) as (read, write):
        async with ClientSession(read, write) as session:
            await use("stdio", session)


asyncio.run(main(*sys.argv[1:]))
