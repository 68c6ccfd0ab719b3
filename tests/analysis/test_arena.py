from intaglio.analysis.arena import Span, draw, live_bytes

SPANS = [Span("x", 0, 100, 0, 1), Span("y", 100, 50, 1, 3), Span("z", 0, 25, 2, 3)]


def test_live_bytes_follow_the_lifetimes():
    assert live_bytes(SPANS, 4) == [100, 150, 75, 75]


def test_the_chart_shows_addresses_and_lifetimes():
    rows = draw(SPANS, 150, 4, width=4, height=6).splitlines()
    cells = [r.split("│")[1] for r in rows[:6]]  # top address first
    assert cells == [" BBB", " BBB", "AA  ", "AA  ", "AA  ", "AACC"]
    assert "  A  x: 100 bytes, steps 0 to 1" in rows


def test_nothing_to_draw():
    assert draw([], 0, 0) == "(no internal memory)"
