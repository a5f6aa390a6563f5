"""Answers `source_facts`: what a Python source says about itself, without running it. What follows from it is decided
in src/llm.
"""

from __future__ import annotations

import ast
import builtins
from typing import Any, Callable


def run(params: dict[str, Any], progress: Callable[[str, float], None]) -> dict[str, Any]:
    text = params["source"]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 0
        lines = text.splitlines()
        return {
            "syntax": {
                "message": getattr(error, "msg", None) or str(error) or type(error).__name__,
                "line": line,
                "text": lines[line - 1].strip() if 0 < line <= len(lines) else "",
            },
            "whole_lines": _whole_lines(lines, line),
        }
    return {"syntax": None, **_facts(tree)}


def _whole_lines(lines: list[str], fault: int) -> int:
    """How many lines from the top are whole statements: what is left of a text that was cut off."""
    starts = [number for number, line in enumerate(lines) if line[:1].strip() and line[0] not in ")]}#"]
    for end in reversed(starts):
        # A decorator belongs to what follows it.
        if end and lines[end - 1].startswith("@"):
            continue
        try:
            ast.parse("\n".join(lines[:end]))
            return end
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return 0


def _facts(tree: ast.Module) -> dict[str, Any]:
    visitor = _Visitor()
    visitor.visit(tree)
    classes, functions, assigned = [], [], set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = {item.name: _parameters(item) for item in node.body if isinstance(item, ast.FunctionDef)}
            classes.append(
                {
                    "name": node.name,
                    "bases": [_dotted(base) for base in node.bases],
                    "methods": methods,
                    "line": node.lineno,
                }
            )
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            functions.append(
                {
                    "name": node.name,
                    "parameters": _parameters(node),
                    "decorators": [_dotted(one) for one in node.decorator_list],
                    "line": node.lineno,
                }
            )
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            assigned |= {target.id for target in targets if isinstance(target, ast.Name)}
    kernels = [
        name
        for name, decorators in visitor.decorated
        if any(one.split(".")[-1] == "jit" and "triton" in one or one == "jit" for one in decorators)
    ]
    return {
        "classes": classes,
        "functions": functions,
        "assigned": sorted(assigned),
        "imports": sorted(visitor.imports),
        "undefined": sorted(visitor.used - visitor.bound - set(dir(builtins))),
        "kernels": kernels,
        "launched": sorted(visitor.launched | visitor.passed.intersection(kernels)),
        "calls": [{"name": name, "line": line} for name, line in visitor.calls],
        "attributes": sorted(visitor.stored),
    }


class _Visitor(ast.NodeVisitor):
    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.used: set[str] = set()
        self.bound: set[str] = {"__name__", "__file__"}
        self.decorated: list[tuple[str, list[str]]] = []
        self.launched: set[str] = set()
        self.passed: set[str] = set()
        self.calls: list[tuple[str, int]] = []
        self.stored: set[str] = set()

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imports.add(alias.name)
            self.bound.add(alias.asname or alias.name.split(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self.imports.add(f"{node.module or ''}.{alias.name}")
            self.bound.add(alias.asname or alias.name)

    def visit_Name(self, node: ast.Name) -> None:
        (self.used if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.bound.add(node.arg)
        self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.bound.add(node.name)
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.bound.add(node.name)
        self.decorated.append((node.name, [_dotted(one) for one in node.decorator_list]))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, (ast.Store, ast.Del)):
            self.stored.add(_dotted(node))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        # kernel[grid](…)
        if isinstance(node.func, ast.Subscript):
            self.launched.add(_dotted(node.func.value).split(".")[-1])
        elif name := _dotted(node.func):
            self.calls.append((name, node.lineno))
        # launch(kernel, …)
        self.passed.update(argument.id for argument in node.args if isinstance(argument, ast.Name))
        self.generic_visit(node)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]]


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""
