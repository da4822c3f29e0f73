"""Plain loops: rankings, their scores, and searches of whole lists."""

import math


def ranking(scores):
    """Returns indices, the highest score first, of equals the first."""
    return sorted(range(len(scores)), key=lambda index: (-scores[index], index))


def recall(order, grades, k):
    return sum(index in grades for index in order[:k]) / len(grades)


def reciprocal_rank(order, grades, k):
    for place, index in enumerate(order[:k]):
        if index in grades:
            return 1 / (place + 1)
    return 0.0


def ndcg(order, grades, k):
    gained = sum(
        grades.get(index, 0) / math.log2(place + 2)
        for place, index in enumerate(order[:k])
    )
    best = sum(
        grade / math.log2(place + 2)
        for place, grade in enumerate(sorted(grades.values(), reverse=True)[:k])
    )
    return gained / best


def average_precision(order, grades, k=None):
    found, total = 0, 0.0
    for place, index in enumerate(order[:k]):
        if index in grades:
            found += 1
            total += found / (place + 1)
    return total / min(len(grades), k or len(grades))


def dot(left, right):
    return sum(a * b for a, b in zip(left, right, strict=True))


def cosine(left, right):
    return dot(left, right) / math.sqrt(dot(left, left) * dot(right, right))
