"""Where the source of a function or class is, and what it refers to.

Owns [`Source`]. Must not: know what is sent ([`_capture`]).
"""

from __future__ import annotations

import ast
import inspect
import linecache
import symtable
import sys
import types
from typing import Any, Callable

NOTHING = object()


class CaptureError(TypeError):
    """A function that cannot run elsewhere. The message says which variable is why."""


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "wasmrun"


class Source:
    """The source of a function or class, less our decorators, which are not executed there: what their arguments refer to need not
    be there."""

    def __init__(self, given: Any, values: dict[str, Any]) -> None:
        from ._remote import remote

        # Not of what a function wraps.
        of = given if isinstance(given, type) else given.__code__
        name: str
        self._of: str
        self._of, name = (of.__qualname__, of.__name__) if isinstance(of, type) else (of.co_qualname, of.co_name)
        if name == "<lambda>":
            raise CaptureError("a lambda cannot be taken out of its line: define a function with `def`")
        try:
            filename = inspect.getsourcefile(of) or "<unknown>"
            if isinstance(given, type):
                line, lines = _of_class(given, filename)
            else:
                lines, line = inspect.getsourcelines(of)
        except CaptureError:
            raise
        except (OSError, TypeError):
            found = _in_cells(given) if isinstance(given, type) else None
            if found is None:
                raise CaptureError(
                    f"the source of {given.__qualname__} is not to be had, and source is what is sent: define it in a file or a notebook"
                ) from None
            filename, line, lines = found
        if lines[0][:1].isspace():
            # As it is, for texts in it may span lines.
            lines.insert(0, "if 1:\n")
            line -= 1
        self.filename = filename
        self.line = max(line, 1)
        self.text = "".join(lines)
        try:
            definition = parsed(self.text)
        except SyntaxError:
            definition = None
        if getattr(definition, "name", None) != name:
            raise CaptureError(f"{self._of} is not where it was in {filename}: the file has changed since it was read, so begin anew")
        self.decorators: list[ast.expr] = getattr(definition, "decorator_list")
        self.strip(lambda it: not is_decorator(it, values, remote))

    def strip(self, keeps: Callable[[ast.expr], bool]) -> None:
        """Takes decorators away."""
        lines = self.text.splitlines(keepends=True)
        for decorator in self.decorators:
            if not keeps(decorator):
                for at in range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno):
                    lines[at] = "\n"
        self.decorators = [it for it in self.decorators if keeps(it)]
        self.text = "".join(lines)

    def names(self, annotations: bool = True) -> list[str]:
        """What it refers to and does not define, or defines as itself."""
        try:
            return _names(self.text if annotations else _without_annotations(self.text), self.filename)
        except SyntaxError as error:
            raise CaptureError(
                f"{self._of} changes a variable of a function around it, which cannot go with it ({error.msg}): make it a class, or keep "
                "what changes in a list"
            ) from None


def _of_class(cls: type, filename: str) -> tuple[int, list[str]]:
    """Where its file has a class, which `inspect` takes for the first of its name."""
    lines = inspect.findsource(cls)[0]
    found: list[ast.ClassDef] = []

    def look(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                if path + child.name == cls.__qualname__:
                    found.append(child)
                look(child, f"{path}{child.name}.")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                look(child, f"{path}{child.name}.<locals>.")
            else:
                look(child, path)

    look(ast.parse("".join(lines)), "")
    if len(found) > 1:
        known = [it.__code__.co_firstlineno for _, it in methods(cls)]
        first = getattr(cls, "__firstlineno__", known[0] if known else None)
        found = [it for it in found if (_is_like(it, cls) if first is None else _first(it) <= first <= (it.end_lineno or 0))]
    if len({ast.dump(it) for it in found}) != 1:
        raise CaptureError(f"{cls.__qualname__} is {len(found) or 'no'} classes of {filename}, or cannot be told: give each its own name")
    return _first(found[0]), lines[_first(found[0]) - 1 : found[0].end_lineno]


def _first(node: ast.ClassDef) -> int:
    return min([node.lineno, *(it.lineno for it in node.decorator_list)])


def _is_like(node: ast.ClassDef, cls: type) -> bool:
    """Whether a class without methods may be this one, by what it says of its attributes."""
    said: dict[str, ast.expr | None] = {}
    for it in node.body:
        if isinstance(it, (ast.Assign, ast.AnnAssign)):
            targets = it.targets if isinstance(it, ast.Assign) else [it.target]
            said |= {target.id: it.value for target in targets if isinstance(target, ast.Name)}
    own = vars(cls)
    return own.get("__annotations__", {}).keys() <= said.keys() and all(
        not isinstance(it, ast.Constant) or own.get(name, NOTHING) == it.value for name, it in said.items()
    )


def _in_cells(cls: type) -> tuple[str, int, list[str]] | None:
    """Where a notebook has a class: it has no file in which `inspect` looks for it."""
    own = {it.__code__.co_filename for it in vars(cls).values() if isinstance(it, types.FunctionType)}
    cells = [it for it in linecache.cache if it.startswith("<") or "ipykernel" in it]
    # Of a class without methods, the last cell that has one of its name.
    for filename in reversed([it for it in cells if it in own] or cells):
        lines = linecache.getlines(filename)
        try:
            nodes = list(ast.walk(ast.parse("".join(lines))))
        except SyntaxError:
            continue
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                return filename, _first(node), lines[_first(node) - 1 : node.end_lineno]
    return None


def parsed(source: str) -> ast.stmt:
    """The definition in a source of `_source`."""
    found = ast.parse(source).body[0]
    return found.body[0] if isinstance(found, ast.If) else found


def is_decorator(decorator: ast.expr, values: dict[str, Any], what: Any) -> bool:
    """Whether a decorator is this, or a call of it."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    if isinstance(named, ast.Attribute) and isinstance(named.value, ast.Name):
        return getattr(values.get(named.value.id), named.attr, None) is what
    return isinstance(named, ast.Name) and values.get(named.id) is what


def methods(cls: type) -> list[tuple[str, types.FunctionType]]:
    """The functions in a class, by what they are called there. Not those that decorators from elsewhere have made: what names mean to
    them is something else."""
    members = ((name, getattr(it, "__func__", getattr(it, "fget", it))) for name, it in vars(cls).items())
    functions = ((name, inspect.unwrap(it)) for name, it in members if isinstance(it, types.FunctionType))
    return [(name, it) for name, it in functions if it.__code__.co_qualname.startswith(f"{cls.__qualname__}.")]


class _Annotations(ast.NodeTransformer):
    """Takes annotations away."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return self.generic_visit(ast.Assign([node.target], node.value))


def without(source: str, taken: list[ast.expr]) -> str:
    """The source, where None is in the place of these."""
    # As Python counts lines: there are other ends of lines in texts.
    lines = source.encode().splitlines(keepends=True)
    # From behind, so that places stay what they are.
    for it in sorted(taken, key=lambda it: (it.lineno, it.col_offset), reverse=True):
        assert it.end_lineno is not None and it.end_col_offset is not None
        first, last = it.lineno - 1, it.end_lineno - 1
        rest = lines[last][it.end_col_offset :]
        lines[first] = lines[first][: it.col_offset] + b"None" + b"\n" * (last - first) + rest
        lines[first + 1 : last + 1] = []
        # As many lines as before.
        lines[first : first + 1] = lines[first].splitlines(keepends=True)
    return b"".join(lines).decode()


def _without_annotations(source: str) -> str:
    return ast.unparse(ast.fix_missing_locations(_Annotations().visit(ast.parse(source))))


def submodules(source: str, values: dict[str, Any]) -> list[str]:
    """The modules in modules that a source names, such as `xml.etree.ElementTree`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.insert(0, node.attr)
            node = node.value
        root = values.get(node.id) if isinstance(node, ast.Name) and path else None
        if isinstance(root, types.ModuleType) and not is_ours(root.__name__):
            name = root.__name__
            for part in path:
                name += f".{part}"
                if not isinstance(sys.modules.get(name), types.ModuleType):
                    break
                found.append(name)
    return found


def _names(source: str, filename: str) -> list[str]:
    """What the source refers to and does not define."""
    found: dict[str, None] = {}

    def look(table: symtable.SymbolTable, is_top: bool) -> None:
        for symbol in table.get_symbols():
            is_global = symbol.is_referenced() if is_top else symbol.is_global()
            if is_global:
                found[symbol.get_name()] = None
        for child in table.get_children():
            look(child, False)

    look(symtable.symtable(source, filename, "exec"), True)
    return list(found)
