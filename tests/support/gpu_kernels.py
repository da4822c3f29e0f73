"""Where operations would have their tensors on a GPU, without a GPU.

TensorFlow registers for every kernel which arguments are in the host's memory.
What is there is copied from the GPU and back, and a kernel whose tensors all
are, runs on the host. The packages with CUDA's kernels register them on
machines without a GPU, too.
"""

import dataclasses
import functools

import tensorflow as tf
from tensorflow.python.framework import kernels

# What a loop of int32 is made of has it in the host's memory.
_LOOPS = ("While", "StatelessWhile")
# Functions: what counts is in them.
_CALLS = (
    *("PartitionedCall", "StatefulPartitionedCall"),
    *("If", "StatelessIf", *_LOOPS),
)
NO_KERNEL = "no kernel"
# What is given to a function is not computed.
_ARGUMENTS = ("Placeholder",)


@dataclasses.dataclass(frozen=True)
class HostTensor:
    """A tensor that an operation has in the host's memory.

    Attributes:
        kind: The operation's type.
        argument: The name that it has in the operation; `NO_KERNEL` if that
            cannot be placed on a GPU at all.
        dtype: Name of its dtype.
        size: Number of its elements; None if that is not known.
        name: Of the operation.
    """

    kind: str
    argument: str
    dtype: str
    size: int | None
    name: str


def has_gpu_kernels():
    """Returns whether this TensorFlow was built for GPUs."""
    return tf.test.is_built_with_cuda() and any(_kernels("MatMul")[0])


def host_tensors(graph):
    """Returns the `HostTensor`s of a function's graph, and of those in it."""
    found = []
    for operation in graph.get_operations():
        if operation.type in _ARGUMENTS:
            continue
        if operation.type in _CALLS:
            for function in _functions(operation):
                found += host_tensors(function)
            if operation.type in _LOOPS:
                found += [
                    _told(operation, "input", tensor)
                    for tensor in operation.inputs
                    if tensor.dtype == tf.int32
                ]
            continue
        found += _of_kernel(operation)
    return found


def _functions(operation):
    names = [
        value.func.name
        for value in operation.node_def.attr.values()
        if value.HasField("func")
    ]
    return [operation.graph._get_function(name).graph for name in names]


def _of_kernel(operation):
    kernel = _find_kernel(operation)
    definition = operation.op_def
    found = []
    for arguments, tensors in (
        (definition.input_arg, list(operation.inputs)),
        (definition.output_arg, list(operation.outputs)),
    ):
        for argument in arguments:
            count = _count(operation, argument)
            own, tensors = tensors[:count], tensors[count:]
            if kernel is None:
                name = NO_KERNEL
            elif argument.name in kernel.host_memory_arg:
                name = argument.name
            else:
                continue
            found += [_told(operation, name, tensor) for tensor in own]
    return found


def _told(operation, argument, tensor):
    return HostTensor(
        operation.type,
        argument,
        tensor.dtype.base_dtype.name,
        tensor.shape.num_elements(),
        operation.name,
    )


def _count(operation, argument):
    """Returns of how many tensors an argument is."""
    if argument.number_attr:
        return operation.get_attr(argument.number_attr)
    if argument.type_list_attr:
        return len(operation.get_attr(argument.type_list_attr))
    return 1


@functools.cache
def _kernels(kind):
    """Returns those for GPUs, and those for any device without its own."""
    found = kernels.get_registered_kernels_for_op(kind).kernel
    return [
        [
            kernel
            for kernel in found
            if kernel.device_type == device and not kernel.label
        ]
        for device in ("GPU", "DEFAULT")
    ]


def _find_kernel(operation):
    """Returns the kernel that TensorFlow would take; None if there is none."""
    for registered in _kernels(operation.type):
        for kernel in registered:
            if all(
                _is_allowed(operation, constraint)
                for constraint in kernel.constraint
            ):
                return kernel
    return None


def _is_allowed(operation, constraint):
    value = operation.node_def.attr[constraint.name]
    types = value.list.type or [value.type]
    return all(each in constraint.allowed_values.list.type for each in types)
