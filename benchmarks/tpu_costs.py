"""Estimates what the paper's pre-training would cost on TPU slices.

    hours = operations of all steps / (chips * peak * utilisation) / 3600

Operations are those that the compiler counts in a step (tpu.py); peaks are the
chips' published ones. No TPU was timed, and the share of its peak that a chip
reaches is not known before it runs.
"""

# Published peaks per chip in bfloat16, in operations per second:
# cloud.google.com/tpu/docs/v5e and /v6e.
PEAK_FLOPS = {"v5e": 197e12, "v6e": 918e12}
# Of the published 16 and 32 GB, what the compiler can use.
MEMORY_GIB = {"v5e": 15.75, "v6e": 31.24}
# Devlin et al. 2018, appendix A.2: a million steps of 256 sequences, nine
# tenths of them at length 128 and the rest at 512.
PAPER_STEPS = {128: 900_000, 512: 100_000}
PAPER_BATCH_SIZE = 256
# Predictions per sequence by length: 15 % of the tokens.
PREDICTIONS = {128: 20, 512: 77}
SLICES = (("v5e", 16), ("v6e", 8))
UTILIZATIONS = (0.4, 0.6)


def paper_hours(flops_per_example, chip, num_chips, utilization):
    """Returns the hours of the paper's pre-training.

    Args:
        flops_per_example: {length: operations per example in a step}, for the
            lengths of `PAPER_STEPS`.
        chip: A name in `PEAK_FLOPS`.
        num_chips: The number of chips in the slice.
        utilization: The share of the peak that the chips reach, in (0, 1].
    """
    flops = sum(
        steps * PAPER_BATCH_SIZE * flops_per_example[length]
        for length, steps in PAPER_STEPS.items()
    )
    return flops / (num_chips * PEAK_FLOPS[chip] * utilization) / 3600


def cost_table(flops_per_example):
    """Returns lines of Markdown.

    Args:
        flops_per_example: {size: {length: operations}}.
    """
    lines = [
        "| size | slice | utilisation | hours | chip-hours |",
        "|---|---|---|---|---|",
    ]
    for size, flops in flops_per_example.items():
        for chip, num_chips in SLICES:
            for utilization in UTILIZATIONS:
                hours = paper_hours(flops, chip, num_chips, utilization)
                lines.append(
                    f"| {size} | {chip}-{num_chips} | {utilization:.0%} "
                    f"| {hours:.1f} | {hours * num_chips:,.0f} |"
                )
    return lines
