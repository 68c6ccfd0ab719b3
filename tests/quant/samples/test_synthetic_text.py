"""Synthetic text: random words in the frames of real sentences."""

import numpy as np

from intaglio import ops
from intaglio.ir import Graph, Type, Value, constant
from intaglio.quant.samples.synthetic_text import padding_masks, with_random_words, word_inputs


def net():
    ids, mask = (Value(Type("i64", (1, 6)), name) for name in ("ids", "mask"))
    table = constant(np.zeros((50, 4), np.float32))
    rows = ops.gather(table, ids, axis=0)
    real = ops.reshape(ops.cast(mask, dtype="f32"), shape=(1, 6, 1))
    return Graph([ids, mask], [ops.mul(rows, real)])


def sentence(*words):
    padded = [1, *words, 2] + [0] * (4 - len(words))
    return {"ids": np.array([padded]), "mask": np.array([[int(w > 0) for w in padded]])}


def test_special_tokens_stay_and_words_vary():
    graph, given = net(), [sentence(7, 8, 9, 10), sentence(11, 12), sentence(7, 13, 14)]
    assert word_inputs(graph) == {"ids": 50}
    made = with_random_words(graph, given, 40)
    assert len(made) == 40
    assert made[:3] == given
    new = [s for s in made if not any(s is g for g in given)]
    assert all((s["ids"][:, [0, 5]] == [1, 2]).all() for s in new)
    assert all((s["mask"] == 1).all() for s in new)
    assert len({tuple(s["ids"].ravel()) for s in new}) > 20
    assert max(int(s["ids"].max()) for s in new) < 50
    again = with_random_words(graph, given, 40)
    assert all((a["ids"] == b["ids"]).all() for a, b in zip(made, again, strict=True))


def test_enough_samples_and_other_inputs_stay_as_they_are():
    graph, given = net(), [sentence(7, 8), sentence(9, 10)]
    assert with_random_words(graph, given, 2) == given
    x = Value(Type("f32", (1, 4)), "x")
    assert with_random_words(Graph([x], [ops.relu(x)]), [{"x": 0}, {"x": 1}], 9) == [
        {"x": 0},
        {"x": 1},
    ]


def test_padding_is_found_in_short_sentences():
    given = [sentence(7, 8, 9, 10), sentence(11, 12), sentence(7)]
    kept = padding_masks(net(), given)
    assert [int(k.sum()) for k in kept] == [6, 4, 3]
    assert padding_masks(net(), [sentence(7, 8, 9, 10)] * 2) is None
    x = Value(Type("f32", (1, 4)), "x")
    assert padding_masks(Graph([x], [ops.relu(x)]), [{"x": 0}]) is None
