"""Tests of the toy (see toy.py): what a test of a lab looks like. Nothing here is graded."""

from efflib.lab import exercise, expect_close, expect_error


@exercise(
    "toy",
    points=1,
    invariant="a token every 100 ms is 10 tokens a second",
    cause="100 in place of the 1000 milliseconds that a second has",
)
def test_ten_tokens_a_second(student, rng):
    for milliseconds, rate in ((100, 10.0), (20, 50.0), (2000, 0.5)):
        found = student.tokens_per_second(milliseconds)
        expect_close(float(found), rate, what=f"tokens_per_second({milliseconds})", rtol=1e-12)


@exercise(
    "toy",
    points=1,
    invariant="a token in no time, or in less, is refused with a ValueError",
    cause="what no clock can have measured goes through",
)
def test_no_time_is_refused(student, rng):
    expect_close(float(student.tokens_per_second(1000)), 1.0, what="tokens_per_second(1000)")
    for milliseconds in (0, -5):
        expect_error(
            ValueError, lambda m=milliseconds: student.tokens_per_second(m), f"{milliseconds} ms"
        )
