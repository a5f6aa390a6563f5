"""Runs Graph JSON with PyTorch's own ops, as docs/worker-protocol.md describes it: the tests' second reading of that
document.
"""

import math

import torch
from dtype_names import DTYPES


def number(value):
    return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value["f"]] if isinstance(value, dict) else value


def nested(value):
    return [nested(item) for item in value] if isinstance(value, list) else number(value)


def argument(value, values):
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "v":
        return values[content]
    if kind == "vs":
        return [None if item is None else values[item] for item in content]
    if kind == "list":
        return [argument(item, values) for item in content]
    if kind == "f":
        return number(value)
    if kind == "s":
        return content
    if kind == "dtype":
        return DTYPES[content]
    if kind == "device":
        return torch.device(content)
    if kind == "memory_format":
        return getattr(torch, content)
    if kind == "complex":
        return complex(*map(number, content))
    raise ValueError(kind)


def overload(name):
    namespace, packet, which = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), which)


def check_against(described, tensor):
    assert described["dtype"] == {dtype: name for name, dtype in DTYPES.items()}[tensor.dtype], described
    assert described["shape"] == list(tensor.shape), described
    assert described["device"] == tensor.device.type


def run(graph, module, args=(), kwargs=None):
    """(forward's result, {target: tensor} of the mutated buffers and inputs), computed from the graph alone."""
    values = {}
    for item in graph["inputs"]:
        described = graph["values"][item["value"]]
        if item["kind"] == "user":
            tensor = args if item["path"][0] == "args" else kwargs
            for key in item["path"][1:]:
                tensor = tensor[key]
            assert list(tensor.stride()) == described["strides"]
        elif item["access"] is not None:
            tensor = eval(item["access"], {"self": module})
            assert (
                item["kind"] == "constant"
                or tensor
                is dict(
                    [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
                )[item["target"]]
            )
        else:
            tensor = torch.tensor(nested(item["data"]), dtype=DTYPES[described["dtype"]]).reshape(described["shape"])
        check_against(described, tensor)
        values[item["value"]] = tensor.detach()
    for node in graph["nodes"]:
        op = overload(node["op"])
        given = {name: argument(value, values) for name, value in node["args"]}
        assert [name for name, _ in node["args"]] == [item.name for item in op._schema.arguments if item.name in given]
        assert not op._schema.is_mutable, f"{node['op']} writes to its operands"
        positional = []
        for item in op._schema.arguments:
            if item.kwarg_only or item.name not in given:
                break
            positional.append(given.pop(item.name))
        made = op(*positional, **given)
        made = [made] if isinstance(made, torch.Tensor) else list(made or [])
        for result, tensor in zip(node["results"], made, strict=True):
            if result >= 0:
                check_against(graph["values"][result], tensor)
                values[result] = tensor
    mutated = {item["target"]: values[item["value"]] for item in graph["outputs"] if item["kind"] != "user"}
    for item in graph["outputs"]:
        assert list(values[item["value"]].stride()) == graph["values"][item["value"]]["strides"]
    return rebuild(graph["result"], [values[item["value"]] for item in graph["outputs"]]), mutated


def rebuild(shape, outputs):
    if "named" in shape:
        return getattr(torch.return_types, shape["named"])([rebuild(item, outputs) for item in shape["tuple"]])
    ((kind, content),) = shape.items()
    if kind == "output":
        return outputs[content]
    if kind == "constant":
        return number(content) if isinstance(content, dict) else content
    if kind == "dict":
        return {key: rebuild(item, outputs) for key, item in content}
    return {"tuple": tuple, "list": list}[kind](rebuild(item, outputs) for item in content)
