r"""Counts the operations that TensorFlow runs to answer one string.

    python benchmarks/operations.py servables/mrpc/1 [servables/mrpc/2 ...]

The export runs in a session, as in TensorFlow Serving. Every execution of a
node after the graph's optimizer counts, also of nodes that only pass a tensor
on. The block shown is the third (`layer_2`) or, if there is none, the first.
The processor time of a call on one thread is measured in turns, and is the
median of 30. So is the ratio, because other work on the machine affects all
sides of a turn.
"""

import collections
import functools
import statistics
import sys
import time

import tensorflow as tf
import tensorflow_text  # noqa: F401 - registers its operations.

v1 = tf.compat.v1
_TEXT = "the quick brown fox jumps over the lazy dog and it is really good ."
_NUM_TURNS, _CALLS_A_TURN = 30, 20


def load(path):
    """Returns the session of an export, its fetches, and its feed."""
    session = v1.Session(
        graph=tf.Graph(),
        config=v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
        ),
    )
    with session.graph.as_default():
        loaded = v1.saved_model.load(session, ["serve"], path)
    signature = loaded.signature_def["serving_default"]
    feed = {each.name: [_TEXT] for each in signature.inputs.values()}
    return session, [each.name for each in signature.outputs.values()], feed


def count(session, fetches, feed):
    """Returns (node name, operation) for every execution."""
    metadata = v1.RunMetadata()
    trace = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    for _ in range(3):
        session.run(fetches, feed)
    session.run(fetches, feed, options=trace, run_metadata=metadata)
    return [
        (node.node_name, node.timeline_label.split(" = ")[-1].split("(")[0])
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    ]


def main():
    exports = {path: load(path) for path in sys.argv[1:]}
    calls = []
    for path, (session, fetches, feed) in exports.items():
        nodes = count(session, fetches, feed)
        names = ("layer_2", "layer_0")
        block = next(
            found
            for name in names
            if (found := [op for node, op in nodes if f"/{name}" in node])
        )
        print(f"{path}: {len(nodes)} in all, {len(block)} of a block")
        for operation, number in collections.Counter(block).most_common():
            print(f"  {number:4} {operation}")
        call = session.make_callable(fetches, feed_list=list(feed))
        calls.append(functools.partial(call, *feed.values()))
    seconds = [[] for _ in calls]
    for _ in range(_NUM_TURNS):
        for call, times in zip(calls, seconds):
            call()
            start = time.process_time()
            for _ in range(_CALLS_A_TURN):
                call()
            times.append((time.process_time() - start) / _CALLS_A_TURN)
    for path, times in zip(exports, seconds):
        shares = [a / b for a, b in zip(times, seconds[0])]
        print(
            f"{path}: {statistics.median(times) * 1e3:.2f} ms of processor, "
            f"{statistics.median(shares):.3f} times the first's"
        )


if __name__ == "__main__":
    main()
