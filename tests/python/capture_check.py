"""Captures modules and holds the graphs against the modules themselves, run by PyTorch's ops."""

import copy
import json

import graph_interpreter
import torch
from torch import nn

from kernelwright.capture import export


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def copied(module):
    """A copy of the module, sharing what cannot be copied."""
    return copy.deepcopy(module, {id(module.lock): module.lock} if hasattr(module, "lock") else {})


def compare(module, *args, tolerance=1e-5, **kwargs):
    """Capture, check that module and arguments are untouched, run graph and module under one seed, compare everything.
    Returns the graph.
    """
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    graph = json.loads(json.dumps(export.export_module(module, args, kwargs)))
    assert not graph_problems(graph)
    for name, tensor in module.state_dict().items():
        assert type(tensor) is torch.Tensor or isinstance(tensor, nn.Parameter)
        assert torch.equal(tensor, state[name])
    with torch.no_grad():
        torch.manual_seed(5)
        result, mutated = graph_interpreter.run(graph, module, args, kwargs)
        eager, eager_args, eager_kwargs = copied(module), *copy.deepcopy((args, kwargs))
        torch.manual_seed(5)
        expected = eager(*eager_args, **eager_kwargs)
    assert torch.utils._pytree.tree_structure(result) == torch.utils._pytree.tree_structure(expected)
    for ours, theirs in zip(leaves(result), leaves(expected), strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
            assert ours.stride() == theirs.stride()
        else:
            assert ours == theirs and type(ours) is type(theirs)
    changed = {
        name: tensor for name, tensor in eager.named_buffers() if not torch.equal(tensor, state.get(name, tensor))
    }
    for name, tensor in changed.items():
        torch.testing.assert_close(mutated[name], tensor, rtol=tolerance, atol=tolerance)
    for position, (before, after) in enumerate(zip(args, eager_args)):
        if isinstance(before, torch.Tensor):
            torch.testing.assert_close(
                mutated.get(f"args.{position}", before), after, rtol=tolerance, atol=tolerance, equal_nan=True
            )
    return graph


def graph_problems(graph):
    """Violations of SSA form: a value used before it is made, or made twice, or a name used twice."""
    found = []
    made = set()
    for item in graph["inputs"]:
        made.add(item["value"])
    for node in graph["nodes"]:
        for _, value in node["args"]:
            if isinstance(value, dict):
                for used in [value["v"]] if "v" in value else value.get("vs", []):
                    if used is not None and used not in made:
                        found.append(f"{node['op']} uses {used} before it is made")
        for result in node["results"]:
            if result in made:
                found.append(f"{node['op']} makes {result} again")
            made.add(result)
    names = [value["name"] for value in graph["values"]]
    if len(set(names)) != len(names) or not all(name.isidentifier() for name in names):
        found.append("value names are not unique identifiers")
    return found


def ops(graph):
    return [node["op"].removeprefix("aten.") for node in graph["nodes"]]


def kinds(graph):
    return {item["target"]: item["kind"] for item in graph["inputs"]}


def module_of(forward, **attributes):
    """A module whose forward is `forward(self, …)`, with the given submodules, parameters and tensors."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            for name, value in attributes.items():
                setattr(self, name, value)

    Model.forward = forward
    return Model()


x34 = torch.randn(3, 4)
