#!/usr/bin/env python3
"""Makes cases.json (small differential cases, after one entry with the variables they all see) and conversations.json (whole templates) with Python's jinja2 3.1.

The environment is configured as model publishers configure it for chat templates. Only needed when cases change;
the tests read the JSON files alone.  Run: python3 generate.py
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

from cases import CONTEXT, CONVERSATIONS, SOURCES

HERE = pathlib.Path(__file__).parent


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


class Raised(Exception):
    pass


def environment():
    env = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2024, 7, 26, 12, 0, 0).strftime(f)
    return env


def render(source, variables):
    try:
        return {"output": environment().from_string(source).render(**variables)}
    except Raised as e:
        return {"raised": str(e)}
    except Exception as e:  # every other failure only has to fail
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    cases = [{"source": source, **render(source, CONTEXT)} for source in SOURCES]
    write("cases.json", [{"context": CONTEXT}] + cases)
    whole = []
    for name, variables in CONVERSATIONS:
        source = (HERE / f"{name}.jinja").read_text()
        whole.append({"template": name, "variables": variables, **render(source, variables)})
    write("conversations.json", whole)


def write(name, items):
    text = ",\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    (HERE / name).write_text(f"[\n{text}\n]\n")
    print(name, len(items), "entries, of them errors:", sum("error" in item for item in items))


main()
