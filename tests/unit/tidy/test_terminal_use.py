"""Nothing prints past `drivetrain.terminal`, which keeps users' text from commanding the terminal."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from source_tree import PACKAGE, modules

GUARDED = {"Console", "Table", "Text", "Panel", "print", "markup", "get_console"}
STREAMS = {"stdout", "stderr"}
EXEMPT = {"terminal.py", "simulator/simulate.py", "config/process_log.py"}
"""The module itself; a line of the simulator that holds the name of a function and a number; logging."""


def offences(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "rich":
                for name in names:
                    if name.name in GUARDED:
                        yield node.lineno, f"imports {name.name} from {module}"
            case ast.Import(names=names):
                for name in names:
                    if name.name.split(".")[0] == "rich":
                        yield node.lineno, f"imports {name.name}"
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno, "calls print"
            case ast.Call(func=ast.Attribute(attr="echo" | "secho", value=ast.Name(id="typer" | "click"))):
                yield node.lineno, "calls echo"
            case ast.Call(func=ast.Attribute(attr="print_exc" | "print_exception" | "basicConfig")):
                yield node.lineno, f"calls {ast.unparse(node.func)}"
            case ast.Call(
                func=ast.Attribute(attr="write", value=ast.Attribute(attr=stream)), args=[written]
            ) if stream in STREAMS and not isinstance(written, ast.Constant):
                yield node.lineno, f"writes to {stream}"


def test_only_the_terminal_module_prints() -> None:
    found = [
        f"{module.name}:{line}: {what}"
        for module in modules().values()
        if str(module.file.relative_to(PACKAGE)) not in EXEMPT
        for line, what in offences(module.nodes)
    ]
    assert found == [], "print with drivetrain.terminal, log with config.process_log"


def test_the_rule_finds_what_it_forbids() -> None:
    forbidden = """
from rich.table import Table
import rich.text
print(reason)
typer.echo(reason)
traceback.print_exc()
logging.basicConfig()
sys.stderr.write(reason)
"""
    assert [line for line, _ in sorted(offences(ast.walk(ast.parse(forbidden))))] == [2, 3, 4, 5, 6, 7, 8]
    allowed = "from rich.live import Live\nsys.stdout.write('\\n')\nconsole.print(reason)\n"
    assert list(offences(ast.walk(ast.parse(allowed)))) == []
