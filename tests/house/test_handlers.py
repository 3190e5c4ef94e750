"""A handler's file opens with its versions, its behaviour and what is left out, and its API agrees."""

import ast
import importlib
import re

from pqbroker.broker.kafka import left_out
from tests.house.sources import product

_HEADER = re.compile(
    r"(?P<name>\w+) \(key (?P<key>\d+)\), versions (?P<low>\d+) to (?P<high>\d+)[.;].*?"
    r"\n\nBehaviour: \S.*\nLeft out: \S.*",
    re.DOTALL,
)
_ROOM = "broker/kafka/handlers/"
_LEFT_OUT = "broker/kafka/left_out.py"
_HANDLERS = [source for source in product() if source.path.startswith(_ROOM) and not source.is_package]


def test_a_handler_says_what_it_serves() -> None:
    for source in _HANDLERS:
        header = _HEADER.fullmatch(ast.get_docstring(source.tree) or "")
        assert header, f"{source.path}: NAME (key K), versions A to B. ... Behaviour: ... Left out: ..."
        api = importlib.import_module(source.module).API
        told = (header["name"], int(header["key"]), int(header["low"]), int(header["high"]))
        assert told == (api.name, api.key, api.version_min, api.version_max), source.path


def test_a_handlers_file_is_named_as_its_api() -> None:
    for source in _HANDLERS:
        name = importlib.import_module(source.module).API.name
        assert source.path == f"broker/kafka/handlers/{re.sub(r'(?<!^)(?=[A-Z])', '_', name).lower()}.py"


def test_the_table_of_what_is_left_out_says_what_it_serves() -> None:
    docstring = next(ast.get_docstring(source.tree) for source in product() if source.path == _LEFT_OUT) or ""
    said = {}
    for paragraph in docstring.split("\n\n")[2:]:
        header = _HEADER.fullmatch(paragraph.replace("\nBehaviour: ", "\n\nBehaviour: ", 1))
        assert header, paragraph
        said[header["name"]] = (int(header["key"]), int(header["low"]), int(header["high"]))
    assert said == {api.name: (api.key, api.version_min, api.version_max) for api in left_out.APIS_LEFT_OUT}


def test_there_are_handlers() -> None:
    assert _HANDLERS
